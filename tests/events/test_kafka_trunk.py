"""The one reader that caught-up subscriptions share, without a broker: nothing is missed and nothing told twice."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from events.adapters.kafka.follower import Plan
from events.adapters.kafka.past import Opened, Past
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.trunk import Trunk
from events.adapters.kafka.wire import RawRecord
from events.adapters.store import Place
from events.clock import SimulatedClock
from events.log import Start
from events.names import Topic, TopicKind
from tests.events.test_kafka_parts import PARTITIONS, raw
from tests.support.events import Teller

TOPIC = str(Topic.PHASES)
TELL = Teller()


def opened(place: Place, offset: int) -> Opened:
    """A record that stands there."""
    record = raw(TELL.drained(), offset, topic=place[0], partition=place[1])
    return Opened(record, PARTITIONS[place[0]])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=30), st.integers(1, 8), st.data())
def test_the_past_is_whole_or_not_told(read: list[tuple[int, int]], bound: int, data: st.DataObject) -> None:
    """What is remembered since an offset is everything that was read since, or nothing is said at all."""
    places = [(TOPIC, 0), (TOPIC, 1)]
    past, ends, kept = Past(bound), dict.fromkeys(places, 0), 0
    for place in places:
        past.begin(place, 0)
    for partition, count in read:
        place = places[partition]
        past.put(place, [opened(place, ends[place] + one) for one in range(count)])
        ends[place] += count
        kept = min(bound, kept + count)
    since = {place: data.draw(st.integers(0, ends[place])) for place in places}
    found = past.since(since)
    missed = sum(ends.values()) - sum(since.values())
    if found is None:
        assert kept < sum(ends.values()), "all that was read is there"
    else:
        told = {place: [one.raw.offset for one in found.get(place, [])] for place in places}
        assert told == {place: list(range(since[place], ends[place])) for place in places}
        assert missed <= bound


def test_a_place_that_is_forgotten_begins_anew() -> None:
    """Its old records are not given to who comes for the new ones."""
    past, place = Past(), (TOPIC, 0)
    past.begin(place, 0)
    past.put(place, [opened(place, 0)])
    past.begin(place, 7)
    assert past.since({place: 7}) == {}
    assert past.since({place: 6}) is None


class FakeConsumer:
    """Reads a log in memory; a place that was assigned is answered for from the second poll on, as brokers do it."""

    def __init__(self, log: Mapping[Place, Sequence[RawRecord]]) -> None:
        self._log = log
        self._at: dict[TopicPartition, int] = {}
        self._heard: set[TopicPartition] = set()

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._at = {place: self._at.get(place, -1) for place in places}
        self._heard &= set(places)

    def assignment(self) -> set[TopicPartition]:
        return set(self._at)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at[place] = offset

    def highwater(self, place: TopicPartition) -> int | None:
        return len(self._log[place]) if place in self._heard else None

    def poll(self, most: int) -> dict[Place, Sequence[RawRecord]]:
        found = {(one.topic, one.partition): self._log[one][at : at + most] for one, at in self._at.items()}
        known = {(one.topic, one.partition) for one in self._heard}
        self._heard = set(self._at)
        for place, raws in found.items():
            if place in known:
                self._at[TopicPartition(*place)] += len(raws)
        return {place: raws for place, raws in found.items() if place in known and raws}


class OneTurn(Trunk):
    """A trunk whose thread does nothing: the test takes its turns."""

    _clock: SimulatedClock

    def _run(self) -> None:
        """Nothing."""

    def turn(self, consumer: FakeConsumer, most: int, seconds: float = 0.2) -> None:
        """So much time passes."""
        self._clock.set(self._clock.now() + seconds)
        with self._lock:
            self._drop_unwanted()
        if self._positions:
            assert self._assign(consumer)
            polled = consumer.poll(most)
            self._hear(consumer)
            self._carry(polled)


def a_trunk() -> OneTurn:
    trunk = OneTurn(KafkaSettings(("b:1",)), PARTITIONS, [TOPIC])
    trunk._clock = SimulatedClock()
    return trunk


class FakeRider:
    """Reads by itself, or is carried; takes no more than `room` before somebody makes room again."""

    def __init__(self, trunk: Trunk, log: Mapping[Place, Sequence[RawRecord]], at: dict[Place, int]) -> None:
        self._trunk, self._log, self.at = trunk, log, at
        self.got: dict[Place, list[int]] = {place: [] for place in at}
        self.aboard, self.room, self.fails = False, True, False

    def carry(self, come: Mapping[Place, Sequence[Opened]]) -> bool:
        if self.fails:
            self.fails = False
            raise ZeroDivisionError("a fault of ours")
        for place, records in come.items():
            for one in records:
                if one.raw.offset >= self.at.get(place, 1 << 60):
                    self._take(place, one.raw.offset)
        return self.room

    def go_back(self, place: Place, offset: int) -> None:
        self.at[place] = min(offset, self.at[place])

    def put_down(self) -> None:
        self.aboard = False

    def read(self, most: int) -> None:
        """Alone."""
        for place, offset in list(self.at.items()):
            for one in self._log[TopicPartition(*place)][offset : offset + most]:
                self._take(place, one.offset)

    def board(self) -> None:
        self.aboard = True
        self.aboard = self._trunk.board(self, self.at) and self.aboard

    def leave(self) -> None:
        self._trunk.leave(self)
        self.aboard = False

    def _take(self, place: Place, offset: int) -> None:
        self.got[place].append(offset)
        self.at[place] = offset + 1


class Walk:
    """Four riders, a trunk with a short memory, and three places, that do what chance says."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.turns = rng.choice(((0.2,), (0.5,), (1.0,), (0.0, 0.05, 0.2, 0.5, 1.0, 3.0)))
        places = [(TOPIC, partition) for partition in range(3)]
        self.log: dict[Place, list[RawRecord]] = {TopicPartition(*place): [] for place in places}
        self.trunk, self.consumer = a_trunk(), FakeConsumer(self.log)
        self.trunk._past = Past(rng.randrange(3, 12))
        self.riders = [
            FakeRider(self.trunk, self.log, dict.fromkeys(rng.sample(places, rng.randrange(1, 4)), 0)) for _ in range(4)
        ]
        self.carried = 0

    def step(self) -> None:
        """One thing happens."""
        rng, rider = self.rng, self.rng.choice(self.riders)
        (what,) = rng.choices(
            (self._append, self._alone, self._ask, self._leave, self._crowd, self._stumble, self._fail, self._turn),
            (3, 2, 2, 0.3, 1, 0.1, 0.1, 4),
        )
        what(rider)

    def end(self) -> None:
        """Everybody has room and time."""
        for rider in self.riders:
            rider.room, rider.fails = True, False
        for _ in range(600):
            self._turn(self.riders[0])
        for rider in self.riders:
            if not rider.aboard:
                rider.read(1 << 20)

    def _append(self, _: FakeRider) -> None:
        place = self.rng.choice(list(self.log))
        self.log[place].append(raw(TELL.drained(), len(self.log[place]), topic=place[0], partition=place[1]))

    def _alone(self, rider: FakeRider) -> None:
        if not rider.aboard:
            rider.read(self.rng.randrange(1, 4))

    def _ask(self, rider: FakeRider) -> None:
        if not rider.aboard:
            rider.board()
            self.carried += rider.aboard

    def _leave(self, rider: FakeRider) -> None:
        rider.leave()

    def _crowd(self, rider: FakeRider) -> None:
        rider.room = self.rng.random() < 0.8

    def _stumble(self, rider: FakeRider) -> None:
        rider.fails = True

    def _fail(self, _: FakeRider) -> None:
        self.consumer = FakeConsumer(self.log)
        self.trunk._reset()

    def _turn(self, _: FakeRider) -> None:
        self.trunk.turn(self.consumer, self.rng.randrange(1, 5), self.rng.choice(self.turns))


