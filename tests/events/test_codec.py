"""Envelopes as CloudEvents and back."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from events.codec import (
    BinaryEvent,
    Ignored,
    Rejected,
    Unencodable,
    decode,
    decode_structured,
    encode_structured,
    from_binary,
    to_binary,
)
from events.envelope import AnyEnvelope, Envelope
from events.examples import EXAMPLES, example_envelope
from events.kinds import KINDS, Kind
from events.names import Topic
from events.payload import UPCASTERS
from events.types.all import BY_NAME, NEWEST
from events.types.metrics import SignalMeasured
from events.types.phases import ReplicaDrained
from events.units import Instant

DRAINED = example_envelope(ReplicaDrained(model="llama", replica="llama-r3-0"))


def wire(**changes: Any) -> bytes:
    """The structured form of `DRAINED` with attributes changed; None takes one away."""
    event = {**orjson.loads(encode_structured(DRAINED)), **changes}
    return orjson.dumps({name: value for name, value in event.items() if value is not None})


def test_examples_cover_every_kind() -> None:
    """There is exactly one example of each event type."""
    assert sorted(type(data).__name__ for data in EXAMPLES) == sorted(cls.__name__ for cls in KINDS)


@pytest.mark.parametrize("data", EXAMPLES, ids=lambda data: type(data).__name__)
def test_round_trip_of_every_kind(data: object) -> None:
    """Both modes give back the same envelope, every attribute included."""
    envelope = example_envelope(data)
    assert decode_structured(encode_structured(envelope)) == envelope
    assert from_binary(to_binary(envelope)) == envelope
    assert decode(to_binary(envelope)) == envelope
    assert decode(BinaryEvent((), b"", encode_structured(envelope))) == envelope


def test_the_wire_is_cloudevents() -> None:
    """Names, types and forms of the attributes are those of CloudEvents 1.0 and its extensions."""
    assert orjson.loads(encode_structured(DRAINED)) == {
        "specversion": "1.0",
        "id": "9b1d6e5f3a20c847-2a",
        "source": "relume/example",
        "type": "relume.replica.drained.v1",
        "subject": "model/llama/replica/llama-r3-0",
        "time": "2026-10-27T18:53:42.000000Z",
        "datacontenttype": "application/json",
        "partitionkey": "model/llama",
        "sequence": "00000000000000000042",
        "cause": "9b1d6e5f3a20c847-29",
        "epoch": "17",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "data": {"model": "llama", "replica": "llama-r3-0"},
    }
    binary = to_binary(DRAINED)
    assert binary.key == b"model/llama"
    assert orjson.loads(binary.data) == {"model": "llama", "replica": "llama-r3-0"}
    assert dict(binary.headers)["ce_type"] == b"relume.replica.drained.v1"
    assert dict(binary.headers)["content-type"] == b"application/json"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "event: must be JSON"),
        (b"[1]", "event: must be a JSON object, got [1]"),
        (wire(specversion="0.3"), "specversion: Input should be '1.0', got '0.3'"),
        (wire(id=None), "id: Field required"),
        (wire(id=""), "id: String should have at least 1 character, got ''"),
        (wire(source="x" * 2000), "source: String should have at most 1024 characters"),
        (wire(id=7), "id: Input should be a valid string, got 7"),
        (wire(time="yesterday"), "time: Value error, 'yesterday' is not an RFC 3339 time"),
        (wire(time="2026-10-27T18:53:42"), "time: Value error, '2026-10-27T18:53:42' has no time zone"),
        (wire(time=None), "time: must be given, got nothing"),
        (wire(epoch="new"), "epoch: Input should be a valid integer"),
        (wire(epoch="-1"), "epoch: Input should be greater than or equal to 0"),
        (wire(datacontenttype="text/xml"), "datacontenttype: String should match pattern"),
        (wire(type="com.acme.order.v1"), "type: 'com.acme.order.v1' is not an event type of relume"),
        (wire(type="relume.replica.drained"), "type: 'relume.replica.drained' is not an event type of relume"),
        (wire(data=None), "data: must be an object, got None"),
        (wire(data=[]), "data: must be an object, got []"),
        (wire(data={}), "data.model: Field required, got {} (and 1 more)"),
        (wire(data={"model": "m", "replica": 7}), "data.replica: Input should be a valid string, got 7"),
        (wire(data=None, data_base64="?"), "data_base64: must be Base64"),
        (wire(data=None, data_base64=5), "data_base64: must be a string, got 5"),
        (wire(data=None, data_base64="e30x"), "data: must be JSON"),
    ],
)  # fmt: skip
def test_reasons_of_refusal(raw: bytes, reason: str) -> None:
    """A refused event is told by path, rule and value."""
    found = decode_structured(raw)
    assert isinstance(found, Rejected)
    assert found.reason.startswith(reason)


def test_refusals_name_type_and_source() -> None:
    """Whoever reads dead letters sees who sent what."""
    found = decode_structured(wire(data={}))
    assert isinstance(found, Rejected)
    assert (found.type, found.source) == ("relume.replica.drained.v1", "relume/example")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("ce_id", b"a"), ("CE_ID", b"b")], "ce_id: must be given once"),
        ([("ce_id", b"\xff")], "ce_id: must be UTF-8"),
        ([("ce_id", b"a")], "specversion: Field required"),
    ],
)
def test_refused_headers(headers: list[tuple[str, bytes]], reason: str) -> None:
    """Headers that contradict each other or are no text are refused."""
    found = from_binary(BinaryEvent(tuple(headers), b"", b"{}"))
    assert isinstance(found, Rejected)
    assert found.reason.startswith(reason)


def test_what_a_foreign_producer_may_leave_out() -> None:
    """Without time, key and subject: the time of receipt, and the key of the model."""
    raw = wire(time=None, partitionkey=None, subject=None, sequence="first", traceparent="broken", comment="hi")
    found = decode_structured(raw, received_at=Instant(5.0))
    assert isinstance(found, Envelope)
    assert (found.time, found.key, found.subject) == (5.0, "model/llama", "model/llama")
    assert (found.sequence, found.traceparent) == (None, None)


def test_data_in_base64() -> None:
    """Producers that send their JSON as bytes use ``data_base64``."""
    data = base64.b64encode(b'{"model": "llama", "replica": "llama-r3-0"}').decode()
    assert decode_structured(wire(data=None, data_base64=data)) == DRAINED


def test_kafka_key_stands_in_for_the_partition_key() -> None:
    """In binary mode the record's key is the key unless a header says otherwise."""
    binary = to_binary(DRAINED)
    headers = tuple(header for header in binary.headers if header[0] != "ce_partitionkey")
    found = from_binary(BinaryEvent(headers, b"model/other", binary.data))
    assert isinstance(found, Envelope)
    assert found.key == "model/other"


