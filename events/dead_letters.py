"""Dead letters: how they are made, and how a person lists them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Final

from events.envelope import AnyEnvelope, Envelope
from events.log import EventLog, Position, Query, Record
from events.names import Topic
from events.payload import Rejected
from events.types.letters import EventRejected
from events.units import Instant

SOURCE: Final = "relume/log"
RAW_BYTES: Final = 4096
"""How much of a refused record its letter repeats."""


def letter(rejected: Rejected, topic: str, raw: bytes, at: Instant, position: Position | None = None) -> AnyEnvelope:
    """The letter about one refused record.

    Its id follows from the record's position, or, for one that was refused on arrival, from what it said. So the log
    keeps one letter however often the record is read or sent again.
    """
    if position is None:
        name = hashlib.sha256(topic.encode() + b"\0" + raw).hexdigest()[:32]
    else:
        name = f"{position.topic}/{position.partition}/{position.offset}"
    data = EventRejected(
        topic=topic,
        partition=None if position is None else position.partition,
        offset=None if position is None else position.offset,
        reason=rejected.reason,
        type=rejected.type,
        source=rejected.source,
        raw=raw[:RAW_BYTES].decode(errors="backslashreplace"),
        raw_bytes=len(raw),
        at=at,
    )
    key = f"topic/{topic}"
    return Envelope(id=f"rejected/{name}", source=SOURCE, subject=key, key=key, time=at, data=data)


async def dead_letters(log: EventLog, topic: str | None = None, limit: int = 1000) -> AsyncIterator[Record]:
    """The dead letters in the log, oldest first, at most `limit`; only those about `topic` when one is given."""
    count = 0
    async for record in log.read(Query(Topic.DEAD_LETTERS)):
        data = record.envelope.data
        if isinstance(data, EventRejected) and topic in (None, data.topic):
            yield record
            count += 1
            if count == limit:
                return