@pytest.mark.parametrize("tens", range(6))
def test_riders_miss_nothing_and_hear_nothing_twice(tens: int) -> None:
    """They come, leave, fail, and fall behind as they like, with places of their own; the trunk forgets, and fails now
    and then; time passes slowly or quickly. Each hears every record of its places once, in order."""
    carried = 0
    for seed in range(tens * 10, tens * 10 + 10):
        walk = Walk(seed)
        for _ in range(400):
            walk.step()
        walk.end()
        for rider in walk.riders:
            wanted = {place: list(range(len(walk.log[TopicPartition(*place)]))) for place in rider.got}
            assert rider.got == wanted, seed
        carried += bool(walk.carried)
    assert carried >= 8, "hardly anybody was ever carried: this shows little"


def test_riders_go_back_with_a_log_that_lost_its_end() -> None:
    """A broker without the last records was made leader, and others came under their offsets: these are heard too, by
    who rides and by who boards afterwards; who follows another place does not go back."""
    place, other, trunk = (TOPIC, 0), (TOPIC, 1), a_trunk()
    log = {TopicPartition(*one): [raw(TELL.drained(), offset, partition=one[1]) for offset in range(5)]
           for one in (place, other)}  # fmt: skip
    consumer = FakeConsumer(log)
    rider, bystander = FakeRider(trunk, log, {place: 0}), FakeRider(trunk, log, {other: 0})
    for one in (rider, bystander):
        one.board()
        for _ in range(3):
            trunk.turn(consumer, 5)
        one.board()
    log[TopicPartition(*place)][3:] = [raw(TELL.drained(), offset, partition=0) for offset in (3, 4)]
    consumer.seek(TopicPartition(*place), 3)  # as kafka-python does when it hears of it
    late = FakeRider(trunk, log, {place: 3})
    trunk.turn(consumer, 5)
    late.board()
    assert (rider.got[place], bystander.got[other]) == ([0, 1, 2, 3, 4, 3, 4], [0, 1, 2, 3, 4])
    assert (late.aboard, late.got[place]) == (True, [3, 4])


