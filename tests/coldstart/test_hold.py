"""The hold queue: order, bounds, deadlines, and its cost with many tickets."""

from __future__ import annotations

import pytest

from coldstart.core.hold import Held, HoldQueue, HoldRefusal
from events.units import Instant
from tests.support.slots import START, budget, hold


def held(request: str, caller: str = "a", *, at: float = START, wait: float = 60.0, size: int = 10) -> Held:
    return Held(request, caller, Instant(at), Instant(at + wait), size)


def queue(**bounds: int) -> HoldQueue:
    return HoldQueue(hold(**bounds), budget())


def drain(line: HoldQueue) -> list[str]:
    return [one.request for one in line.clear()]


def test_one_caller_is_served_in_the_order_of_its_requests() -> None:
    """First come, first served within a caller."""
    line = queue()
    for index in range(5):
        assert line.push(held(f"r{index}"), START) is None
    assert drain(line) == ["r0", "r1", "r2", "r3", "r4"]


def test_callers_are_served_in_turn() -> None:
    """A caller with many requests does not keep the others waiting."""
    line = queue()
    for request, caller in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")]:
        line.push(held(request, caller), START)
    assert drain(line) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_returning_request_goes_to_the_head_of_its_callers_line() -> None:
    """Another try goes before the same caller's younger requests, but takes no other caller's turn."""
    line = queue()
    for request, caller in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        line.push(held(request, caller), START)
    assert line.pop() == held("a1", "a")
    line.push(held("a1", "a"), START, returning=True)
    assert drain(line) == ["b1", "a1", "a2"]


@pytest.mark.parametrize(
    ("bounds", "size", "why"),
    [
        ({"requests": 2}, 1, HoldRefusal.COUNT),
        ({"size": 25}, 6, HoldRefusal.BYTES),
        ({"requests": 0}, 1, HoldRefusal.COUNT),
    ],
    ids=["count", "bytes", "holds-none"],
)
def test_a_queue_refuses_what_exceeds_its_bounds(bounds: dict[str, int], size: int, why: HoldRefusal) -> None:
    """Count and bytes are bounds of the model; a refusal is a value and changes nothing."""
    line = queue(**bounds)
    room = min(bounds.get("requests", 2), 2)
    for index in range(room):
        assert line.push(held(f"r{index}"), START) is None
    assert line.push(held("more", size=size), START) is why
    assert (len(line), line.bytes) == (room, 10 * room)


def test_the_budget_binds_all_queues_together() -> None:
    """One model's queue can use up what all may hold; what leaves it is free for the others."""
    shared = budget(requests=2, size=100)
    one, other = HoldQueue(hold(), shared), HoldQueue(hold(), shared)
    assert one.push(held("a"), START) is None
    assert one.push(held("b", size=85), START) is None
    assert other.push(held("c"), START) is HoldRefusal.COUNT_IN_ALL
    one.cancel("a")
    assert other.push(held("c", size=16), START) is HoldRefusal.BYTES_IN_ALL
    assert other.push(held("c", size=15), START) is None
    assert (shared.requests, shared.bytes) == (2, 100)


def test_the_deadline_counts_from_the_arrival() -> None:
    """Whoever arrived too long ago may not wait, whatever its own deadline says."""
    line = HoldQueue(hold(wait=30.0), budget())
    assert line.push(held("old", at=START - 30), START) is HoldRefusal.TOO_OLD
    assert line.push(held("young", at=START - 29), START) is None
    assert line.next_deadline() == START + 1
    assert [one.request for one in line.expire(Instant(START + 1))] == ["young"]


def test_expire_takes_out_the_late_ones_earliest_first() -> None:
    """Deadlines, not arrivals, say who goes; the others keep their order."""
    line = queue()
    for request, wait in [("r0", 30.0), ("r1", 10.0), ("r2", 20.0), ("r3", 40.0)]:
        line.push(held(request, wait=wait), START)
    assert [one.request for one in line.expire(Instant(START + 20))] == ["r1", "r2"]
    assert line.next_deadline() == START + 30
    assert drain(line) == ["r0", "r3"]
    assert line.next_deadline() is None


def test_the_oldest_arrival_is_that_of_whoever_still_waits() -> None:
    """Also when an older request comes back after younger ones."""
    line = queue()
    line.push(held("young", at=START), START)
    line.push(held("old", at=START - 5), START, returning=True)
    assert line.oldest_arrival() == START - 5
    line.cancel("old")
    assert line.oldest_arrival() == START
    line.cancel("young")
    assert line.oldest_arrival() is None


def test_ahead_counts_the_turns_before_a_request() -> None:
    """With callers in turn: two of each other caller's, and its own caller's two before it."""
    line = queue()
    for request, caller in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b"), ("c1", "c")]:
        line.push(held(request, caller), START)
    expected = drain_order(line)
    for place, request in enumerate(expected):
        assert line.ahead(request) == place
    assert line.ahead("nobody") == 0


def drain_order(line: HoldQueue) -> list[str]:
    """The order in which the queue would serve, without serving."""
    copy = HoldQueue(line.policy, budget())
    for one in sorted(line, key=lambda one: one.request):
        copy.push(one, START)
    return drain(copy)


def test_the_same_request_cannot_wait_twice() -> None:
    """That would be one slot for two places: the caller's bug."""
    line = queue()
    line.push(held("r"), START)
    with pytest.raises(ValueError, match="waits already"):
        line.push(held("r", "another"), START)


def test_cancel_tells_whether_the_request_waited() -> None:
    """A request that was served or never came is nobody."""
    line = queue()
    line.push(held("r"), START)
    assert line.cancel("r") == held("r")
    assert line.cancel("r") is None
    assert (len(line), line.bytes) == (0, 0)


def test_twenty_thousand_tickets_come_and_go() -> None:
    """Enter, cancel, serve and expire with 20,000 that wait: each leaves exactly once, and nothing is left over."""
    line = HoldQueue(hold(requests=20_000, size=1 << 40), budget())
    for index in range(20_000):
        request = held(f"r{index}", f"caller-{index % 100}", at=START + index / 1000, wait=60 + index % 7)
        assert line.push(request, START) is None
    left = [f"r{index}" for index in range(0, 20_000, 4)]
    cancelled = [one.request for request in left if (one := line.cancel(request)) is not None]
    served = [one.request for _ in range(10_000) if (one := line.pop()) is not None]
    expired = [one.request for one in line.expire(Instant(START + 1000))]
    assert sorted(cancelled + served + expired) == sorted(f"r{index}" for index in range(20_000))
    assert (len(line), line.bytes, line.next_deadline()) == (0, 0, None)
