"""Fences: which writer counts."""

from __future__ import annotations

from events.clock import SimulatedClock
from events.envelope import AnyEnvelope
from events.fence import Fence, Observers, Owners, is_older
from events.log import Position, Record
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.replicas import ReplicasObserved
from events.units import Instant
from events.writer import EventWriter


def test_a_fence_never_goes_back() -> None:
    """A record of an older taking that arrives late does not let the old writer in again."""
    fence = Fence()
    assert fence.allows("p", None)
    fence.take("p", 7)
    fence.take("p", 3)
    assert [fence.allows("p", epoch) for epoch in (None, 3, 6, 7, 8)] == [False, False, False, True, True]


def test_scopes_are_apart() -> None:
    """Who takes one scope fences that one only."""
    fence = Fence()
    fence.take(0, 9)
    assert fence.allows(1, None)
    assert not fence.allows(0, 8)


WRITER = EventWriter("relume/test", SimulatedClock())
WISH = WishDecided(
    model="m", uid="u", revision=1, replicas=1, priority=1, reasons=("edge",), snapshot={}, policy={}, memory={}
)


def record(data: object, partition: int, offset: int, epoch: int | None = None) -> Record:
    envelope = WRITER.envelope(data, epoch=epoch)
    return Record(Position("relume.decisions", partition, offset), Instant(1.0), envelope)


def test_wishes_are_fenced_by_partition() -> None:
    """A zombie of one partition is refused there; in another one its number says nothing."""
    owners = Owners()
    assert owners.admits(record(WISH, 0, 0)), "nobody owns it yet"
    assert owners.admits(record(OwnershipTaken(partition=0, owner="a"), 0, 1))
    assert owners.admits(record(WISH, 0, 2, epoch=1))
    assert owners.admits(record(OwnershipTaken(partition=0, owner="b"), 0, 3))
    assert not owners.admits(record(WISH, 0, 4, epoch=1))
    assert not owners.admits(record(WISH, 0, 5))
    assert owners.admits(record(WISH, 0, 6, epoch=3))
    assert owners.admits(record(WISH, 1, 4, epoch=1))
    assert owners.refused == 2


def test_an_ownership_of_another_partition_is_no_epoch() -> None:
    """Of a stray, or of one who made it up: the partition that it stands in stays whose it was."""
    owners = Owners()
    assert owners.admits(record(OwnershipTaken(partition=0, owner="a"), 0, 1))
    assert not owners.admits(record(OwnershipTaken(partition=5, owner="b"), 0, 2))
    assert owners.admits(record(WISH, 0, 3, epoch=1))


def test_an_epoch_is_proved_by_what_was_written_under_it() -> None:
    """The record that took it may be compacted away; and no epoch lies in the future."""
    owners = Owners()
    assert owners.admits(record(WISH, 0, 9, epoch=8))
    assert not owners.admits(record(WISH, 0, 10, epoch=3))
    assert not owners.admits(record(WISH, 0, 11, epoch=11))
    assert owners.refused == 2
    assert not owners.admits(record(WISH, 0, 10, epoch=3)), "told again"
    assert owners.refused == 2


def told(model: str, offset: int, epoch: int | None = None) -> Record:
    envelope = WRITER.envelope(ReplicasObserved(model=model, uid="u", replicas=()), epoch=epoch)
    return Record(Position("relume.replicas", 0, offset), Instant(1.0), envelope)


def test_states_are_fenced_by_their_key() -> None:
    """An adapter that was replaced is refused about each model that the next one has told of; of others its word, the
    only one there is, stands. Repetitions are counted once."""
    observers = Observers()
    assert observers.admits(told("a", 0)), "no leader has had an adapter yet"
    assert observers.admits(told("a", 1, epoch=5))
    assert observers.admits(told("a", 2, epoch=9))
    assert observers.admits(told("b", 3, epoch=5))
    assert not observers.admits(told("a", 4, epoch=5))
    assert not observers.admits(told("a", 5))
    assert observers.admits(told("a", 6, epoch=9))
    assert not observers.admits(told("a", 5))
    assert observers.refused == 2
    assert observers.admits(record(WISH, 0, 7)), "no state of an adapter"


def test_who_is_rightful_knows_what_hides_its_states() -> None:
    """States of older epochs, or of none; an adapter that has no epoch itself replaces nobody."""

    def state(epoch: int | None) -> AnyEnvelope:
        return told("a", 0, epoch).envelope

    assert [is_older(state(epoch), 7) for epoch in (None, 6, 7, 8)] == [True, True, False, False]
    assert not is_older(state(6), None)
    assert not is_older(WRITER.envelope(WISH, epoch=6), 7)
