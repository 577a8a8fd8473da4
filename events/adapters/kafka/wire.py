"""Events as records of Kafka and back: binary-mode CloudEvents, key and partition by our partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from events.codec import BinaryEvent, Ignored, Rejected, to_binary
from events.envelope import AnyEnvelope
from events.intake import judge
from events.log import Position
from events.names import TOPIC_KINDS, TopicKind
from events.partitions import partition_of
from events.payload import kind_of
from events.units import Instant


class RawRecord(Protocol):
    """A record as kafka-python gives it. `timestamp` is in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


OURS: Final = "relume"
"""A header of what relume itself wrote: sound, so the tending reader need not decode it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be produced."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Stray:
    """A sound event in the wrong place: a foreign producer's key or partitioner is not ours. It is appended again."""

    envelope: AnyEnvelope


Finding = AnyEnvelope | Ignored | Rejected | Stray


def outgoing(envelope: AnyEnvelope, partitions: Mapping[str, int], limit: int) -> Outgoing:
    """The record that says `envelope`; Unencodable when there is none."""
    topic = str(kind_of(envelope.data).topic)
    event = to_binary(envelope, limit)
    partition = partition_of(envelope.key, partitions[topic])
    return Outgoing(topic, partition, event.key, event.data, [*event.headers, (OURS, b"1")])


def position_of(raw: RawRecord) -> Position:
    """Where it stands."""
    return Position(raw.topic, raw.partition, raw.offset)


def appended_at(raw: RawRecord) -> Instant:
    """When the broker appended it."""
    return Instant(raw.timestamp / 1000)


def ident_of(raw: RawRecord) -> tuple[str, str] | None:
    """(source, id) where the headers say them; None in structured mode."""
    source = ident = None
    for name, value in raw.headers:
        lower = name.lower()
        if lower == "ce_id":
            ident = value
        elif lower == "ce_source":
            source = value
    if source is None or ident is None:
        return None
    return source.decode(errors="replace"), ident.decode(errors="replace")


def is_ours(raw: RawRecord, partitions: int) -> bool:
    """Whether relume wrote it and it stands where it was put. (A mirror may have changed the partitions.)"""
    ours = any(name == OURS for name, _ in raw.headers)
    return ours and raw.key is not None and raw.partition == partition_of(raw.key.decode(errors="replace"), partitions)


def find(raw: RawRecord, partitions: int) -> Finding:
    """What a record says, and whether it stands where it belongs."""
    if raw.value is None:
        return Ignored("a tombstone")
    headers = tuple([(name, value or b"") for name, value in raw.headers])
    event = BinaryEvent(headers, raw.key or b"", raw.value)
    found = judge(raw.topic, event, appended_at(raw))
    if isinstance(found, Ignored | Rejected):
        return found
    misplaced = raw.partition != partition_of(found.key, partitions)
    # Compaction goes by the record's key: under another one it would hide a state, or never be replaced.
    misnamed = TOPIC_KINDS.get(raw.topic) is TopicKind.STATE and raw.key != found.key.encode()
    return Stray(found) if misplaced or misnamed else found
