"""What holds for every policy: bounds, determinism, restarts, monotony, rest at constant load, and back to zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.codec import memory_json, policy_json, read_memory, read_policy, read_snapshot, snapshot_json
from autoscaler.core.decide import POLICIES, decide
from autoscaler.core.model import Decision, Demand, Memory, Reason, Replicas, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.policy_spec import OPTIONS
from autoscaler.policy_spec import POLICIES as NAMED
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0

brief = settings(max_examples=25, deadline=None)  # the machine may be busy with other things
every = pytest.mark.parametrize("name", sorted(POLICIES))


def policy(name: str, **fields: object) -> ScalingPolicy:
    """With the options that it has, written out."""
    options = OPTIONS[name]().resolve() if name in OPTIONS else None
    return replace(POLICY, **{"name": name, "max_replicas": 30, "options": options, **fields})  # type: ignore[arg-type] # as given


@dataclass(frozen=True)
class Beat:
    """`seconds` later so many requests run or wait."""

    seconds: float
    level: int


beats = st.lists(st.builds(Beat, st.sampled_from([0.3, 1.0, 2.0, 5.0, 40.0]), st.integers(0, 90)), max_size=25)


def shown(at: float, level: int, wished: int, memory: Memory) -> Snapshot:
    """A snapshot in which all has been so for long, and replicas follow at once."""
    return Snapshot(
        model="m", uid="u", revision=1, taken_at=at, wished=wished, replicas=Replicas(ready=wished),
        demand=Demand(running=level, stable=float(level), panic=float(level), last_active_at=at if level else T0),
        memory=memory, history_read=True, followed_since=T0 - 600,
    )  # fmt: skip


def along(chosen: ScalingPolicy, levels: list[Beat], *, restarting: bool = False) -> list[Decision]:
    """The decisions along a story. `restarting`: everything goes through JSON before each of them."""
    at, wished, memory, decisions = T0, 0, Memory(), []
    for beat in levels:
        at += beat.seconds
        snapshot = shown(at, beat.level, wished, memory)
        if restarting:
            snapshot, chosen = read_snapshot(snapshot_json(snapshot)), read_policy(policy_json(chosen))
        decision = decide(snapshot, chosen, Instant(at))
        memory, wished = decision.memory, decision.replicas
        if restarting:
            memory = read_memory(memory_json(memory))
        decisions.append(decision)
    return decisions


def test_the_names_are_those_of_the_declaration() -> None:
    """What may be declared is what can be decided."""
    assert set(NAMED) == set(POLICIES)


@every
@brief
@given(story=beats, least=st.integers(0, 3))
def test_bounds(name: str, story: list[Beat], least: int) -> None:
    """Between the bounds, with a reason, and never to be looked at again in the past."""
    at = T0
    for beat, decision in zip(story, along(policy(name, min_replicas=least), story), strict=True):
        at += beat.seconds
        assert least <= decision.replicas <= 30
        assert decision.reasons
        assert decision.again_at is None or decision.again_at > at


@every
@brief
@given(story=beats)
def test_the_same_again_and_after_restarts(name: str, story: list[Beat]) -> None:
    """Deciding twice is the same; so is deciding with all that is remembered written down and read between."""
    straight = along(policy(name), story)
    assert along(policy(name), story) == straight
    assert along(policy(name), story, restarting=True) == straight


@every
@brief
@given(story=beats, level=st.integers(0, 90), more=st.integers(0, 50))
def test_more_load_never_means_fewer(name: str, story: list[Beat], level: int, more: int) -> None:
    """From one and the same past, more requests need at least as many replicas."""
    less = along(policy(name), [*story, Beat(2.0, level)])[-1]
    other = along(policy(name), [*story, Beat(2.0, level + more)])[-1]
    assert other.replicas >= less.replicas


@every
@brief
@given(level=st.integers(1, 90))
def test_constant_load_comes_to_rest(name: str, level: int) -> None:
    """After a quarter of an hour nothing changes any more."""
    numbers = [one.replicas for one in along(policy(name), [Beat(2.0, level)] * 700)]
    assert len(set(numbers[450:])) == 1


@every
@brief
@given(story=beats, level=st.integers(130, 900))
def test_overload_takes_nothing_away(name: str, story: list[Beat], level: int) -> None:
    """While more is asked for than all replicas can take, none goes."""
    numbers = [one.replicas for one in along(policy(name), [*story, *[Beat(2.0, level)] * 60])][len(story) :]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 0


@dataclass(frozen=True)
class Hidden:
    """What of a snapshot is not known, and the reason that tells of it."""

    why: Reason
    demand: dict[str, Any]
    read: bool = True

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The same snapshot, less what is not known."""
        demand = replace(snapshot.demand, **self.demand)
        since = snapshot.followed_since if self.read else None
        return replace(snapshot, demand=demand, history_read=self.read, followed_since=since)