def test_who_fails_concerns_nobody_else() -> None:
    """It is put down, and the others are carried on; also when it fails at what it is given in boarding."""
    place, trunk = (TOPIC, 0), a_trunk()
    log = {TopicPartition(*place): [raw(TELL.drained(), offset, partition=0) for offset in range(2)]}
    consumer = FakeConsumer(log)
    sound, failing, late = (FakeRider(trunk, log, {place: 0}) for _ in range(3))
    sound.board()
    for _ in range(3):
        trunk.turn(consumer, 5)
    failing.board()
    sound.board()
    late.fails = failing.fails = True
    late.board()
    log[TopicPartition(*place)].append(raw(TELL.drained(), 2, partition=0))
    trunk.turn(consumer, 5)
    assert (sound.aboard, failing.aboard, late.aboard) == (True, False, False)
    assert (sound.got[place], failing.got[place], late.got[place]) == ([0, 1, 2], [0, 1], [])


def test_the_past_is_bounded_in_bytes() -> None:
    """Few large records are as much as many small ones; one that is larger than all of it is not kept at all."""
    place, past = (TOPIC, 0), Past(bound=100, most_bytes=1000)
    past.begin(place, 0)
    for offset in range(5):
        past.put(place, [Opened(raw(TELL.drained(), offset, key=b"", value=b"." * 300), 4)])
    assert past.since({place: 1}) is None
    assert len((past.since({place: 2}) or {})[place]) == 3
    past.put(place, [Opened(raw(TELL.drained(), 5, value=b"." * 1001), 4)])
    assert past.since({place: 5}) is None
    assert past.since({place: 6}) == {}
    past.begin(place, 6)
    past.put(place, [Opened(raw(TELL.drained(), 6, key=b"", value=b"." * 1000), 4)])
    assert len((past.since({place: 6}) or {})[place]) == 1, "what is forgotten counts no longer"