@pytest.mark.parametrize("kind", ["relume.replica.drained.v2", "relume.weights.melted.v1"])
def test_newer_and_unknown_events_of_ours_are_ignored(kind: str) -> None:
    """Two releases run side by side: what the newer one says is no error to the older one."""
    assert isinstance(decode_structured(wire(type=kind)), Ignored)


def test_unknown_fields_are_ignored() -> None:
    """A newer release may add fields within a version."""
    assert decode_structured(wire(data={"model": "llama", "replica": "llama-r3-0", "mood": "fine"})) == DRAINED


def test_size_bound() -> None:
    """An event over the bound is neither read nor written."""
    large = replace(DRAINED, data=ReplicaDrained(model="m" * 2000, replica="r"))
    raw = encode_structured(large)
    assert isinstance(decode_structured(raw, limit=len(raw)), Envelope)
    found = decode_structured(raw, limit=len(raw) - 1)
    assert isinstance(found, Rejected)
    assert "the most is" in found.reason
    assert isinstance(from_binary(to_binary(large), limit=1000), Rejected)
    for write in (encode_structured, to_binary):
        with pytest.raises(Unencodable, match="the most is 1000"):
            write(large, 1000)


@pytest.mark.parametrize(
    "envelope",
    [
        replace(DRAINED, data=SignalMeasured(model="m", name="n", value=math.nan)),
        replace(DRAINED, data=SignalMeasured(model="m", name="n", value=math.inf)),
        replace(DRAINED, data=ReplicaDrained(model="\ud800", replica="r")),
        replace(DRAINED, data=ReplicaDrained(model=7, replica="r")),  # type: ignore[arg-type]  # the caller's mistake
        replace(DRAINED, data="drained"),
        replace(DRAINED, id=""),
        replace(DRAINED, id="\ud800"),
        replace(DRAINED, time=Instant(math.nan)),
        replace(DRAINED, time=Instant(1e300)),
    ],
    ids=["nan", "infinity", "surrogate", "wrong type", "no event", "no id", "surrogate id", "no time", "end of time"],
)
@pytest.mark.parametrize("write", [encode_structured, to_binary])
def test_what_cannot_be_written_is_refused(write: Callable[[AnyEnvelope], object], envelope: AnyEnvelope) -> None:
    """The writer hears of it, not the reader."""
    with pytest.raises(Unencodable):
        write(envelope)


