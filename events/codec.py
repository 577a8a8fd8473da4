"""Envelopes as CloudEvents 1.0 and back: structured JSON, and binary mode (Kafka: attributes in ``ce_`` headers).

Extensions: `sequence` (20 digits, so that it sorts as text, which its specification demands), `cause`, `epoch` (digits
as text, since a CloudEvents integer has 32 bits), `traceparent` (distributed tracing) and `partitionkey` (partitioning)
for our key. Decoding never raises: it gives the envelope, `Ignored` or `Rejected`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from events.described import Described
from events.envelope import AnyEnvelope, Envelope
from events.keys import default_key
from events.payload import (
    SERIALIZERS_RAISE,
    Ignored,
    Json,
    Rejected,
    Unencodable,
    decode_data,
    encode_data,
    find_shape,
    kind_of,
    refused,
    shown,
    why,
)
from events.units import Instant, parse_instant, write_instant

__all__ = [
    "MAX_EVENT_BYTES", "BinaryEvent", "Decoding", "Ignored", "Rejected", "Unencodable", "decode", "decode_structured",
    "encode_structured", "from_binary", "to_binary",
]  # fmt: skip

MAX_EVENT_BYTES: Final = 1 << 20
"""Largest event, whole: Kafka's brokers take 1 MiB by default (`message.max.bytes`)."""

_DATA_TYPE: Final = "application/json"
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Decoding = AnyEnvelope | Ignored | Rejected
"""What decoding gives. Match with ``isinstance(result, Envelope)``."""


def _instant(raw: object) -> object:
    return parse_instant(raw) if isinstance(raw, str) else raw


def _sequence(raw: object) -> int | None:
    """Ours are numbers. Others may be any text; it has no use here, so None."""
    return int(raw) if isinstance(raw, str) and _DIGITS.fullmatch(raw) else None


def _epoch(raw: object) -> object:
    return int(raw) if isinstance(raw, str) and _DIGITS.fullmatch(raw) else raw


def _traceparent(raw: object) -> str | None:
    """W3C Trace Context: a malformed traceparent is ignored."""
    return raw if isinstance(raw, str) and _TRACEPARENT.fullmatch(raw) else None


_Text = Annotated[str, Field(min_length=1, max_length=1024)]


class Attributes(Described, BaseModel):
    """The CloudEvents attributes that we read; others are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    specversion: Literal["1.0"]
    """The version of CloudEvents."""
    id: _Text
    """Unique within the source."""
    source: _Text
    """Who says so, such as relume/gateway/NAME."""
    type: _Text
    """The event's type with its version, such as relume.request.window.v1."""
    subject: _Text | None = None
    """Whom it is about, such as model/llama/revision/3/replica/llama-r3-0."""
    time: Annotated[float | None, BeforeValidator(_instant)] = None
    """When it happened, RFC 3339 with a zone."""
    datacontenttype: Annotated[str, Field(pattern=r"(?i)^\s*(application|text)/([\w.-]+\+)?json\s*(;.*)?$")] = (
        _DATA_TYPE
    )
    """The data is JSON."""
    partitionkey: _Text | None = None
    """The key: decides the partition and, on state topics, whose newest value this is."""
    sequence: Annotated[int | None, BeforeValidator(_sequence)] = None
    """Counts up by source; digits, sortable as text."""
    cause: _Text | None = None
    """The id of the event that led to this one."""
    epoch: Annotated[Annotated[int, Field(ge=0, lt=1 << 63)] | None, BeforeValidator(_epoch)] = None
    """Digits. Where a writer is fenced, readers refuse smaller epochs than they have seen."""
    traceparent: Annotated[str | None, BeforeValidator(_traceparent)] = None
    """W3C trace context."""


_BINARY: Final = ("ce_specversion", "ce_type")
"""Headers of which one at least is there in binary mode, in lower case."""

_HEADER_OF: Final = {
    name: "content-type" if name == "datacontenttype" else f"ce_{name}" for name in Attributes.model_fields
}
_CONTENT_TYPE: Final = ("content-type", _DATA_TYPE.encode())
_ATTRIBUTE_OF: Final = {header: name for name, header in _HEADER_OF.items()}


@dataclass(frozen=True, slots=True)
class BinaryEvent:
    """A CloudEvent in binary content mode: Kafka's record headers, key and value."""

    headers: tuple[tuple[str, bytes], ...]
    key: bytes
    data: bytes

    @property
    def size(self) -> int:
        """Bytes of headers and data."""
        size = len(self.data)
        for name, value in self.headers:
            size += len(name) + len(value)
        return size


def encode_structured(envelope: AnyEnvelope, limit: int = MAX_EVENT_BYTES) -> bytes:
    """The whole event as one JSON object; Unencodable when it cannot be, or is larger than `limit` bytes."""
    data = encode_data(envelope.data)
    try:
        event: dict[str, str | orjson.Fragment] = {**_attributes(envelope)}
        event["data"] = orjson.Fragment(data)
        raw = orjson.dumps(event)
    except SERIALIZERS_RAISE as error:
        raise refused(envelope.id, error) from error
    _check_size(len(raw), limit)
    return raw


def to_binary(envelope: AnyEnvelope, limit: int = MAX_EVENT_BYTES) -> BinaryEvent:
    """The event as headers, key and data; Unencodable when it cannot be, or is larger than `limit` bytes."""
    data = encode_data(envelope.data)
    try:
        attributes = _attributes(envelope)
        del attributes["datacontenttype"]
        headers = [(_HEADER_OF[name], text.encode()) for name, text in attributes.items()]
        headers.append(_CONTENT_TYPE)
        event = BinaryEvent(tuple(headers), envelope.key.encode(), data)
    except SERIALIZERS_RAISE as error:
        raise refused(envelope.id, error) from error
    _check_size(event.size, limit)
    return event


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise Unencodable(f"the event has {size} bytes; the most is {limit}")


