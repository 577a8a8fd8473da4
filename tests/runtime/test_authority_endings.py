"""The slot authority when a lease ends badly: settling slots, suspicion, quarantine. No slot is ever oversold."""

from __future__ import annotations

import pytest

from events.types.replicas import ReplicaState
from events.units import Instant
from runtime.core.authority import QUARANTINE, Authority
from runtime.core.commands import Drained, Suspect
from runtime.core.slots import SETTLE_TIME
from runtime.ports import Ending, Lease, Outcome
from tests.support.slots import (
    DONE,
    MODEL,
    START,
    authority,
    granted,
    hold,
    leases,
    name,
    observed,
    others,
    replica,
    ticket,
)

TOTAL = 600.0
LEFT = Outcome(Ending.CLIENT_LEFT, engine_done=False)
TIMED_OUT = Outcome(Ending.TIMED_OUT, engine_done=False)


def at(seconds: float) -> Instant:
    return Instant(START + seconds)


def one_slot(*, stream: bool = False, cancels: str = "streams", busy_path: str = "") -> tuple[Authority, Lease]:
    """One replica with one slot, leased to r1 at START, while r2 waits."""
    desk = authority(hold=hold(wait=1e6))
    desk.observe(observed(replica(slots=1, cancels=cancels, busy_path=busy_path)), START)
    (lease,) = leases(desk.take(ticket("r1", stream=stream), START))
    desk.take(ticket("r2", wait=1e6), START)
    return desk, lease


@pytest.mark.parametrize(
    ("cancels", "stream", "after"),
    [
        ("always", False, SETTLE_TIME),
        ("always", True, SETTLE_TIME),
        ("streams", True, SETTLE_TIME),
        ("streams", False, TOTAL - 10.0),
        ("never", True, TOTAL - 10.0),
    ],
)
def test_a_slot_of_an_engine_that_cannot_be_asked_settles_by_time(cancels: str, stream: bool, after: float) -> None:
    """Soon when the engine cancels such a request, else when its total budget ends."""
    desk, lease = one_slot(cancels=cancels, stream=stream)
    assert granted(desk.give_back(lease.id, LEFT, at(10))) == []
    assert desk.polls() == ()
    assert granted(desk.advance(at(10 + after - 0.01))) == []
    assert granted(desk.advance(at(10 + after))) == ["r2"]


def test_a_slot_whose_engine_is_done_is_free_at_once() -> None:
    """Also when the client had left."""
    desk, lease = one_slot()
    assert granted(desk.give_back(lease.id, Outcome(Ending.CLIENT_LEFT), at(10))) == ["r2"]


def test_a_slot_of_an_engine_that_counts_settles_by_its_count_alone() -> None:
    """It is asked while slots settle, and no longer; time does not free the slot."""
    desk, lease = one_slot(stream=True, cancels="always", busy_path="/slots")
    assert desk.polls() == ()
    desk.give_back(lease.id, LEFT, at(10))
    (poll,) = desk.polls()
    assert (poll.model, poll.replica, poll.host, poll.port, poll.path) == (MODEL, name(0), "127.0.0.1", 9000, "/slots")
    assert granted(desk.advance(at(20))) == []
    assert granted(desk.engine_running(poll, 1, at(20), at(20))) == []
    assert granted(desk.engine_running(poll, 0, at(10.01), at(20))) == []  # asked too early to know
    assert granted(desk.engine_running(poll, 0, at(21), at(21))) == ["r2"]
    assert desk.polls() == ()
    assert granted(desk.engine_running(poll, 0, at(21), at(21))) == []


def test_an_engine_that_never_settles_is_suspect() -> None:
    """When the total budget has passed, and then again each time that long; its slot stays busy."""
    desk, lease = one_slot(busy_path="/slots")
    desk.give_back(lease.id, LEFT, at(10))
    assert others(desk.advance(at(TOTAL - 1))) == []
    for when in (TOTAL, 2 * TOTAL):
        (suspect,) = others(desk.advance(at(when)))
        assert isinstance(suspect, Suspect)
        assert (suspect.replica, granted(desk.advance(at(when)))) == (name(0), [])


def test_a_request_over_its_total_budget_makes_its_replica_suspect() -> None:
    """The slot stays busy for as long again, or until the replica is replaced."""
    desk, lease = one_slot(cancels="always")
    ended = desk.give_back(lease.id, TIMED_OUT, at(TOTAL))
    assert others(ended) == [Suspect(MODEL, name(0), "a request used up its total time")]
    assert granted(desk.advance(at(2 * TOTAL - 1))) == []
    assert granted(desk.observe(observed(replica(slots=1, life=2)), at(2 * TOTAL - 1))) == ["r2"]


def test_a_slot_of_a_suspect_replica_that_stays_is_free_in_the_end() -> None:
    """Nothing waits for ever."""
    desk, lease = one_slot(cancels="never")
    desk.give_back(lease.id, TIMED_OUT, at(TOTAL))
    assert granted(desk.advance(at(2 * TOTAL))) == ["r2"]


