"""Parts of the Kafka log that need no broker: settings, records, what is delivered, the scan for newest values, the
backlog and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from events.adapters.kafka.backlog import Backlog
from events.adapters.kafka.opening import Reading, Tending
from events.adapters.kafka.outgoing import Append, Sent
from events.adapters.kafka.scan import Scan
from events.adapters.kafka.settings import KafkaSecurity, KafkaSettings
from events.adapters.kafka.topics import TopicReport, common_partitions, problems_of, wanted_configs
from events.adapters.kafka.window import Window
from events.adapters.kafka.wire import OURS, Stray, find, outgoing
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogUnavailable, Position, Retention
from events.names import Topic, TopicKind
from events.partitions import partition_of
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.grants import LeadershipTaken
from events.types.letters import EventRejected
from events.units import Instant, Seconds
from tests.support.events import Teller

WISH = WishDecided(
    model="m", uid="u", revision=1, replicas=1, priority=1, reasons=("edge",), snapshot={}, policy={}, memory={}
)
PARTITIONS = {str(topic): 4 for topic in Topic}


@dataclass
class Raw:
    """A record as the client gives it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def raw(event: AnyEnvelope, offset: int = 0, *, foreign: bool = False, **changes: object) -> Raw:
    """The record that says `event`."""
    record = outgoing(event, PARTITIONS, 1 << 20)
    headers = [(name, value) for name, value in record.headers if not (foreign and name == OURS)]
    found = Raw(record.topic, record.partition, offset, 5000 + offset, record.key, record.value, list(headers))
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_a_record_says_the_event() -> None:
    """There and back, under the key and in the partition of the event."""
    event = Teller().beat("g")
    record = outgoing(event, PARTITIONS, 1 << 20)
    assert (record.topic, record.key, record.partition) == (Topic.GATEWAYS, b"gateway/g", partition_of("gateway/g", 4))
    assert find(raw(event), 4) == event


def test_strays() -> None:
    """The wrong partition always; the wrong key on a state topic, where compaction goes by it; not on news."""
    tell = Teller()
    state, news = tell.beat("g"), tell.drained()
    elsewhere = raw(news)
    elsewhere.partition = (elsewhere.partition + 1) % 4
    assert find(elsewhere, 4) == Stray(news)
    assert isinstance(find(raw(state, key=b"g"), 4), Stray)
    assert find(raw(news, key=None), 4) == news


def test_followers_get_each_sound_event_once() -> None:
    """Repetitions, strays, garbage and tombstones are left out; a record that is given again is delivered again; the
    time never goes back."""
    counted: list[int] = []
    reading, tell = Reading(PARTITIONS, lambda: counted.append(1)), Teller()
    first, second = tell.drained(), tell.drained()
    delivered = reading.open(raw(first, 7))
    assert delivered is not None
    assert (delivered.position.offset, delivered.appended_at) == (7, Instant(5.007))
    assert reading.open(raw(first, 7)) == delivered
    assert counted == []
    assert reading.open(raw(first, 8)) is None
    assert counted == [1]
    late = reading.open(raw(second, 9, timestamp=1000))
    assert late is not None
    assert late.appended_at == Instant(5.007)
    assert reading.open(raw(tell.drained(), 10, value=b"garbage")) is None
    assert reading.open(raw(tell.drained(), 11, value=None)) is None
    assert reading.open(raw(tell.drained(), 12, partition=(late.position.partition + 1) % 4)) is None


def test_tending() -> None:
    """Garbage gives a letter that names its place, a stray itself, old strayed news nothing; ours is trusted."""
    tending, tell = Tending(PARTITIONS, lambda: Instant(100.0)), Teller()
    bad = tending.open(raw(tell.drained(), 3, foreign=True, value=b"garbage"))
    assert bad is not None
    assert isinstance(bad.envelope.data, EventRejected)
    assert (bad.envelope.data.topic, bad.envelope.data.offset) == (Topic.PHASES, 3)
    news = tell.drained()
    wrong = (raw(news).partition + 1) % 4
    stray = tending.open(raw(news, 4, foreign=True, partition=wrong))
    assert stray is not None
    assert stray.envelope == news
    assert tending.open(raw(news, 5, partition=wrong)) is not None, "a mirror may have moved what is ours"
    assert tending.open(raw(news, 6)) is None
    tending.now = lambda: Instant(10_000.0)
    assert tending.open(raw(news, 7, foreign=True, partition=wrong)) is None
    assert (tending.rejected, tending.strays, tending.stale, tending.ignored) == (1, 2, 1, 0)


