"""Records of topics of work: what they say, and what is to be done about those that say nothing.

Here, unlike for news, nothing is left to the tending group: whatever stands in a place is that place's member's, and
what has to be appended because of it is appended in the same transaction as its offset, so once.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from events.adapters.kafka.wire import RawRecord, Stray, appended_at, find, ident_of, position_of
from events.codec import Ignored, Rejected
from events.dead_letters import letter
from events.kinds import KINDS
from events.names import TOPIC_KINDS, Topic, TopicKind, model_key
from events.types.inference import InferenceParked, InferenceRequested
from events.work import Mark, Unreadable, WorkItem

WORK: Final = frozenset({str(Topic.INFERENCE_REQUESTS), str(Topic.INFERENCE_PARKED)})
"""The topics that are read so. (`find` and the tending group know no difference; the tender leaves these alone.)"""

_REQUESTED: Final = KINDS[InferenceRequested].name + "."
_PARKED: Final = KINDS[InferenceParked].name + "."


def read_work(raw: RawRecord, partitions: Mapping[str, int]) -> WorkItem:
    """What a record says."""
    position, at = position_of(raw), appended_at(raw)
    if raw.value is None:
        return WorkItem(position, at, None)
    found = find(raw, partitions.get(raw.topic, 1))
    match found:
        case Stray(envelope=envelope):
            return WorkItem(position, at, None, amends=(envelope,))
        case Ignored() | Rejected():
            unreadable = _sender(raw, found)
            if unreadable is not None:
                return WorkItem(position, at, None, unreadable)
            rejected = found if isinstance(found, Rejected) else Rejected(found.reason, found.type)
            return WorkItem(position, at, None, amends=(letter(rejected, raw.topic, raw.value, at, position),))
    return WorkItem(position, at, found)


def _sender(raw: RawRecord, found: Ignored | Rejected) -> Unreadable | None:
    """Who waits for an answer to it; None: it is no request, or nobody is named."""
    ident = ident_of(raw)
    if ident is None or not all(ident) or max(map(len, ident)) > 1024:
        return None
    said = next((value or b"" for name, value in raw.headers if name.lower() == "ce_type"), b"").decode(
        errors="replace"
    )
    if not (found.type or said).startswith((_REQUESTED, _PARKED)):
        return None
    key = (raw.key or b"").decode(errors="replace").removeprefix(model_key(""))
    return Unreadable(*ident, key=key[:256] or "unknown", why=found.reason, newer=isinstance(found, Ignored))


def to_text(mark: Mark) -> str:
    """What is done beyond the committed offset, as its metadata: a bit an offset, base64. (Kafka's limit is 4 KiB.)"""
    bits = 0
    for offset in mark.done:
        bits |= 1 << (offset - mark.next_offset)
    if not bits:
        return ""
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


def from_text(next_offset: int, text: str) -> Mark:
    """The mark that was committed. Metadata that is not ours says that nothing is done beyond the offset."""
    try:
        bits = int.from_bytes(base64.b64decode(text or "", validate=True), "little")
    except ValueError:
        bits = 0
    done = tuple(next_offset + at for at in range(bits.bit_length()) if bits >> at & 1)
    return Mark(next_offset, done)


assert all(TOPIC_KINDS[topic] is TopicKind.QUEUE for topic in WORK)