def test_a_silent_replica_is_suspect_and_its_slot_settles() -> None:
    """First byte or idle budget: the connection was closed, so an engine that cancels is done soon."""
    desk, lease = one_slot(cancels="always")
    ended = desk.give_back(lease.id, TIMED_OUT, at(60))
    assert others(ended) == [Suspect(MODEL, name(0), "it fell silent on a request")]
    assert granted(desk.advance(at(60 + SETTLE_TIME))) == ["r2"]


def test_an_unreachable_replica_is_told_once_and_left_alone_for_a_while() -> None:
    """Its free slots are nobody's for a second; the other replica serves."""
    desk = authority()
    desk.observe(observed(replica(0, slots=2), replica(1, slots=1)), START)
    one, other, two = (leases(desk.take(ticket(f"r{index}"), START))[0] for index in range(3))
    assert [one.replica, other.replica, two.replica] == [name(0), name(1), name(0)]
    first = desk.give_back(one.id, Outcome(Ending.UNREACHABLE), START)
    second = desk.give_back(two.id, Outcome(Ending.UNREACHABLE), START)
    assert [type(command) for command in others(first)] == [Suspect]
    assert others(second) == []
    assert granted(desk.take(ticket("r3"), START)) == []
    (lease,) = leases(desk.give_back(other.id, DONE, START))
    assert (lease.request, lease.replica) == ("r3", name(1))
    desk.take(ticket("r4"), START)
    assert granted(desk.advance(at(QUARANTINE - 0.01))) == []
    (lease,) = leases(desk.advance(at(QUARANTINE)))
    assert (lease.request, lease.replica) == ("r4", name(0))


def test_an_observation_ends_a_quarantine() -> None:
    """Whoever observes has probed; a replica that is still ready is leased again at once."""
    desk, lease = one_slot()
    assert granted(desk.give_back(lease.id, Outcome(Ending.UNREACHABLE), START)) == []
    assert granted(desk.observe(observed(replica(slots=1)), at(0.1))) == ["r2"]


def test_settling_slots_of_a_replica_that_is_gone_are_gone() -> None:
    """Nobody is asked about them any more, and a new life of the replica has all its slots."""
    desk, lease = one_slot(busy_path="/slots")
    desk.give_back(lease.id, LEFT, at(10))
    (poll,) = desk.polls()
    assert granted(desk.observe(observed(replica(slots=1, life=2)), at(11))) == ["r2"]
    assert desk.polls() == ()
    assert granted(desk.engine_running(poll, 0, at(12), at(12))) == []


def test_a_lease_on_a_replica_that_is_gone_makes_nobody_suspect() -> None:
    """What is gone needs no probe, and its successor is innocent."""
    desk, lease = one_slot()
    (successor,) = leases(desk.observe(observed(replica(slots=1, life=2)), at(1)))
    ended = desk.give_back(lease.id, Outcome(Ending.UNREACHABLE), at(2))
    assert (others(ended), granted(ended)) == ([], [])
    desk.take(ticket("r3"), at(2))
    assert granted(desk.give_back(successor.id, DONE, at(2))) == ["r3"]


def test_a_draining_replica_is_drained_although_a_slot_settles() -> None:
    """Nobody waits for the answer of a request whose client left."""
    desk, lease = one_slot(busy_path="/slots")
    desk.leave("r2", START)
    desk.give_back(lease.id, LEFT, at(1))
    draining = observed(replica(slots=1, busy_path="/slots", state=ReplicaState.DRAINING))
    assert others(desk.observe(draining, at(2))) == [Drained(MODEL, name(0))]


def test_the_quarantine_of_a_draining_replica_ends_too() -> None:
    """Its alarm rings once; nothing goes on ringing for a replica that will not be leased anyway."""
    desk = authority()
    desk.observe(observed(replica(slots=2)), START)
    (lease, other) = (leases(desk.take(ticket(f"r{index}"), START))[0] for index in range(2))
    desk.observe(observed(replica(slots=2, state=ReplicaState.DRAINING)), START)
    desk.give_back(lease.id, Outcome(Ending.UNREACHABLE), START)
    assert granted(desk.advance(at(QUARANTINE))) == []
    assert desk._alarms == []
    assert others(desk.give_back(other.id, DONE, at(2))) == [Drained(MODEL, name(0))]


def test_alarms_that_were_replaced_are_forgotten() -> None:
    """A model whose slots settle again and again while somebody waits does not fill the memory with its deadlines."""
    desk, lease = one_slot(cancels="always")
    for index in range(500):
        now = at(index * 0.5)
        desk.take(ticket(f"w{index}", now, wait=1e6), now)
        desk.give_back(lease.id, LEFT, now)
        (lease,) = leases(desk.advance(Instant(now + SETTLE_TIME)))
    assert len(desk._alarms) <= 67
