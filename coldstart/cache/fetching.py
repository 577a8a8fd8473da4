"""One fetch: chunks of one or more files over several connections to preallocated files, each chunk with its BLAKE3,
each file with its SHA-256.

Threads, since reading, hashing and writing give up the interpreter's lock: measured, threads with `http.client` and
`readinto` cost half of aiohttp's CPU a GiB and a tenth of httpx's (field note on cold starts, §5). Memory is bounded by
connections and waiting chunks, whatever the size and number of the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from blake3 import blake3

from coldstart.cache.cores import Cores
from coldstart.cache.partial import Partial
from coldstart.cache.watch import Watch
from coldstart.core.cache.busy import Stage
from coldstart.core.cache.connections import Connections, Hunger, Spent, takes_in
from coldstart.core.cache.content import Described, Span
from coldstart.core.cache.errors import Retryable, SourceUnavailable, Throttled
from coldstart.core.cache.pace import Patience
from coldstart.core.cache.plan import Board, Cursors
from coldstart.core.cache.policy import FetchPolicy
from coldstart.ports import Channel, Source
from events.clock import Clock
from events.units import Instant, Seconds, format_duration

_LOOK = 0.05
"""Seconds between looks for what nobody tells of: a late chunk, and the end of a pause that the source asked for."""

_LONG = 1.0
"""Seconds that a reader waits for its turn before it looks by itself. It is told: this bounds what a mistake costs."""

_HEARD = 0.2
"""Seconds in which a fetch that brings nothing hears that it is to end."""

_GRACE = 0.25
"""Seconds that a fetch waits for readers that it has broken off; they touch nothing of it any more."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a fetch, and where it is written to."""

    of: Described
    partial: Partial


@dataclass(frozen=True, slots=True)
class Turn:
    """A chunk to read, and a connection for it. `trial`: as `Connections.trial`."""

    channel: Channel
    span: Span
    trial: int


@dataclass(frozen=True, slots=True)
class Told:
    """Who follows a fetch: `verified(bytes)` of each chunk; `whole(part, digest)` when a file's SHA-256 is known;
    `check()` while nothing comes. What they raise ends the fetch."""

    verified: Callable[[int], None]
    whole: Callable[[Part, str], None]
    check: Callable[[], None] = lambda: None