def one_aboard(place: Place) -> tuple[Trunk, FakeConsumer, FakeRider]:
    """Somebody who is carried, on an empty place."""
    log: dict[Place, list[RawRecord]] = {TopicPartition(*place): []}
    trunk, consumer = a_trunk(), FakeConsumer(log)
    rider = FakeRider(trunk, log, {place: 0})
    rider.board()
    for _ in range(3):
        trunk.turn(consumer, 5)
    rider.board()
    assert rider.aboard
    return trunk, consumer, rider


def test_whatever_ends_the_thread_puts_all_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who rides would wait for ever, and see nothing."""
    trunk, _, rider = one_aboard((TOPIC, 0))

    def end() -> None:
        raise SystemExit

    monkeypatch.setattr(trunk, "_session", end)
    with pytest.raises(SystemExit):
        Trunk._run(trunk)
    assert not rider.aboard
    assert trunk.closed.done()


def test_a_place_that_nobody_wants_is_read_no_longer() -> None:
    """After `KEPT` seconds without a rider; until then who comes back finds it."""
    place = (TOPIC, 0)
    trunk, consumer, rider = one_aboard(place)
    for _ in range(20):
        trunk.turn(consumer, 5)
    assert place in trunk._positions
    rider.leave()
    trunk.turn(consumer, 5)
    assert place in trunk._positions
    for _ in range(20):
        trunk.turn(consumer, 5)
    assert place not in trunk._positions


def test_who_is_put_down_while_boarding_knows_it() -> None:
    """Late records that fill it up make it read alone from behind them."""
    place = (TOPIC, 0)
    log = {TopicPartition(*place): [raw(TELL.drained(), offset, partition=0) for offset in range(3)]}
    trunk, consumer = a_trunk(), FakeConsumer(log)
    first, late = (FakeRider(trunk, log, {place: 0}) for _ in range(2))
    first.board()
    for _ in range(3):
        trunk.turn(consumer, 5)
    late.room = False
    late.board()
    assert (late.aboard, late.got[place], late.at[place]) == (False, [0, 1, 2], 3)


def test_a_closed_trunk_carries_nobody() -> None:
    """Who rides is put down, and who asks is told no."""
    trunk, _, rider = one_aboard((TOPIC, 0))
    trunk.close()
    assert not rider.aboard
    rider.board()
    assert not rider.aboard
    unused = Trunk(KafkaSettings(("b:1",)), PARTITIONS, [TOPIC])
    unused.close()
    unused.close()
    assert unused.closed.done()


def test_what_is_read_apart() -> None:
    """States, news and queues each by themselves; whole where the partitions are dealt in a group or chosen."""
    states, news, queue = (Topic.GRANTS, Topic.MODELS), (Topic.METRICS,), (Topic.DEAD_LETTERS,)
    mixed = tuple(map(str, (states[0], *news, states[1], *queue)))
    apart = Plan(mixed, PARTITIONS, Start("newest_per_key")).by_kind()
    assert [(kind, part.topics) for kind, part in apart] == [
        (TopicKind.STATE, tuple(map(str, states))), (TopicKind.NEWS, tuple(map(str, news))),
        (TopicKind.QUEUE, tuple(map(str, queue))),
    ]  # fmt: skip
    for whole in (Plan(mixed, PARTITIONS, Start(), "group"), Plan(mixed, PARTITIONS, Start(partitions=(1,)))):
        assert whole.by_kind() == [(None, whole)]
    chosen = Plan(tuple(map(str, news)), PARTITIONS, Start(partitions=(1,)))
    assert chosen.by_kind() == [(TopicKind.NEWS, chosen)]
