"""Making envelopes."""

from __future__ import annotations

import pytest

from events.clock import SimulatedClock
from events.envelope import Envelope
from events.payload import Unencodable
from events.types.decisions import OwnershipTaken
from events.types.gateways import GatewayBeat
from events.types.grants import LeadershipTaken
from events.types.letters import EventRejected
from events.types.phases import ReplicaDrained, ReplicaSuspected
from events.types.replicas import CardsObserved
from events.types.requests import ActivationRequested, RequestWindow
from events.writer import Cause, EventWriter, boot_ids


@pytest.fixture
def writer() -> EventWriter:
    return EventWriter("relume/test", SimulatedClock(1000.0), iter("abcdef").__next__)


@pytest.mark.parametrize(
    ("data", "key", "subject"),
    [
        (ActivationRequested(model="m"), "model/m", "model/m"),
        (ReplicaDrained(model="m", replica="m-r1-0"), "model/m", "model/m/replica/m-r1-0"),
        (ReplicaSuspected(model="m", replica="m-r1-0", reason=""), "model/m", "model/m/replica/m-r1-0"),
        (RequestWindow(model="m", uid="u", revision=1, gateway="g", started_at=1, ended_at=2), "model/m", "model/m"),
        (CardsObserved(node="n", cpu=1, memory_bytes=1), "node/n", "node/n"),
        (GatewayBeat(gateway="g", boot="b"), "gateway/g", "gateway/g"),
        (OwnershipTaken(partition=3, owner="a"), "ownership/3", "ownership/3"),
        (LeadershipTaken(pool="p", leader="a"), "pool/p", "pool/p"),
        (EventRejected(topic="t", reason="r", at=1), "topic/t", "topic/t"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_default_keys_and_subjects(writer: EventWriter, data: object, key: str, subject: str) -> None:
    """What the data is about decides the key and the subject."""
    envelope = writer.envelope(data)
    assert (envelope.key, envelope.subject) == (key, subject)


def test_attributes(writer: EventWriter) -> None:
    """Ids from the source of ids, sequence from the clock upwards, time from the clock, the rest as given."""
    one = writer.envelope(ActivationRequested(model="m"), key="k", subject="s", cause="z", epoch=7)
    assert one == Envelope(
        id="a", source="relume/test", subject="s", key="k", time=one.time, data=ActivationRequested(model="m"),
        sequence=1_000_000_001, cause="z", epoch=7,
    )  # fmt: skip
    assert one.time == 1000.0
    two = writer.envelope(ActivationRequested(model="m"))
    assert (two.id, two.sequence) == ("b", 1_000_000_002)


def test_causes(writer: EventWriter) -> None:
    """An event that led here hands on its id and its trace."""
    first = writer.envelope(ActivationRequested(model="m"), cause=Cause(traceparent="00-a-b-01"))
    assert (first.cause, first.traceparent) == (None, "00-a-b-01")
    second = writer.envelope(ActivationRequested(model="m"), cause=first)
    assert (second.cause, second.traceparent) == (first.id, "00-a-b-01")


def test_what_cannot_be_written_is_refused_early(writer: EventWriter) -> None:
    """No event type, or no source: the caller hears of it at once."""
    with pytest.raises(Unencodable, match="not an event type"):
        writer.envelope("hello")
    with pytest.raises(ValueError, match="needs a source"):
        EventWriter("", SimulatedClock())


def test_ids_are_unique_over_starts() -> None:
    """Two starts of a process never give the same id."""
    one, two = boot_ids(), boot_ids()
    assert len({*(one() for _ in range(100)), *(two() for _ in range(100))}) == 200