def test_words_like_nan_may_be_said() -> None:
    """Only numbers are refused, not texts about them."""
    envelope = replace(DRAINED, data=SignalMeasured(model="m", name="NaN Infinity", value=1.0))
    assert decode_structured(encode_structured(envelope)) == envelope


@pytest.fixture
def third_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release in which `relume.replica.drained` is at version 3: v2 renamed `replica`, v3 took it back."""
    newest = Kind("relume.replica.drained", 3, Topic.PHASES, ReplicaDrained)
    monkeypatch.setitem(BY_NAME, ("relume.replica.drained", 3), newest)
    monkeypatch.setitem(NEWEST, "relume.replica.drained", 3)
    steps: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
        1: lambda old: {"model": old["model"], "who": old["replica"]},
        2: lambda old: {"model": old["model"], "replica": old["who"] + "!"},
    }
    for version, step in steps.items():
        monkeypatch.setitem(UPCASTERS, ("relume.replica.drained", version), step)


@pytest.mark.usefixtures("third_version")
def test_upcasters_are_chained() -> None:
    """Old data goes through every version up to the newest, and is checked at the ends."""
    found = decode_structured(wire())
    assert isinstance(found, Envelope)
    assert found.data == ReplicaDrained(model="llama", replica="llama-r3-0!")
    middle = decode_structured(wire(type="relume.replica.drained.v2", data={"model": "m", "who": "r"}))
    assert isinstance(middle, Envelope)
    assert middle.data == ReplicaDrained(model="m", replica="r!")
    assert isinstance(decode_structured(wire(type="relume.replica.drained.v4")), Ignored)


@pytest.mark.usefixtures("third_version")
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (wire(data={"model": "m"}), "data.replica: Field required"),
        (
            wire(type="relume.replica.drained.v2", data={}),
            "data: relume.replica.drained.v2 could not be turned into v3",
        ),
        (wire(type="relume.replica.drained.v2", data=[]), "data: must be an object"),
    ],
    ids=["old data is checked", "upcaster fails", "no object"],
)
def test_broken_old_data_is_rejected(raw: bytes, reason: str) -> None:
    """What an upcaster cannot use is refused with the reason."""
    found = decode_structured(raw)
    assert isinstance(found, Rejected)
    assert found.reason.startswith(reason)


def test_too_old_data_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an upcaster there is no way to the newest version."""
    monkeypatch.setitem(NEWEST, "relume.replica.drained", 2)
    found = decode_structured(wire())
    assert isinstance(found, Rejected)
    assert "too old" in found.reason
