"""Slots, queue and KV cache of the simulated engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engines.simulated.admission import Admission, NeverFits, QueueFull, SeenIds


class Request:
    """Notes that it began."""

    def __init__(self, kv_tokens: int = 1) -> None:
        self.kv_tokens = kv_tokens
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1


def test_a_request_beyond_the_slots_waits_and_counts_in_the_peak() -> None:
    """The second of two requests begins when the first leaves, and the peak tells that two were inside."""
    admission = Admission(slots=1, waiting=10, kv_tokens=0)
    first, second = Request(), Request()
    admission.enter(first)
    admission.enter(second)
    assert (first.begun, second.begun, admission.running, admission.waiting) == (1, 0, 1, 1)
    assert admission.counts.peak == 2
    admission.leave(first)
    assert (second.begun, admission.running, admission.waiting) == (1, 1, 0)


def test_those_who_wait_begin_in_the_order_of_their_arrival() -> None:
    """A small request does not overtake a large one that waits for KV cache."""
    admission = Admission(slots=4, waiting=10, kv_tokens=10)
    running, large, small = Request(8), Request(9), Request(1)
    for request in (running, large, small):
        admission.enter(request)
    assert (large.begun, small.begun) == (0, 0)
    admission.leave(running)
    assert (large.begun, small.begun) == (1, 1)


def test_a_request_larger_than_the_cache_is_refused() -> None:
    """Waiting would not help it."""
    admission = Admission(slots=1, waiting=10, kv_tokens=10)
    with pytest.raises(NeverFits, match="11 tokens"):
        admission.enter(Request(11))
    assert admission.running == admission.waiting == 0


def test_a_full_queue_refuses() -> None:
    """The queue has a bound."""
    admission = Admission(slots=1, waiting=1, kv_tokens=0)
    admission.enter(Request())
    admission.enter(Request())
    with pytest.raises(QueueFull):
        admission.enter(Request())


def test_leaving_twice_changes_nothing() -> None:
    """A slot is given back once."""
    admission = Admission(slots=2, waiting=1, kv_tokens=10)
    one, two = Request(4), Request(5)
    admission.enter(one)
    admission.enter(two)
    admission.leave(one)
    admission.leave(one)
    assert admission.running == 1
    assert admission.kv_use == 0.5


@given(
    slots=st.integers(1, 4),
    kv=st.integers(0, 20),
    steps=st.lists(st.one_of(st.integers(1, 8), st.none()), max_size=60),
)
def test_limits_hold_in_every_order_of_arrivals_and_departures(slots: int, kv: int, steps: list[int | None]) -> None:
    """Never more than the slots or the cache run, each request begins at most once, and nobody waits for nothing."""
    admission = Admission(slots, waiting=1000, kv_tokens=kv)
    inside: list[Request] = []
    for step in steps:
        if step is None and inside:
            admission.leave(inside.pop(0))
        elif step is not None:
            request = Request(step)
            try:
                admission.enter(request)
            except NeverFits:
                assert kv
                assert step > kv
            else:
                inside.append(request)
        assert admission.running <= slots
        assert admission.kv_use <= 1.0
        assert admission.running + admission.waiting == len(inside)
        assert all(request.begun <= 1 for request in inside)
        assert sum(request.begun for request in inside) == admission.running
        assert not (admission.waiting and admission.running == 0)


def test_ids_that_come_again_are_counted_and_listed() -> None:
    """A request that ran twice shows."""
    seen = SeenIds()
    for request_id in ("a", "b", "a", "c", "a"):
        seen.add(request_id)
    assert (len(seen), seen.duplicates, seen.repeated()) == (3, 2, {"a": 3})
    assert seen.newest(2) == ["b", "c"]


def test_remembered_ids_are_bounded() -> None:
    """The oldest is forgotten first."""
    seen = SeenIds(limit=3)
    for number in range(10):
        seen.add(str(number))
    assert seen.newest(100) == ["7", "8", "9"]