def test_strays_of_fenced_writers_are_void() -> None:
    """Who owns a partition says so in it; elsewhere it is no epoch, and is not carried to where it would be one."""
    tending, writer = Tending(PARTITIONS, lambda: Instant(100.0)), Teller().writer
    reading = Reading(PARTITIONS, lambda: None)
    for event in (
        writer.envelope(OwnershipTaken(partition=1, owner="a")),
        writer.envelope(LeadershipTaken(pool="default", leader="a")),
        writer.envelope(WISH, epoch=3),
    ):
        strayed = raw(event, 9)
        strayed.partition = (strayed.partition + 1) % 4
        assert reading.open(strayed) is None
        assert tending.open(strayed) is None
    assert (tending.void, tending.strays) == (3, 0)
    assert raw(writer.envelope(OwnershipTaken(partition=1, owner="a"))).partition == 1


def test_the_newest_of_each_key() -> None:
    """In the order of the log; a repetition of something older does not come back; garbage asks for a careful scan."""
    tell = Teller()
    events = [tell.beat("a", "1"), tell.beat("b", "2"), tell.beat("a", "3")]
    raws = [raw(event, offset) for offset, event in enumerate(events)] + [raw(events[0], 3)]
    opener = Reading(PARTITIONS, lambda: None)
    scan = Scan()
    scan.feed(raws, opener)
    assert [record.envelope for record in scan.newest(opener) or []] == [events[1], events[2]]
    garbage = raw(tell.beat("b", "4"), 4, value=b"garbage")
    hidden = Scan()
    hidden.feed([*raws, garbage], opener)
    assert hidden.newest(opener) is None
    careful = Scan(careful=True)
    careful.feed([*raws, garbage], opener)
    assert [record.envelope for record in careful.newest(opener) or []] == [events[1], events[2]]


def test_the_window_forgets_the_oldest() -> None:
    """It holds what it was told to hold."""
    window: Window[int] = Window(2)
    for number in range(3):
        window.put(("s", str(number)), number)
    assert [window.get(("s", str(number))) for number in range(3)] == [None, 1, 2]


def backlog(**bounds: int) -> tuple[Backlog, list[int]]:
    """A backlog, and how often it called the loop."""
    calls: list[int] = []
    settings = KafkaSettings(("b:1",), **bounds)  # type: ignore[arg-type]  # only numbers are given
    found = Backlog(settings, lambda: calls.append(1))
    found.changed.acquire()  # these tests are the thread that holds it
    return found, calls


def fly(found: Backlog) -> list[int]:
    """Hand everything that may go to the client; the serial numbers."""
    serials = []
    while (work := found.next()) is not None:
        for index, event in enumerate(work.events):
            serials.append(found.fly(Sent(outgoing(event, PARTITIONS, 1 << 20), event, work.append, index)))
    return serials


def test_the_backlog_is_bounded() -> None:
    """Offers and appended events have bounds of their own, in flight or not; room comes with acknowledgements."""
    tell = Teller()
    found, _ = backlog(offer_bound=3, append_bound=2, in_flight_bound=2)
    assert [found.offer(tell.drained()) for _ in range(4)] == [True, True, True, False]
    assert found.submit(Append(0, (tell.drained(), tell.drained())))
    assert not found.submit(Append(1, (tell.drained(),)))
    appended = fly(found)
    assert len(appended) == 2, "appends overtake offers, and nothing more fits in flight"
    for serial in appended:
        found.acknowledged(serial, Position("t", 0, serial))
    assert found.depth() == 3
    offered = fly(found)
    assert not found.offer(tell.drained())
    found.acknowledged(offered[0], Position("t", 0, 9))
    assert found.offer(tell.drained())


def test_the_backlog_answers_once() -> None:
    """An append is answered when all of its events are durable, in their order; the loop is called once for many."""
    tell = Teller()
    found, calls = backlog()
    found.submit(Append(7, (tell.drained(), tell.drained())))
    first, second = fly(found)
    found.acknowledged(second, Position("t", 0, 5))
    assert found.take().answers == []
    found.acknowledged(first, Position("t", 0, 4))
    outcome = found.take()
    assert outcome.answers == [(7, (Position("t", 0, 4), Position("t", 0, 5)))]
    assert len(calls) == 2, "for the first take and for the second"
    assert found.depth() == 0


