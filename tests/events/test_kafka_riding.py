"""When a subscription of Kafka lets the shared reader carry it, and that it always knows who reads for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import cast

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError

from events.adapters.kafka import follower as following
from events.adapters.kafka.client import Admin
from events.adapters.kafka.follower import ALONE, AllFollower, Delivery, Follower, Plan
from events.adapters.kafka.opening import Opener, Reading
from events.adapters.kafka.past import PAST, Opened
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.trunk import Trunk
from events.adapters.kafka.wire import Finding, RawRecord
from events.adapters.store import Place
from events.clock import SimulatedClock
from events.log import Record, Start
from events.names import Topic
from events.units import Instant
from tests.events.test_kafka_parts import PARTITIONS, raw
from tests.support.events import Teller

PHASES = str(Topic.PHASES)
PLACE = (PHASES, 0)
TELL = Teller()


class FakeConsumer:
    """Has nothing to read; says where its partitions end, and closes as it is told to."""

    def __init__(self, end: int | None = 0, closing: Callable[[], None] = lambda: None) -> None:
        self._end, self._closing = end, closing
        self.polled: Callable[[], Mapping[TopicPartition, list[RawRecord]]] = dict

    def assign(self, places: list[TopicPartition]) -> None:
        """Nothing comes of it."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Nor of this."""

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(*PLACE)}

    def highwater(self, place: TopicPartition) -> int | None:
        return self._end

    def poll(self, **_: object) -> Mapping[TopicPartition, list[RawRecord]]:
        return self.polled()

    def close(self, **_: object) -> None:
        self._closing()


class FakeTrunk:
    """Carries everybody who asks; `then` happens to who is aboard."""

    def __init__(self, then: Callable[[Follower], None] = lambda _: None) -> None:
        self.asked, self.riders, self._then = 0, set[Follower](), then

    def board(self, rider: Follower, positions: Mapping[Place, int]) -> bool:
        self.asked += 1
        self.riders.add(rider)
        self._then(rider)
        return True

    def leave(self, rider: Follower) -> None:
        self.riders.discard(rider)


class Fails:
    """An opener that fails at one offset."""

    def __init__(self, offset: int) -> None:
        self._offset, self._opener = offset, Reading(PARTITIONS, lambda: None)

    def open(self, raw: RawRecord, found: Finding | None = None) -> Record | None:
        if raw.offset == self._offset:
            raise ZeroDivisionError("a fault of ours")
        return self._opener.open(raw, found)


def a_follower(
    at: int = 0, opener: Opener | None = None, deliver: Callable[[Follower, Delivery], None] | None = None
) -> AllFollower:
    """One that has all there was of its place before `at`, and does nothing by itself."""
    plan = Plan((PHASES,), {PHASES: 1}, Start("end"))
    opening = opener or Reading(PARTITIONS, lambda: None)
    found = AllFollower(
        KafkaSettings(("b:1",)), cast("Admin", None), plan, opening, deliver or (lambda _, delivery: None)
    )
    found._positions, found._told_caught_up, found._clock = {PLACE: at}, True, SimulatedClock()
    found._alone_until = found._clock.now()
    return found


def ride(follower: AllFollower, trunk: FakeTrunk, consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt of its thread."""
    follower.trunk = cast("Trunk", trunk)
    monkeypatch.setattr(following, "make_consumer", lambda *_: consumer)
    follower._attempt()


def sound(offset: int) -> RawRecord:
    return cast("RawRecord", raw(TELL.drained(), offset, topic=PHASES, partition=PARTITION))


PARTITION = raw(TELL.drained()).partition


@pytest.mark.parametrize(
    ("end", "asks"), [(None, False), (10, True), (10 + PAST, True), (11 + PAST, False), (7, True)]
)  # fmt: skip
def test_who_is_near_the_end_asks(end: int | None, *, asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers have answered, and what is left is no more than what the shared reader keeps."""
    follower, trunk, consumer = a_follower(10), FakeTrunk(Follower.put_down), FakeConsumer(end)

    def nothing() -> dict[TopicPartition, list[RawRecord]]:
        follower.stop()
        return {}

    consumer.polled = nothing
    ride(follower, trunk, consumer, monkeypatch)
    assert trunk.asked == asks


def _refuse() -> None:
    raise KafkaConnectionError("no farewell")


def test_a_session_that_ends_badly_leaves_the_shared_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else both would read for it. (The consumer fails in closing, when the trunk carries already.)"""
    follower, trunk = a_follower(), FakeTrunk()
    ride(follower, trunk, FakeConsumer(closing=_refuse), monkeypatch)
    assert (trunk.asked, trunk.riders, follower.carried) == (1, set(), False)


def test_who_failed_reads_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it fails at, a corrupt record say, does not become the trouble of all again and again."""
    follower, trunk = a_follower(), FakeTrunk(Follower.put_down)
    ride(follower, trunk, FakeConsumer(closing=_refuse), monkeypatch)
    assert not follower._board(cast("object", FakeConsumer()))
    cast("SimulatedClock", follower._clock).set(Instant(follower._clock.now() + ALONE))
    assert follower._board(cast("object", FakeConsumer()))
    assert not follower._away, "the brokers have answered"


def test_who_is_put_down_because_nobody_listens_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop was closed before the log: it does not connect again and again."""

    def closed(_: Follower, delivery: Delivery) -> None:
        if delivery.records:
            raise RuntimeError("Event loop is closed")

    def carried(rider: Follower) -> None:
        assert not rider.carry({(PHASES, PARTITION): [Opened(sound(0), PARTITIONS[PHASES])]})
        rider.put_down()

    follower = a_follower(deliver=closed)
    follower._positions = {(PHASES, PARTITION): 0}
    with pytest.raises(RuntimeError, match="nobody listens"):
        ride(follower, FakeTrunk(carried), FakeConsumer(), monkeypatch)


@pytest.mark.parametrize("how", ["alone", "carried"])
def test_a_fault_of_ours_costs_one_record(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and the records beside it are delivered."""
    got: list[int] = []
    follower = a_follower(
        opener=Fails(1), deliver=lambda _, delivery: got.extend(one.position.offset for one in delivery.records)
    )
    place, records = (PHASES, PARTITION), [sound(offset) for offset in range(3)]
    follower._positions = {place: 0}
    with caplog.at_level(logging.ERROR):
        if how == "alone":
            follower._handle(cast("object", FakeConsumer()), {TopicPartition(*place): records})
        else:
            assert follower.carry({place: [Opened(one, PARTITIONS[PHASES]) for one in records]})
    assert (got, follower._positions) == ([0, 2], {place: 3})
    assert "ZeroDivisionError" in caplog.text
    assert "offset=1" in caplog.text


def test_what_could_not_be_taken_is_met_again() -> None:
    """A record fails before it is opened: nothing of what came with it counts as taken, in no partition."""
    follower = a_follower()
    other, place = (PHASES, PARTITION + 1), (PHASES, PARTITION)
    follower._positions = {other: 0, place: 0}
    broken = Opened(sound(0), 0)  # no partitions: a division by zero
    with pytest.raises(ZeroDivisionError):
        follower.carry({other: [Opened(sound(0), PARTITIONS[PHASES])], place: [broken]})
    assert follower._positions == {other: 0, place: 0}