def _attributes(envelope: AnyEnvelope) -> dict[str, str]:
    if not (envelope.id and envelope.source and envelope.key):
        raise ValueError("id, source and key must not be empty")
    attributes = {
        "specversion": "1.0",
        "id": envelope.id,
        "source": envelope.source,
        "type": kind_of(envelope.data).full_name,
        "time": write_instant(envelope.time),
        "datacontenttype": _DATA_TYPE,
        "partitionkey": envelope.key,
    }
    if envelope.subject:
        attributes["subject"] = envelope.subject
    if envelope.sequence is not None:
        attributes["sequence"] = f"{envelope.sequence:020d}"
    if envelope.cause is not None:
        attributes["cause"] = envelope.cause
    if envelope.epoch is not None:
        attributes["epoch"] = str(envelope.epoch)
    if envelope.traceparent is not None:
        attributes["traceparent"] = envelope.traceparent
    return attributes


def decode_structured(raw: bytes, received_at: Instant | None = None, limit: int = MAX_EVENT_BYTES) -> Decoding:
    """Read one JSON object. `received_at` stands in for a `time` that a foreign producer left out."""
    if len(raw) > limit:
        return Rejected(f"event: has {len(raw)} bytes; the most is {limit}")
    try:
        event = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Rejected(f"event: must be JSON ({error}), got {shown(raw)}")
    if not isinstance(event, dict):
        return Rejected(f"event: must be a JSON object, got {shown(event)}")
    data = event.pop("data", None)
    if data is None and "data_base64" in event:
        data = _from_base64(event.pop("data_base64"))
    return _open(event, data, received_at)


def from_binary(event: BinaryEvent, received_at: Instant | None = None, limit: int = MAX_EVENT_BYTES) -> Decoding:
    """Read headers, key and data. Names of headers are compared without case; other headers are ignored."""
    if event.size > limit:
        return Rejected(f"event: has {event.size} bytes; the most is {limit}")
    attributes = _read_headers(event.headers)
    if isinstance(attributes, Rejected):
        return attributes
    if "partitionkey" not in attributes and event.key:
        attributes["partitionkey"] = event.key.decode(errors="replace")
    return _open(attributes, _json(event.data), received_at)


def decode(event: BinaryEvent, received_at: Instant | None = None, limit: int = MAX_EVENT_BYTES) -> Decoding:
    """Read a record in whichever mode its headers say; without headers it is structured JSON."""
    for name, _ in event.headers:
        if name in _BINARY or name.lower() in _BINARY:
            return from_binary(event, received_at, limit)
    return decode_structured(event.data, received_at, limit)


def _read_headers(headers: Iterable[tuple[str, bytes]]) -> Json | Rejected:
    attributes: Json = {}
    for raw_name, value in headers:
        attribute = _ATTRIBUTE_OF.get(raw_name) or _attribute(raw_name.lower())
        if not attribute:
            continue
        if attribute in attributes:
            return Rejected(f"{raw_name.lower()}: must be given once, got another {shown(value)}")
        try:
            attributes[attribute] = value.decode()
        except UnicodeDecodeError:
            return Rejected(f"{raw_name.lower()}: must be UTF-8, got {shown(value)}")
    return attributes


def _attribute(name: str) -> str:
    """The attribute that a header tells; empty for a header that is not CloudEvents'."""
    if name == "content-type":
        return "datacontenttype"
    return name.removeprefix("ce_") if name.startswith("ce_") else ""


def _json(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Rejected(f"data: must be JSON ({error}), got {shown(raw)}")


def _from_base64(raw: object) -> object:
    if not isinstance(raw, str):
        return Rejected(f"data_base64: must be a string, got {shown(raw)}")
    try:
        return _json(base64.b64decode(raw, validate=True))
    except (binascii.Error, ValueError) as error:
        return Rejected(f"data_base64: must be Base64 ({error}), got {shown(raw)}")


def _open(attributes: Json, data: object, received_at: Instant | None) -> Decoding:
    """Check attributes, then type, then data; say of a rejected event as much as can be known."""
    try:
        read = Attributes.model_validate(attributes)
    except ValidationError as error:
        return _signed(Rejected(why(error)), attributes)
    shape = find_shape(read.type)
    if isinstance(shape, Ignored | Rejected):
        return shape if isinstance(shape, Ignored) else _signed(shape, attributes)
    value = data if isinstance(data, Rejected) else decode_data(shape, data)
    if isinstance(value, Rejected):
        return _signed(value, attributes)
    when, key = received_at if read.time is None else read.time, read.partitionkey or default_key(value)
    if when is None or key is None:
        missing = "time" if when is None else "partitionkey"
        return _signed(Rejected(f"{missing}: must be given, got nothing"), attributes)
    return Envelope(
        id=read.id, source=read.source, subject=read.subject or key, key=key, time=Instant(when), data=value,
        sequence=read.sequence, cause=read.cause, epoch=read.epoch, traceparent=read.traceparent,
    )  # fmt: skip


def _signed(rejected: Rejected, attributes: Json) -> Rejected:
    kind, source = (attributes.get(name) for name in ("type", "source"))
    return Rejected(
        rejected.reason, kind[:256] if isinstance(kind, str) else "", source[:256] if isinstance(source, str) else ""
    )