UNKNOWN = [
    pytest.param(
        Hidden(Reason.DEMAND_UNKNOWN, {"silent": 1, "stable": None, "panic": None}), id="a gateway fell silent"
    ),
    pytest.param(Hidden(Reason.SIGNAL_STALE, {"stale_signals": 1}), id="a number has run out"),
    pytest.param(
        Hidden(Reason.HISTORY_UNREAD, {"stable": None, "panic": None}, read=False), id="the past is not read back yet"
    ),
]


@every
@pytest.mark.parametrize("hidden", UNKNOWN)
@brief
@given(story=beats, ticks=st.lists(st.sampled_from([0.3, 2.0, 15.0, 70.0]), min_size=1, max_size=40))
def test_what_is_not_known_takes_nothing_away(name: str, hidden: Hidden, story: list[Beat], ticks: list[float]) -> None:
    """Whatever came before, and for however long: as many as were wished stay."""
    chosen = policy(name, keep_alive=Seconds(1.0))
    before = along(chosen, [*story, Beat(2.0, 60)])[-1]
    at, memory = T0 + sum(beat.seconds for beat in story) + 2.0, before.memory
    for tick in ticks:
        at += tick
        decision = decide(hidden.of(shown(at, 0, before.replicas, memory)), chosen, Instant(at))
        memory = decision.memory
        assert decision.replicas >= before.replicas


@pytest.mark.parametrize("name", ["kpa", "keda", "hpa", "concurrency"])
@pytest.mark.parametrize("hidden", UNKNOWN)
def test_it_is_said_what_is_not_known(name: str, hidden: Hidden) -> None:
    """Where nothing else holds what was wished: a quarter of an hour later."""
    chosen, at = policy(name), T0 + 902.0
    busy = along(chosen, [Beat(2.0, 60)] * 2)[-1]
    memory = decide(shown(at - 600.0, 60, busy.replicas, busy.memory), chosen, Instant(at - 600.0)).memory
    decision = decide(hidden.of(shown(at, 0, busy.replicas, memory)), chosen, Instant(at))
    assert (decision.replicas, decision.reasons) == (busy.replicas, (hidden.why,))


@pytest.mark.parametrize("hidden", UNKNOWN)
def test_nor_does_ones_own(hidden: Hidden) -> None:
    """A user's policy that counts what it sees: it sees too little, so what was wished stays; more it may have."""

    def counts(snapshot: Snapshot, chosen: ScalingPolicy, _: Instant) -> Decision:
        level = snapshot.demand.running + snapshot.demand.waiting
        return Decision(replicas=ceil(level / chosen.target), reasons=(Reason.OWN_POLICY,), memory=snapshot.memory)

    chosen = replace(POLICY, name="users:counts", max_replicas=30)
    for level, replicas, reason in ((0, 7, hidden.why), (80, 20, Reason.OWN_POLICY)):
        decision = decide(hidden.of(shown(T0, level, 7, Memory())), chosen, Instant(T0), counts)
        assert (decision.replicas, decision.reasons) == (replicas, (reason,))


@every
@brief
@given(level=st.integers(1, 90))
def test_from_zero_and_back(name: str, level: int) -> None:
    """Whatever woke, sleeps in the end: looked at whenever it asked to be. (`hpa` knows no zero.)"""
    chosen = policy(name, keep_alive=Seconds(120.0))
    busy = along(chosen, [Beat(2.0, level)] * 60)
    assert busy[0].replicas >= 1
    at, decision = T0 + 120.0, busy[-1]
    for _ in range(20_000):
        again = decision.again_at
        if again is None and decision.replicas <= (1 if name == "hpa" else 0):
            break
        at = at + 2.0 if again is None else max(again, at + 0.1)
        decision = decide(shown(at, 0, decision.replicas, decision.memory), chosen, Instant(at))
        if decision.replicas == (1 if name == "hpa" else 0):
            break
    assert decision.replicas == (1 if name == "hpa" else 0)
    assert at < T0 + 5 * 3600
