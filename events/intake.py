"""Records of foreign producers: CloudEvents bytes in, an event in the log or a dead letter out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from events.codec import BinaryEvent, Ignored, Rejected, decode
from events.dead_letters import letter
from events.envelope import AnyEnvelope
from events.keys import default_key
from events.log import Position
from events.payload import kind_of
from events.units import Instant

Append = Callable[[Sequence[AnyEnvelope]], Awaitable[tuple[Position, ...]]]


async def take_in(append: Append, topic: str, raw: BinaryEvent, now: Instant) -> Position | Ignored | Rejected:
    """Append what `raw` says to `topic`, under the key that its data asks for; a refused one becomes a dead letter.

    Raises LogUnavailable and LogClosed: then nothing is known to have been written, and the same bytes may be given
    again.
    """
    found = judge(topic, raw, now)
    if isinstance(found, Ignored):
        return found
    if isinstance(found, Rejected):
        await append([letter(found, topic, raw.data, now)])
        return found
    return (await append([found]))[0]


def judge(topic: str, raw: BinaryEvent, now: Instant) -> AnyEnvelope | Ignored | Rejected:
    """The event that `raw` says, if it belongs on `topic`."""
    found = decode(raw, received_at=now)
    if isinstance(found, Ignored | Rejected):
        return found
    kind = kind_of(found.data)
    if kind.topic != topic:
        return Rejected(
            f"type: {kind.full_name} belongs on topic {kind.topic}, got {topic}", kind.full_name, found.source
        )
    key = default_key(found.data)
    return found if key in (None, found.key) else replace(found, key=key)
