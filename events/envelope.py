"""The envelope: CloudEvents 1.0 attributes around one typed piece of data."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Generic, TypeVar

from events.kinds import carrier
from events.units import Instant

D_co = TypeVar("D_co", covariant=True)


@carrier
class Envelope(Generic[D_co]):
    """An event: what happened (`data`), to whom (`subject`), when, told by whom.

    `source` and `id` together are unique: the same pair again is the same event. `key` decides the partition and, on
    state topics, whose newest value this is. `sequence` counts up by source. `cause` is the id of the event that led to
    this one. `epoch` stands where a writer is fenced: readers refuse smaller ones than they have seen.
    """

    _: KW_ONLY
    id: str
    source: str
    subject: str
    key: str
    time: Instant
    data: D_co
    sequence: int | None = None
    cause: str | None = None
    epoch: int | None = None
    traceparent: str | None = None


AnyEnvelope = Envelope[Any]
"""An envelope whose data may be of any registered kind: what logs carry."""