def test_a_grounded_flight() -> None:
    """Nothing is known of what is in flight: appenders hear it, offers wait again in their order, before later ones."""
    tell = Teller()
    found, _ = backlog()
    offers = [tell.drained() for _ in range(3)]
    found.submit(Append(1, (tell.drained(),)))
    found.offer(offers[0])
    found.offer(offers[1])
    fly(found)
    found.offer(offers[2])
    found.ground(LogUnavailable("gone"))
    ((token, answer),) = found.take().answers
    assert (token, type(answer)) == (1, LogUnavailable)
    work = found.next()
    assert work is not None
    assert work.events == tuple(offers)


def test_the_backlog_of_a_closed_log() -> None:
    """Appenders hear that it is closed; offers are counted as lost; abandoned appends are not written."""
    tell = Teller()
    found, _ = backlog()
    gone = Append(1, (tell.drained(),), abandoned=True)
    found.submit(gone)
    assert found.next() is None
    found.submit(Append(2, (tell.drained(),)))
    found.offer(tell.drained())
    found.give_up()
    outcome = found.take()
    assert [(token, type(answer)) for token, answer in outcome.answers] == [(1, LogUnavailable), (2, LogClosed)]
    assert (outcome.lost, found.depth()) == (1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "SASL_SSL"},
        {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"},
        {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"},
        {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "token_file": Path("t"), "username": "u"},
        {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "p", "token_file": Path("t")},
        {"protocol": "SSL", "username": "u"},
        {"protocol": "SSL", "token_file": Path("t")},
        {"protocol": "SSL", "certificate": Path("c")},
    ],
)
def test_security_that_cannot_be(wrong: dict[str, object]) -> None:
    """What is missing, or cannot matter, is refused."""
    with pytest.raises(ValueError, match=r"needs|takes no"):
        KafkaSecurity(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_options_of_the_client() -> None:
    """Idempotence needs all acknowledgements; TLS and SASL reach every client; the password is in no repr."""
    security = KafkaSecurity("SASL_SSL", Path("ca"), mechanism="SCRAM-SHA-512", username="u", password="hush")
    settings = KafkaSettings(("a:1", "b:2"), security, delivery_timeout=Seconds(20.0))
    producing, consuming = settings.producing(), settings.grouping("g", Seconds(6.0))
    assert (producing["acks"], producing["enable_idempotence"], producing["delivery_timeout_ms"]) == (
        "all",
        True,
        20_000,
    )
    assert consuming["enable_auto_commit"] is False
    for options in (producing, consuming):
        assert options["bootstrap_servers"] == ["a:1", "b:2"]
        assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
        assert (options["ssl_cafile"], options["sasl_plain_password"]) == ("ca", "hush")
        assert options["reconnect_backoff_max_ms"] == 500
    assert "hush" not in repr(settings)


def test_how_topics_are_made() -> None:
    """States are compacted after the age, never deleted; news is deleted by age and share of the bytes."""
    settings = KafkaSettings(("a:1",), retention=Retention(Seconds(3600.0), 12 << 30))
    state, news, queue = (wanted_configs(settings, kind) for kind in (TopicKind.STATE, TopicKind.NEWS, TopicKind.QUEUE))
    assert (state["cleanup.policy"], state["min.compaction.lag.ms"]) == ("compact", "3600000")
    assert "retention.ms" not in state
    assert (news["cleanup.policy"], news["retention.ms"], news["retention.bytes"]) == (
        "delete",
        "3600000",
        str(1 << 30),
    )
    assert (queue["cleanup.policy"], "retention.bytes" in queue) == ("delete", False)
    assert {configs["message.timestamp.type"] for configs in (state, news, queue)} == {"LogAppendTime"}


def test_what_is_said_of_topics() -> None:
    """The missing first, with the remedy; then each problem by topic."""
    reports = [TopicReport("a", TopicKind.STATE, 3), TopicReport("b", TopicKind.NEWS),
               TopicReport("c", TopicKind.NEWS, 3, 1, ("it leaks; mend it",))]  # fmt: skip
    assert problems_of(reports) == ["missing: b; create them with: relume topics create", "c: it leaks; mend it"]
    assert common_partitions(reports) == 3
    assert common_partitions([*reports, TopicReport("d", TopicKind.NEWS, 4)]) is None
