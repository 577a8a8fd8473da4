"""What waits to be produced and what is in flight, with its bounds; shared by the loop, the producer's thread and the
client's."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from events.adapters.kafka.outgoing import Answer, Append, Outcome, Sent
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.codec import Unencodable
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogUnavailable, Position

SILENT: Final = 3.0
"""Seconds without an acknowledgement, while something is in flight, after which the brokers count as away."""


OFFERS: Final = 64
"""Most offers of one turn: an append that comes meanwhile waits for these, about 6 ms."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be encoded and sent together."""

    append: Append | None
    events: tuple[AnyEnvelope, ...]


@dataclass(slots=True)
class _Counts:
    """Events that were taken and have no answer yet."""

    appends: int = 0
    offers: int = 0


@dataclass(slots=True)
class _Flight:
    """By serial number: what the client has, and since when."""

    sent: dict[int, tuple[Sent, float]] = field(default_factory=dict)
    serials: itertools.count[int] = field(default_factory=itertools.count)


class Backlog:
    """`tell` is called, under the lock, when the loop should `take` what happened. Threads wait on `changed`."""

    def __init__(self, settings: KafkaSettings, tell: Callable[[], None]) -> None:
        self._settings = settings
        self._tell = tell
        self._clock = SystemClock()
        self._appends: deque[Append] = deque()
        self._offers: deque[AnyEnvelope] = deque()
        self._waiting = _Counts()
        self._flight = _Flight()
        self._outcome = Outcome()
        self._telling = False
        self.changed = threading.Condition()

    # The loop's side.

    def submit(self, append: Append) -> bool:
        """Take an append; False when too many wait."""
        with self.changed:
            if self._waiting.appends + len(append.events) > self._settings.append_bound:
                return False
            self._waiting.appends += len(append.events)
            self._appends.append(append)
            self.changed.notify_all()
            return True

    def offer(self, envelope: AnyEnvelope) -> bool:
        """Take an offer; False when too many wait."""
        with self.changed:
            if self._waiting.offers >= self._settings.offer_bound:
                return False
            self._waiting.offers += 1
            self._offers.append(envelope)
            self.changed.notify_all()
            return True

    def take(self) -> Outcome:
        """What happened since the last call."""
        with self.changed:
            outcome, self._outcome, self._telling = self._outcome, Outcome(), False
            return outcome

    def depth(self) -> int:
        """Events that wait or are in flight."""
        return self._waiting.appends + self._waiting.offers

    def silent_for(self) -> float:
        """Seconds that the oldest record in flight has waited; 0.0 when there is none."""
        with self.changed:
            oldest = next(iter(self._flight.sent.values()), None)
            return 0.0 if oldest is None else self._clock.now() - oldest[1]

    # The producer's thread; all with the lock held or taken here.

    def empty(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not (self._appends or self._offers or self._flight.sent)

    def next(self) -> Work | None:
        """The next work, appends first; None when there is none, or no room in flight."""
        while len(self._flight.sent) < self._settings.in_flight_bound:
            if self._appends:
                append = self._appends.popleft()
                if not append.abandoned:
                    return Work(append, append.events)
                self.answer(append, LogUnavailable("nobody waited for it any more"))
            elif self._offers:
                room = self._settings.in_flight_bound - len(self._flight.sent)
                count = min(len(self._offers), room, OFFERS)
                return Work(None, tuple([self._offers.popleft() for _ in range(count)]))
            else:
                return None
        return None

    def put_back(self, events: tuple[AnyEnvelope, ...]) -> None:
        """Offers that were taken and not sent wait again, in front. (Those in flight go in front of them: `ground`.)"""
        with self.changed:
            self._offers.extendleft(reversed(events))

    def fly(self, sent: Sent) -> int:
        """A record is handed to the client; its serial number."""
        with self.changed:
            serial = next(self._flight.serials)
            self._flight.sent[serial] = (sent, self._clock.now())
            return serial

    def flying(self, serial: int) -> Sent | None:
        """The record, while nothing is known of it."""
        found = self._flight.sent.get(serial)
        return None if found is None else found[0]

    def acknowledged(self, serial: int, position: Position) -> None:
        """It is durable."""
        full = len(self._flight.sent) >= self._settings.in_flight_bound
        sent, _ = self._flight.sent.pop(serial)
        self._outcome.appended += 1
        if sent.append is None:
            self._waiting.offers -= 1
        elif sent.append.take(sent.index, position):
            self.answer(sent.append, sent.append.answer())
        if full or not self._flight.sent:
            self.changed.notify_all()  # else nobody waits for this: waking a thread for each record costs the most
        self._tell_loop()

    def refuse(self, append: Append | None, error: Unencodable) -> None:
        """What can never be written: the appender hears why; an offer is counted."""
        if append is None:
            self._waiting.offers -= 1
            self._outcome.unencodable += 1
        else:
            self.answer(append, error)
        self.happened()

    def refused(self, serial: int, error: Unencodable) -> None:
        """The broker will never take this record."""
        sent, _ = self._flight.sent.pop(serial)
        self.refuse(sent.append, error)

    def ground(self, error: LogUnavailable) -> None:
        """Nothing is known of all that is in flight: appenders hear so, offers wait again."""
        flight, self._flight.sent = self._flight.sent, {}
        failed: dict[int, Append] = {}
        for sent, _ in reversed(flight.values()):
            if sent.append is None:
                self._offers.appendleft(sent.envelope)
            else:
                failed[sent.append.token] = sent.append
        for append in failed.values():
            self.answer(append, error)
        self._outcome.remade += 1
        self.happened()

    def give_up(self) -> None:
        """The log is closed: appenders hear so, offers are lost."""
        appends = {sent.append.token: sent.append for sent, _ in self._flight.sent.values() if sent.append is not None}
        for append in (*appends.values(), *self._appends):
            self.answer(append, LogClosed("the log was closed"))
        self._outcome.lost += self._waiting.offers
        self._waiting.offers = 0
        self._appends.clear()
        self._offers.clear()
        self._flight.sent.clear()
        self.happened()

    def answer(self, append: Append, answer: Answer) -> None:
        """Once."""
        if not append.answered:
            append.answered = True
            self._waiting.appends -= len(append.events)
            self._outcome.answers.append((append.token, answer))

    def happened(self) -> None:
        """Let the loop, and who waits for room, know."""
        self.changed.notify_all()
        self._tell_loop()

    def _tell_loop(self) -> None:
        if not self._telling:
            self._telling = True
            self._outcome.groups += 1
            self._tell()
