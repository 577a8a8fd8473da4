"""Random lives of several gateways that share a model: no slot is sold twice, order is kept, each request ends once."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.gateway_net import MODEL, Net

NAMES = ("a", "b", "c")
CALLERS = ("x", "y")


class Walk:
    """Requests and faults at random."""

    def __init__(self, rng: random.Random, *, slots: int, counts: bool) -> None:
        self.rng = rng
        self.net = Net(rng, slots=slots, counts=counts, slow=rng.choice((0.01, 0.3)))
        for name in NAMES:
            self.net.start(name)
        self.net.run(1.0)

    def ask(self) -> None:
        if self.net.nodes:
            for _ in range(self.rng.randint(1, 6)):
                node = self.net.nodes[self.rng.choice(sorted(self.net.nodes))]  # also one that leaves
                self.net.ask(node, self.rng.choice(CALLERS), length=self.rng.choice((0.05, 0.3, 2.0)))

    def kill(self) -> None:
        if len(self.net.nodes) > 1:
            self.net.kill(self.rng.choice(sorted(self.net.nodes)))

    def leave(self) -> None:
        if len(self.net.nodes) > 1:
            self.net.leave(self.rng.choice(sorted(self.net.nodes)))

    def start(self) -> None:
        """A gateway starts, in a world in which it can see the others (docs/decisions/0012 says what it relies on)."""
        missing = [name for name in NAMES if name not in self.net.nodes]
        if missing and not self.net.logless and not self.net.cut:
            self.net.start(self.rng.choice(missing))

    def pause(self) -> None:
        free = [name for name, node in sorted(self.net.nodes.items()) if not node.paused and not node.leaving]
        if free:
            self.net.pause(self.rng.choice(free), self.rng.choice((0.3, 2.0, 6.0, 12.0)))

    def cut(self) -> None:
        self.net.cut.add(frozenset(self.rng.choice(list(combinations(NAMES, 2)))))

    def cut_from_log(self) -> None:
        """Once it knows all others: one that is cut off before cannot know of whom it has never heard (decision 12)."""
        name = self.rng.choice(NAMES)
        node = self.net.nodes.get(name)
        view = None if node is None else node.sharing.allegiance.view
        if view is not None and all(other.me in view for other in self.net.nodes.values()):
            self.net.logless.add(name)

    def heal(self) -> None:
        self.net.cut.clear()
        self.net.logless.clear()

    def run(self) -> None:
        self.net.run(self.rng.choice((0.01, 0.1, 1.0, 4.0, 9.0)))

    def steps(self, count: int) -> None:
        weights = {
            self.ask: 10, self.run: 10, self.kill: 1, self.start: 3, self.leave: 0.7, self.pause: 1, self.cut: 1,
            self.cut_from_log: 0.7, self.heal: 2,
        }  # fmt: skip
        for _ in range(count):
            (step,) = self.rng.choices(list(weights), list(weights.values()))
            step()
            self.net.run(self.rng.uniform(0.0, 0.3))

    def end(self) -> None:
        """The faults are over: whoever waits is served, and nothing is left."""
        self.heal()
        self.net.run(15.0)
        if not any(not node.leaving for node in self.net.nodes.values()):
            self.net.start("a" if "a" not in self.net.nodes else "b")
        self.net.run(15.0)
        assert not self.net.unknown()
        self.net.run(75.0)
        for request, asked in self.net.asked.items():
            assert asked.answers == 1, (request, asked)
        for engine in self.net.engines.values():
            assert not engine.running
        for node in self.net.nodes.values():
            model = node.sharing.authority._models[MODEL]
            assert not model.tickets
            if model.selling:
                assert not model.sold
            assert node.holder.live_leases == 0
        sellers = [node for node in self.net.nodes.values() if node.sharing.authority._models[MODEL].selling]
        assert len(sellers) == 1


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), slots=st.sampled_from((1, 1, 3)), counts=st.booleans())
@example(seed=2400409, slots=1, counts=False)  # a gateway dies before the next authority has read the declaration
def test_no_slot_is_sold_twice_whatever_happens(seed: int, slots: int, counts: bool) -> None:
    """Kills, restarts, pauses, cut connections and a log that is away; the engines check each dispatch."""
    walk = Walk(random.Random(seed), slots=slots, counts=counts)
    walk.steps(60)
    walk.end()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), counts=st.booleans())
def test_whoever_waits_is_known_to_its_authority_after_it_stood_still(seed: int, counts: bool) -> None:
    """SIGSTOP and SIGCONT, again and again, while requests come at all gateways, also at the one that stands still."""
    rng = random.Random(seed)
    walk = Walk(rng, slots=rng.choice((1, 2)), counts=counts)
    for _ in range(4):
        live = sorted(walk.net.nodes)
        owner = walk.net.nodes[live[0]].sharing.allegiance.authority_of(MODEL)
        walk.net.pause(owner.gateway if owner is not None else rng.choice(live), rng.choice((2.0, 5.5, 7.0, 12.0)))
        for _ in range(rng.randint(4, 12)):
            walk.ask()
            walk.net.run(rng.choice((0.001, 0.3, 1.0, 2.0)))
        walk.net.run(25.0)
        assert not walk.net.unknown()
    walk.end()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_is_kept_when_the_authority_is_killed(seed: int) -> None:
    """Of each caller the first come is the first served, over all gateways, also by the next authority."""
    rng = random.Random(seed)
    net = Net(rng, slots=1, slow=0.01)
    for name in NAMES:
        net.start(name)
    net.run(1.0)
    for round_ in range(3):
        for _ in range(8):
            node = net.nodes[rng.choice(sorted(net.nodes))]
            net.ask(node, rng.choice(CALLERS), length=rng.uniform(0.05, 0.3))
            net.run(0.05)  # longer than any message takes
        if round_ == 1:
            owner = net.nodes["a"].sharing.allegiance.authority_of(MODEL) if "a" in net.nodes else None
            if owner is not None:
                net.kill(owner.gateway)
    net.run(60.0)
    for caller in CALLERS:
        served = [name for name in net.grants if net.asked[name].wanted.caller == caller]
        came = [name for name in net.asked if name in served]
        assert served == came


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), slots=st.sampled_from((1, 3)), counts=st.booleans())
def test_no_slot_is_sold_twice_in_many_lives(seed: int, slots: int, counts: bool) -> None:
    """The same, far more often."""
    walk = Walk(random.Random(seed), slots=slots, counts=counts)
    walk.steps(80)
    walk.end()
