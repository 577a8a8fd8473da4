"""Asynchronous inference, whatever happens: each request ends exactly once, as a result or as a dead letter."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from events.types.inference import FailureReason
from runtime.core.inference.endings import Dead
from runtime.core.inference.errand import State
from tests.support.inference_world import World

MODELS = ("good", "busy", "never")
"""`never` gets no slot, ever."""
BROKEN = Dead(FailureReason.ATTEMPTS, "the replica broke off", 500)


class Inference(RuleBasedStateMachine):
    """Producers, slots, replicas, time and death do what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.produced: set[str] = set()
        self.count = 0

    @rule(model=st.sampled_from(MODELS), key=st.none() | st.sampled_from("xy"), lasts=st.sampled_from([3.0, 60.0, 1e9]))
    def produce(self, model: str, key: str | None, lasts: float) -> None:
        """A new request."""
        self.count += 1
        name = f"{model}-{self.count}"
        self.produced.add(name)
        self.world.produce(name, model, key, lasts, priority=self.count % 3)

    @precondition(lambda self: self.produced)
    @rule(data=st.data(), key=st.none() | st.sampled_from("xy"))
    def produce_again(self, data: st.DataObject, key: str | None) -> None:
        """The same request once more."""
        name = data.draw(st.sampled_from(sorted(self.produced)))
        self.world.produce(name, name.split("-", maxsplit=1)[0], key)

    @rule(most=st.integers(1, 10))
    def deliver(self, most: int) -> None:
        """The log delivers."""
        self.world.deliver(most)

    @precondition(lambda self: any(one.arrival.model != "never" for one in self.world.tickets.values()))
    @rule(index=st.integers(0, 5))
    def grant(self, index: int) -> None:
        """A slot becomes free."""
        numbers = list(self.world.tickets)
        fit = [at for at, number in enumerate(numbers) if self.world.tickets[number].arrival.model != "never"]
        self.world.grant(fit[index % len(fit)])

    @precondition(lambda self: self.world.tickets)
    @rule(index=st.integers(0, 5))
    def refuse(self, index: int) -> None:
        """The hold queue says no."""
        self.world.refuse(index)

    @precondition(lambda self: self.world.running)
    @rule(index=st.integers(0, 5))
    def answer(self, index: int) -> None:
        """A replica answers."""
        self.world.answer(index)

    @precondition(lambda self: self.world.running)
    @rule(index=st.integers(0, 5), chance=st.floats(0, 1))
    def fail(self, index: int, chance: float) -> None:
        """A replica breaks."""
        self.world.fail(index, BROKEN, chance)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 11.0, 70.0]))
    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.world.advance(seconds)

    @precondition(lambda self: self.world.pending)
    @rule(tell=st.booleans(), late=st.integers(0, 5))
    def settle(self, tell: bool, late: int) -> None:
        """The transaction is committed; perhaps its author dies before it knows, or reads on before."""
        self.world.settle(tell, late)

    @rule()
    def crash(self) -> None:
        """kill -9: what was under way is forgotten."""
        self.world.start()

    @rule()
    def rebalance(self) -> None:
        """All partitions go and come back."""
        world = self.world
        places = list(world.topics)
        world.do(world.clerk.revoke(places, world.now))
        assert not world.tickets
        assert not world.running
        assert len(world.clerk) == 0
        for place in places:
            low, done = world.marks.get(place, (0, ()))
            world.clerk.assign(place, low, done)
            world.read[place] = low

    @invariant()
    def nobody_ends_twice(self) -> None:
        """At no time has a request two outcomes."""
        counts = Counter(outcome.id for outcome in self.world.outcomes)
        assert [name for name, count in counts.items() if count > 1] == []

    @invariant()
    def the_look_ahead_is_bounded(self) -> None:
        """No lane holds more than it may; every errand that is not being settled has an alarm."""
        clerk = self.world.clerk
        for lane in clerk._lanes.values():
            assert lane.span <= self.world.policy.lookahead
        alarmed = {what for _, _, what in clerk._alarms if isinstance(what, int)}
        for number, errand in clerk._errands.items():
            assert errand.state is State.SETTLING or number in alarmed

    def teardown(self) -> None:
        """Once the models that can answer do, everything comes to its end within the longest wait."""
        world = self.world
        for _ in range(3000):
            world.deliver()
            while any(one.arrival.model != "never" for one in world.tickets.values()):
                self.grant(0)
            while world.running:
                world.answer()
            if world.pending:
                world.settle()
            done = {outcome.id for outcome in world.outcomes} >= self.produced
            if done and not len(world.clerk) and all(world.read[p] == len(t) for p, t in world.topics.items()):
                break
            world.advance(1.0)
        counts = Counter(outcome.id for outcome in world.outcomes)
        assert counts == dict.fromkeys(self.produced, 1)
        for place, arrivals in world.topics.items():
            low, done = world.clerk._lanes[place].mark()
            assert low == len(arrivals)
            assert done == ()
        assert all(o.what == "deadline_exceeded" for o in world.outcomes if o.id.startswith("never"))
        super().teardown()


TestInference = Inference.TestCase
TestInference.__doc__ = "Every run of the machine shows it."
TestInference.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
