"""The one place that makes envelopes: ids, sequence, time, default keys and subjects."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from events.clock import Clock
from events.envelope import AnyEnvelope, Envelope
from events.keys import default_key, default_subject
from events.payload import Unencodable, kind_of

D = TypeVar("D")

Ids = Callable[[], str]
"""Gives an id that no other call gives."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What led to an event: the id of an event, a W3C traceparent, or both."""

    id: str | None = None
    traceparent: str | None = None


def boot_ids() -> Ids:
    """``BOOT-N``: 64 random bits for this start of the process, and a count.

    (Neighbouring ids keep the log's unique index local, which random ids would spread over all its pages.)
    """
    boot, count = secrets.token_hex(8), itertools.count(1)
    return lambda: f"{boot}-{next(count):x}"


class EventWriter:
    """Makes the envelopes of one source, such as ``relume/gateway/NAME``. Used by one thread.

    `sequence` starts at the microseconds of the clock, so it counts up over restarts too.
    """

    def __init__(self, source: str, clock: Clock, ids: Ids | None = None) -> None:
        if not source:
            raise ValueError("an event needs a source, such as relume/gateway/NAME")
        self.source = source
        self._clock = clock
        self._next_id = boot_ids() if ids is None else ids
        self._sequence = int(clock.now() * 1_000_000)
        self.epoch: int | None = None
        """Of the leadership that this source writes its states for; None: it is not fenced."""

    def envelope(
        self,
        data: D,
        *,
        key: str | None = None,
        subject: str | None = None,
        cause: AnyEnvelope | Cause | str | None = None,
        epoch: int | None = None,
    ) -> Envelope[D]:
        """An event that says `data` happened now.

        `key` and `subject` follow from the data (its model, node, gateway, replica) unless given. `cause` may be the
        event that led here (its trace goes on), its id, or a `Cause`. Unencodable: no event type, or no key known.
        """
        kind = kind_of(data)
        known_key = default_key(data) if key is None else key
        if not known_key:
            raise Unencodable(f"{kind.full_name} has no key of its own; give one")
        led = _cause(cause)
        self._sequence += 1
        return Envelope(
            id=self._next_id(),
            source=self.source,
            subject=subject or default_subject(data, known_key),
            key=known_key,
            time=self._clock.now(),
            data=data,
            sequence=self._sequence,
            cause=led.id,
            epoch=epoch,
            traceparent=led.traceparent,
        )


_NO_CAUSE: Final = Cause()


def _cause(cause: AnyEnvelope | Cause | str | None) -> Cause:
    if cause is None:
        return _NO_CAUSE
    match cause:
        case Cause():
            return cause
        case Envelope():
            return Cause(cause.id, cause.traceparent)
        case _:
            return Cause(cause)
