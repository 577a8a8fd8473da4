"""Slots of replicas: busy, settling, least loaded."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from events.types.replicas import ReplicaStatus
from events.units import Instant, Seconds
from runtime.core.policy import Cancels
from runtime.core.slots import PROCESSING_AGE, REACH_TIME, ReplicaSlots, Settling, SlotPool, address_of
from tests.support.slots import START, replica

LONG_AGO = Instant(START - 60)
ASKED_AT = Instant(START + 10)


def slots_of(status: ReplicaStatus) -> ReplicaSlots:
    address = address_of(status)
    assert address is not None
    return ReplicaSlots(status, address)


def settling(since: float = START, until: float = START + 600) -> Settling:
    return Settling(since=Instant(since), until=Instant(until), counts=True, patience=Seconds(600.0))


def busy(*, settles: int, live: int = 0, granted_at: float = LONG_AGO, slots: int = 8) -> ReplicaSlots:
    """A replica with slots that settle, the first ones the longest, and live leases."""
    made = slots_of(replica(slots=slots))
    for lease in range(settles):
        made.lease(lease, LONG_AGO)
        made.settle(lease, settling(START + lease))
    for lease in range(100, 100 + live):
        made.lease(lease, Instant(granted_at))
    return made


def test_a_slot_cannot_be_sold_twice() -> None:
    """Settling slots are busy."""
    full = busy(settles=1, live=1, slots=2)
    assert full.free == 0
    with pytest.raises(AssertionError, match="sold twice"):
        full.lease(7, START)


@pytest.mark.parametrize(
    ("settles", "live", "count", "left"),
    [
        (3, 0, 0, 0),
        (3, 0, 2, 2),
        (3, 0, 9, 3),
        (2, 2, 2, 0),
        (2, 2, 3, 1),
        (2, 2, 4, 2),
        (2, 2, 0, 0),
    ],
    ids=["none-runs", "two-of-three-run", "more-than-ours", "the-live-ones-run", "one-more", "all-run", "none-at-all"],
)
def test_the_count_of_the_engine_settles_slots(settles: int, live: int, count: int, left: int) -> None:
    """What the count has above the old live leases must be settling slots; only the others are free."""
    made = busy(settles=settles, live=live)
    assert made.settled_by_count(count, ASKED_AT) == settles - left
    assert len(made.settling) == left
    assert made.busy == live + left


def test_the_longest_settling_slot_is_free_first() -> None:
    """The engine works off requests about in their order; which one it was makes no difference to the number."""
    made = busy(settles=3)
    made.settled_by_count(1, ASKED_AT)
    assert list(made.settling) == [2]


def test_a_young_live_lease_explains_no_count() -> None:
    """It may still be on its way to the engine: what the engine runs may all be settling slots."""
    made = busy(settles=1, live=1, granted_at=ASKED_AT - PROCESSING_AGE + 0.01)
    assert made.settled_by_count(1, ASKED_AT) == 0


def test_a_count_from_before_the_end_of_a_lease_says_nothing_about_it() -> None:
    """The request may have been on its way when the engine counted."""
    made = busy(settles=1)
    assert made.settled_by_count(0, Instant(START + REACH_TIME - 0.01)) == 0
    assert made.settled_by_count(0, Instant(START + REACH_TIME)) == 1


def test_time_frees_a_slot_only_where_the_engine_does_not_count() -> None:
    """An engine that counts and is overdue is suspect, again and again, and its slot stays busy."""
    made = busy(settles=1)
    assert made.settled_by_time(Instant(START + 599)) == (0, False)
    assert made.settled_by_time(Instant(START + 600)) == (0, True)
    assert made.settled_by_time(Instant(START + 601)) == (0, False)
    assert made.settled_by_time(Instant(START + 1200)) == (0, True)
    made.lease(50, START)
    made.settle(50, Settling(START, Instant(START + 1), counts=False, patience=Seconds(600.0)))
    assert made.settled_by_time(Instant(START + 1)) == (1, False)


def test_the_least_loaded_replica_is_chosen_by_share_and_name() -> None:
    """One busy slot of four is less than one of two; equals go by name."""
    small, large = slots_of(replica(0, slots=2)), slots_of(replica(1, slots=4))
    pool = SlotPool()
    pool.replace([large, small])
    order = []
    for lease in range(6):
        chosen = pool.least_loaded()
        assert chosen is not None
        chosen.lease(lease, START)
        pool.changed(chosen)
        order.append(chosen.name[-1])
    assert order == ["0", "1", "1", "0", "1", "1"]
    assert pool.least_loaded() is None


def test_the_pool_always_knows_the_least_loaded() -> None:
    """Ten thousand random leases and releases against looking at every replica; the heap stays small."""
    rng = random.Random(3)
    replicas = [slots_of(replica(index, slots=1 + index % 4)) for index in range(10)]
    pool = SlotPool()
    pool.replace(replicas)
    live: list[tuple[ReplicaSlots, int]] = []
    for lease in range(10_000):
        expected = min(replicas, key=lambda one: (one.busy / one.status.slots, one.name))
        chosen = pool.least_loaded()
        assert chosen is (expected if expected.free else None)
        if chosen is not None and rng.random() < 0.6:
            chosen.lease(lease, START)
            live.append((chosen, lease))
            pool.changed(chosen)
        elif live:
            chosen, ended = live.pop(rng.randrange(len(live)))
            chosen.release(ended)
            pool.changed(chosen)
    assert len(pool._heap) <= 4 * len(replicas) + 64


def test_a_replica_that_left_the_pool_is_not_leased() -> None:
    """Its later changes of load do not bring it back."""
    one, other = slots_of(replica(0)), slots_of(replica(1))
    pool = SlotPool()
    pool.replace([one, other])
    pool.replace([other])
    pool.changed(one)
    assert pool.least_loaded() is other


def test_a_replica_without_slots_is_not_leased() -> None:
    """An adapter that does not know the slots yet says 0."""
    pool = SlotPool()
    pool.replace([slots_of(replica(slots=0))])
    assert pool.least_loaded() is None


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("[::1]:8000", ("::1", 8000)),
        ("node-1.pool:1", ("node-1.pool", 1)),
        ("", None),
        ("127.0.0.1", None),
        (":8000", None),
        ("host:", None),
        ("host:http", None),
        ("host:0", None),
        ("host:65536", None),
        ("host:\u0664", None),
    ],
)
def test_an_address_that_cannot_be_read_is_none(address: str, found: tuple[str, int] | None) -> None:
    """Another writer's mistake must not stop the desk."""
    assert address_of(replace(replica(), address=address)) == found


def test_an_engine_of_unknown_manners_is_taken_not_to_cancel() -> None:
    """The safest assumption: no slot is oversold."""
    assert slots_of(replica(cancels="sometimes")).cancels is Cancels.NEVER
