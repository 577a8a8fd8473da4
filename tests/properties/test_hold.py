"""The hold queue against a plain model of it: nothing lost, nothing twice, fair, in order, within bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coldstart.core.hold import Held, HoldQueue, HoldRefusal
from events.units import Instant
from tests.support.slots import START, budget, hold

CALLERS = ["a", "b", "c"]
MOST, MOST_BYTES, MOST_IN_ALL = 6, 100, 8


class QueueAgainstLists(RuleBasedStateMachine):
    """The same calls on the queue and on lists of lists, with a second queue that shares the budget."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = budget(requests=MOST_IN_ALL, size=10_000)
        self.queue = HoldQueue(hold(requests=MOST, size=MOST_BYTES), self.budget)
        self.other = HoldQueue(hold(), self.budget)
        self.lines: list[tuple[str, list[Held]]] = []
        self.now = START
        self.count = 0
        self.served: list[Held] = []

    def line(self, caller: str) -> list[Held]:
        for name, line in self.lines:
            if name == caller:
                return line
        self.lines.append((caller, []))
        return self.lines[-1][1]

    def all(self) -> list[Held]:
        return [held for _, line in self.lines for held in line]

    def remove(self, held: Held) -> None:
        self.line(held.caller).remove(held)
        self.lines = [(caller, line) for caller, line in self.lines if line]

    def expected_refusal(self, size: int) -> HoldRefusal | None:
        if len(self.all()) >= MOST:
            return HoldRefusal.COUNT
        if sum(held.bytes for held in self.all()) + size > MOST_BYTES:
            return HoldRefusal.BYTES
        if len(self.all()) + len(self.other) >= MOST_IN_ALL:
            return HoldRefusal.COUNT_IN_ALL
        return None

    @rule(caller=st.sampled_from(CALLERS), wait=st.floats(0.5, 100.0), size=st.integers(0, 40))
    def push(self, caller: str, wait: float, size: int) -> None:
        self.count += 1
        held = Held(f"r{self.count}", caller, self.now, Instant(self.now + wait), size)
        expected = self.expected_refusal(size)
        assert self.queue.push(held, self.now) is expected
        if expected is None:
            self.line(caller).append(held)

    @precondition(lambda self: self.served)
    @rule(index=st.integers(0, 100))
    def come_back(self, index: int) -> None:
        held = self.served.pop(index % len(self.served))
        late = held.deadline <= self.now
        expected = HoldRefusal.TOO_OLD if late else self.expected_refusal(held.bytes)
        assert self.queue.push(held, self.now, returning=True) is expected
        if expected is None:
            self.line(held.caller).insert(0, held)

    @rule()
    def pop(self) -> None:
        held = self.queue.pop()
        if not self.lines:
            assert held is None
            return
        caller, line = self.lines.pop(0)
        expected = line.pop(0)
        if line:
            self.lines.append((caller, line))
        assert held == expected
        self.served.append(expected)

    @precondition(lambda self: self.lines)
    @rule(index=st.integers(0, 100))
    def cancel(self, index: int) -> None:
        held = self.all()[index % len(self.all())]
        assert self.queue.cancel(held.request) == held
        self.remove(held)

    @rule(seconds=st.floats(0.0, 30.0))
    def expire(self, seconds: float) -> None:
        self.now = Instant(self.now + seconds)
        late = [held for held in self.all() if held.deadline <= self.now]
        gone = self.queue.expire(self.now)
        assert sorted(held.request for held in gone) == sorted(held.request for held in late)
        assert [held.deadline for held in gone] == sorted(held.deadline for held in gone)
        for held in late:
            self.remove(held)

    @rule(size=st.integers(0, 3))
    def other_model(self, size: int) -> None:
        self.count += 1
        self.other.push(Held(f"o{self.count}", "o", self.now, Instant(self.now + 1e6), size), self.now)
        if len(self.other) > 4:
            self.other.clear()

    @invariant()
    def same(self) -> None:
        held = self.all()
        assert len(self.queue) == len(held) <= MOST
        assert self.queue.bytes == sum(one.bytes for one in held) <= MOST_BYTES
        assert self.budget.requests == len(held) + len(self.other) <= MOST_IN_ALL
        assert self.budget.bytes == self.queue.bytes + self.other.bytes
        assert self.queue.next_deadline() == min((one.deadline for one in held), default=None)
        assert self.queue.oldest_arrival() == min((one.arrived_at for one in held), default=None)

    @invariant()
    def ahead_is_never_too_small(self) -> None:
        copy = [(caller, list(line)) for caller, line in self.lines]
        place = 0
        while copy:
            caller, line = copy.pop(0)
            assert self.queue.ahead(line.pop(0).request) >= place
            place += 1
            if line:
                copy.append((caller, line))

    def teardown(self) -> None:
        assert len(self.queue.clear()) == len(self.all())
        self.other.clear()
        assert (self.budget.requests, self.budget.bytes) == (0, 0)


QueueAgainstLists.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueAgainstLists = QueueAgainstLists.TestCase


@settings(max_examples=50, deadline=None)
@given(callers=st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_nobody_waits_for_more_than_one_turn_of_each_other_caller(callers: list[int]) -> None:
    """Between two turns of a caller that waits, every other caller is served at most once."""
    line = HoldQueue(hold(), budget())
    for index, caller in enumerate(callers):
        line.push(Held(f"r{index}", str(caller), START, Instant(START + 10), 1), START)
    order = [held.caller for held in line.clear()]
    for caller in set(order):
        last = -1
        for place, name in enumerate(order):
            if name == caller:
                between = order[last + 1 : place]
                assert len(between) == len(set(between))
                last = place
