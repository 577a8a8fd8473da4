"""What becomes of the records that one reader gets: delivered, or left out and why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from events.adapters.kafka.window import Window
from events.adapters.kafka.wire import Finding, RawRecord, Stray, appended_at, find, is_ours, position_of
from events.adapters.store import Place
from events.codec import Ignored, Rejected
from events.dead_letters import letter
from events.log import Position, Record
from events.names import TOPIC_KINDS, TopicKind
from events.types.decisions import OwnershipTaken
from events.types.grants import LeadershipTaken
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

SEEN: Final = 16_384
"""Events by which one reader knows a repetition again. Repetitions are near one another: they come of a producer that
was made anew (at most `in_flight_bound` events) and of strays told twice."""

STALE: Final = Seconds(300.0)
"""News that strayed longer ago than this is not put right: it would be taken for the demand of now."""


class Opener(Protocol):
    """Turns what Kafka gives into what is delivered."""

    def open(self, raw: RawRecord, found: Finding | None = None) -> Record | None:
        """The record to be delivered; None leaves it out. `found`: what `find` says of it, where that is known."""


@dataclass(slots=True)
class Reading:
    """For followers: sound events where they belong, each once. The tending reader tells of the others."""

    partitions: Mapping[str, int]
    repeated: Callable[[], None]
    _seen: Window[Position] = field(default_factory=lambda: Window(SEEN))
    _times: dict[Place, Instant] = field(default_factory=dict)

    def open(self, raw: RawRecord, found: Finding | None = None) -> Record | None:
        found = find(raw, self.partitions.get(raw.topic, 1)) if found is None else found
        if isinstance(found, Ignored | Rejected | Stray):
            return None
        ident, position = (found.source, found.id), position_of(raw)
        known = self._seen.get(ident)
        if known is not None and known != position:  # the same position: a group's records are given again
            self.repeated()
            return None
        self._seen.put(ident, position)
        return Record(position, self._time(raw), found)

    def _time(self, raw: RawRecord) -> Instant:
        """The broker's clock may be set back; the log's time is not."""
        place = (raw.topic, raw.partition)
        time = self._times[place] = max(self._times.get(place, Instant(0.0)), appended_at(raw))
        return time


@dataclass(frozen=True, slots=True)
class Guarded:
    """An opener that never fails: what another one fails at is a fault of ours, and costs its reader that one record,
    not those that were polled with it."""

    opener: Opener

    def open(self, raw: RawRecord, found: Finding | None = None) -> Record | None:
        try:
            return self.opener.open(raw, found)
        except Exception:
            logger.exception("%s cannot be opened and is left out", position_of(raw))
            return None


@dataclass(slots=True)
class Tending:
    """For the tending reader: what has to be appended because of a record that nobody else delivers."""

    partitions: Mapping[str, int]
    now: Callable[[], Instant]
    ignored: int = 0
    rejected: int = 0
    strays: int = 0
    stale: int = 0
    void: int = 0

    def open(self, raw: RawRecord, found: Finding | None = None) -> Record | None:
        """A letter about what is not readable; a stray under its right key. Sound records need nothing."""
        partitions = self.partitions.get(raw.topic, 1)
        if is_ours(raw, partitions):
            return None
        found = find(raw, partitions) if found is None else found
        at, position = appended_at(raw), position_of(raw)
        match found:
            case Rejected():
                self.rejected += 1
                return Record(position, at, letter(found, raw.topic, raw.value or b"", at, position))
            case Ignored():
                self.ignored += raw.value is not None
            case Stray(envelope=envelope):
                if envelope.epoch is not None or isinstance(envelope.data, OwnershipTaken | LeadershipTaken):
                    self.void += 1  # an epoch is an offset in the partition that it was written for
                    return None
                if TOPIC_KINDS.get(raw.topic) is TopicKind.NEWS and self.now() - at > STALE:
                    self.stale += 1
                    return None
                self.strays += 1
                return Record(position, at, envelope)
        return None