class Fetch:
    """Fills partial files from a source. `run` once."""

    def __init__(
        self, source: Source, parts: tuple[Part, ...], policy: FetchPolicy, clock: Clock, watch: Watch | None = None
    ) -> None:
        self._watch = Watch(clock) if watch is None else watch
        self._source = source
        self._parts = parts
        self._policy = policy
        self._clock = clock
        self._room = min(policy.chunk_bytes, max((part.of.bytes for part in parts), default=0))
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        """For the digest, and for those who wait after a failure."""
        self._turns = threading.Condition(lock)
        """For readers without a connection or a chunk. Apart, so that a chunk wakes one reader and not all."""
        self._connections = Connections(policy)
        self._cores = Cores(clock)
        self._spent = Spent()
        self._error: BaseException | None = None
        self._channels: list[Channel] = []
        self._idle: list[Channel] = []
        """Connections that nobody reads over; the one used last is the next."""
        self._crew: dict[int, threading.Thread] = {}
        self._reading: dict[int, Channel] = {}
        """Connections that somebody reads over. Who writes has given it back: another reads over it meanwhile."""
        self._served: set[int] = set()
        """Connections that brought anything yet."""
        self._kept: dict[int, mmap.mmap] = {}
        self._spare: list[mmap.mmap] = []
        self._writing = 0
        self._hunger = Hunger(clock.now())
        self._paused_until = Instant(0.0)
        """Who asks for patience asks it of all connections."""
        self.transferred = 0
        """Bytes that the source gave."""

    def run(self, chunks: tuple[Span, ...], told: Told) -> None:
        """Fetch what is not there yet. Raises a CacheError, VersionMoved, or RangesIgnored (then `fetch_stream`)."""
        scratch = memoryview(_buffer(self._room))
        there = self._recover(chunks, scratch)
        self._board = Board(chunks, there)
        self._cursors = Cursors(chunks, self._policy.chunk_bytes)
        self._patience = Patience(self._policy, len(chunks))
        self._told = told
        self._until = Instant(self._clock.now() + self._policy.patience)
        for index in there:
            self._cursors.add(chunks[index])
            told.verified(chunks[index].length)
        try:
            with self._changed:
                self._hunger.began(self._clock.now())
                self._staff()
            self._hash(scratch)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._dismiss()

    def _recover(self, chunks: tuple[Span, ...], scratch: memoryview) -> tuple[int, ...]:
        own: dict[int, list[Span]] = {file: [] for file in range(len(self._parts))}
        for span in chunks:
            own[span.file].append(span)
        there = [i for file, part in enumerate(self._parts) for i in part.partial.recover(tuple(own[file]), scratch)]
        return tuple(sorted(there))

    def _hash(self, scratch: memoryview) -> None:
        """The in-order digests follow the chunks while others are still on their way."""
        wholes = [hashlib.sha256() for _ in self._parts]
        for part, whole in zip(self._parts, wholes, strict=True):
            if not part.of.bytes:
                self._told.whole(part, f"sha256:{whole.hexdigest()}")
        while (span := self._next()) is not None:
            part, whole = self._parts[span.file], wholes[span.file]
            with self._changed:
                kept = self._kept.pop(span.index, None)
            cpu = time.thread_time()
            with self._watch.at(Stage.DIGEST):
                if kept is None:
                    part.partial.read(span, scratch)
                whole.update(scratch[: span.length] if kept is None else memoryview(kept)[: span.length])
            with self._changed:
                self._spent = self._spent.digesting(time.thread_time() - cpu, span.length)
                if kept is not None:
                    self._spare.append(kept)
            if self._cursors.ended(span.file):
                self._told.whole(part, f"sha256:{whole.hexdigest()}")

    def _next(self) -> Span | None:
        """The next chunk for a digest, as soon as there is one; None: all were fed."""
        with self._changed:
            while (span := self._cursors.advance()) is None and not self._cursors.done and self._error is None:
                self._hunger.began(self._clock.now())
                self._changed.wait(min(_HEARD, self._policy.patience))
                self._told.check()
                if self._clock.now() > self._until:
                    raise late(self._source, self._policy)
            self._hunger.ended(self._clock.now())
            if self._error is not None:
                raise self._error
            if self._cursors.backlog == self._policy.ahead_chunks - 1:
                self._turns.notify(self._free())  # readers waited for the digest
            return span

    def _staff(self) -> None:
        """One reader more than connections: while one writes, there is another for its connection. Called under the
        lock."""
        for number in range(min(self._connections.allowed + 1, self._board.left)):
            if number not in self._crew:
                reader = threading.Thread(target=self._reader, args=(number,), name=f"weights-{number}", daemon=True)
                try:
                    reader.start()
                except RuntimeError:  # the system gives no more threads
                    if not self._crew:
                        raise
                    return  # those that there are do it
                self._crew[number] = reader

    def _free(self) -> int:
        """Connections that nobody reads over."""
        return max(0, self._connections.allowed - len(self._reading))

    def _reader(self, number: int) -> None:
        buffer: mmap.mmap | None = None
        try:
            while (turn := self._turn(number)) is not None:
                buffer = self._one(turn, _buffer(self._room) if buffer is None else buffer)
        except Exception as error:  # noqa: BLE001 - told to the one who waits for the fetch, by `_hash`
            self._fail(error)

    def _turn(self, number: int) -> Turn | None:
        """A connection and the next chunk for it; None: the fetch is over, or there are fewer connections now."""
        with self._changed:
            while self._error is None and not self._board.done:
                if number > self._connections.allowed:
                    del self._crew[number]
                    self._turns.notify()  # it may have been woken instead of one who stays
                    return None
                wait, now = _LONG, self._clock.now()
                if now < self._paused_until:
                    wait = _LOOK
                elif self._free() and self._cursors.backlog < self._policy.ahead_chunks:
                    span = self._board.take(now, self._policy.hedge_after)
                    if span is not None:
                        return Turn(self._connection(), span, self._connections.trial)
                    wait = _LOOK
                self._turns.wait(wait)
        return None

    def _connection(self) -> Channel:
        """One that nobody reads over. There are never more than were allowed at a time."""
        if self._idle:
            channel = self._idle.pop()
        else:
            channel = self._source.connect()
            self._channels.append(channel)
        self._reading[id(channel)] = channel
        return channel

    def _give_back(self, channel: Channel, *, failed: bool = False) -> None:
        """Another may read over it. One that failed is not kept where there are others enough: those that are open may
        be all that the source serves."""
        with self._changed:
            if self._reading.pop(id(channel), None) is not None:
                if failed and len(self._channels) > self._connections.allowed:
                    self._drop(channel)
                else:
                    self._idle.append(channel)
            self._turns.notify()

    def _one(self, turn: Turn, buffer: mmap.mmap) -> mmap.mmap | None:
        """Read one chunk; the buffer for the next. After a failure, wait as long as patience says."""
        channel, span = turn.channel, turn.span
        part = self._parts[span.file]
        view = memoryview(buffer)[: span.length]
        began, cpu = self._clock.now(), time.thread_time()
        try:
            with self._watch.at(Stage.NETWORK):
                channel.read(span, part.of, view)
        except Retryable as error:
            self._again(turn, error)
            self._give_back(channel, failed=True)  # not before: the wait is the connection's
            return buffer
        self._give_back(channel)
        speed = span.length / max(1e-6, self._clock.now() - began)
        digest = blake3(view).hexdigest()
        read = time.thread_time() - cpu
        if not self._claimed(turn, speed, read):
            return buffer
        try:
            with self._watch.at(Stage.DISK):
                part.partial.write(span, view)
            view.release()
            return self._written(span, digest, buffer)
        finally:
            with self._changed:
                self._writing -= 1
                self._spent = self._spent.reading(time.thread_time() - cpu - read, 0)
                self._changed.notify_all()
                if self._board.done:
                    self._turns.notify_all()

    def _claimed(self, turn: Turn, speed: float, cpu: float) -> bool:
        """Whether this reader is the one to write the chunk."""
        span = turn.span
        with self._changed:
            self.transferred += span.length
            if turn.channel in self._channels:
                self._served.add(id(turn.channel))
            self._patience.came()
            self._spent = self._spent.reading(cpu, span.length)
            if 2 * span.length >= self._room:  # what a small one takes tells of the way to the source, not of its width
                self._more(speed, id(turn.channel))
            first = self._error is None and self._board.claim(span, self._clock.now())
            self._writing += first
            return first

    def _more(self, speed: float, by: int) -> None:
        """Whether more connections are of use. Called under the lock."""
        if self._connections.came(speed, by):
            now = self._clock.now()
            brought = self._connections.brought
            self._connections.judge(takes_in(self._spent, self._cores.to_be_had()), self._hunger.share(now), now)
            if len(self._reading) > self._connections.allowed:
                self._let_go(brought)
            self._staff()
            self._turns.notify(self._free())

    def _let_go(self, brought: frozenset[int]) -> None:
        """There are fewer now: not those that wait, in the places of others, for what a server does not send them. As
        many as are too many, and of those that brought nothing in this round first those that never brought anything.
        """
        idle = sorted(self._reading.keys() - brought, key=lambda key: key in self._served)
        for key in idle[: len(self._channels) - self._connections.allowed]:
            self._drop(self._reading.pop(key))

    def _drop(self, channel: Channel) -> None:
        self._channels.remove(channel)
        self._served.discard(id(channel))
        channel.close()

    def _written(self, span: Span, digest: str, buffer: mmap.mmap) -> mmap.mmap | None:
        """The chunk is there. What is in memory of it is kept for the digest, as long as there is room for that."""
        with self._changed:
            self._parts[span.file].partial.record(span, digest)
            keep = len(self._kept) < self._policy.waiting_chunks
            if keep:
                self._kept[span.index] = buffer
            self._cursors.add(span)
            self._told.verified(span.length)
            if not keep:
                return buffer
            return self._spare.pop() if self._spare else None

    def _again(self, turn: Turn, error: Retryable) -> None:
        with self._changed:
            if self._error is not None or self._board.done:
                return
            self._board.give_back(turn.span)
            self._turns.notify()
            if id(turn.channel) not in self._reading:
                return  # it was let go, which says nothing of the source
            wanted = error.retry_after if isinstance(error, Throttled) else None
            wait: Seconds | None
            if self._connections.refused(self._clock.now(), turn.trial, wanted):
                # No failure; those that stay do not wait for it, and one of them that was hit looks again soon.
                wait, wanted = Seconds(0.0 if turn.trial > self._connections.allowed else _LOOK), None
            else:
                wait = self._patience.failed(wanted, random.random())  # noqa: S311 - jitter, no secret
            if wait is None:
                raise SourceUnavailable(self._source.shown(), f"{error} (and no retries are left)")
            if wanted is not None:
                self._paused_until = Instant(self._clock.now() + wait)
            self._changed.wait_for(lambda: self._error is not None or self._board.done, wait)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
        self._break_off()

    def _break_off(self) -> None:
        """Readers that are in the middle of something nobody needs any more."""
        with self._changed:
            channels = list(self._channels)
            self._changed.notify_all()
            self._turns.notify_all()
        for channel in channels:
            channel.close()

    def _dismiss(self) -> None:
        """Nobody writes any more when this returns. A reader whose source cannot be broken off may end later."""
        self._break_off()
        with self._changed:
            self._changed.wait_for(lambda: not self._writing)
            crew = list(self._crew.values())
        until = self._clock.now() + _GRACE
        for thread in crew:
            thread.join(max(0.0, until - self._clock.now()))


def _buffer(length: int) -> mmap.mmap:
    """Room for a chunk, in huge pages where the system has them: touching it costs 4 page faults instead of 2,048.

    Private, since shared memory (the default) gets no huge pages unless the system is set up for that.
    """
    made = mmap.mmap(-1, max(1, length), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            made.madvise(mmap.MADV_HUGEPAGE)
    return made


def late(source: Source, policy: FetchPolicy) -> SourceUnavailable:
    """The fetch took longer than patience has."""
    return SourceUnavailable(source.shown(), f"it was not whole after {format_duration(policy.patience)}")
