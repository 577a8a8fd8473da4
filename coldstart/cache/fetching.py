"""One fetch: chunks over several connections to a preallocated file, each with its BLAKE3, the whole with its SHA-256.

Threads, since reading, hashing and writing give up the interpreter's lock: measured, threads with `http.client` and
`readinto` cost half of aiohttp's CPU a GiB and a tenth of httpx's (field note on cold starts, §5). Memory is bounded by
connections and waiting chunks, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from blake3 import blake3

from coldstart.cache.partial import Partial
from coldstart.core.cache.content import Described, Span
from coldstart.core.cache.errors import Retryable, SourceUnavailable, Throttled
from coldstart.core.cache.pace import Connections, Patience
from coldstart.core.cache.plan import Board, Cursor
from coldstart.core.cache.policy import FetchPolicy
from coldstart.ports import Channel, Source
from events.clock import Clock
from events.units import Instant, format_duration

_LOOK = 0.05
"""Seconds between looks for a late chunk of those who have nothing to do."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of it: SHA-256 of the whole (``sha256:…``), BLAKE3 of the chunks, and bytes that the source gave."""

    digest: str
    chunks: tuple[str, ...]
    transferred: int


class Fetch:
    """Fills a partial file from a source. `run` once."""

    def __init__(
        self, source: Source, described: Described, partial: Partial, policy: FetchPolicy, clock: Clock
    ) -> None:
        self._source = source
        self._of = described
        self._partial = partial
        self._policy = policy
        self._clock = clock
        self._changed = threading.Condition()
        self._connections = Connections(policy)
        self._error: BaseException | None = None
        self._channels: dict[int, Channel] = {}
        self._kept: dict[int, mmap.mmap] = {}
        self._spare: list[mmap.mmap] = []
        self._transferred = 0
        self._paused_until = Instant(0.0)
        """Who asks for patience asks it of all connections."""

    def run(self, chunks: tuple[Span, ...], progress: Callable[[int], None]) -> Fetched:
        """Fetch what is not there yet. `progress(bytes)` is called with the bytes of each chunk that is verified.

        Raises a CacheError, VersionMoved, or RangesIgnored (then call `run_stream`).
        """
        scratch = memoryview(_buffer(min(self._policy.chunk_bytes, self._of.bytes)))
        there = self._partial.recover(chunks, scratch) if self._of.bytes else ()
        self._board = Board(chunks, there)
        self._cursor = Cursor(len(chunks))
        self._patience = Patience(self._policy, len(chunks))
        self._progress = progress
        self._until = Instant(self._clock.now() + self._policy.patience)
        for index in there:
            self._cursor.add(index)
            progress(chunks[index].length)
        crew = [
            threading.Thread(target=self._reader, args=(number,), name=f"weights-{number}", daemon=True)
            for number in range(min(self._policy.connections_most, self._board.left))
        ]
        for thread in crew:
            thread.start()
        try:
            digest = self._hash(chunks, scratch)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._break_off()
            for thread in crew:
                thread.join()
        return Fetched(digest, tuple(self._partial.digests[span.index] for span in chunks), self._transferred)

    def _hash(self, chunks: tuple[Span, ...], scratch: memoryview) -> str:
        """The in-order digest follows the chunks while others are still on their way."""
        whole = hashlib.sha256()
        while True:
            with self._changed:
                while (index := self._cursor.advance()) is None and not self._cursor.done and self._error is None:
                    self._wait_for_chunks()
                if self._error is not None:
                    raise self._error
                kept = self._kept.pop(index, None) if index is not None else None
            if index is None:
                return f"sha256:{whole.hexdigest()}"
            if kept is None:
                self._partial.read(chunks[index], scratch)
                whole.update(scratch[: chunks[index].length])
                continue
            whole.update(memoryview(kept)[: chunks[index].length])
            with self._changed:
                self._spare.append(kept)

    def _wait_for_chunks(self) -> None:
        self._changed.wait(min(1.0, self._policy.patience))
        if self._clock.now() > self._until:
            raise late(self._source, self._policy)

    def _reader(self, number: int) -> None:
        channel = self._source.connect()
        with self._changed:
            self._channels[number] = channel
        buffer = _buffer(min(self._policy.chunk_bytes, self._of.bytes))
        try:
            while (span := self._turn(number)) is not None:
                buffer = self._one(channel, span, buffer)
        except Exception as error:  # noqa: BLE001 - told to the one who waits for the fetch, by `_hash`
            self._fail(error)
        finally:
            channel.close()

    def _turn(self, number: int) -> Span | None:
        """The next chunk for this reader; None: the fetch is over."""
        with self._changed:
            while self._error is None and not self._board.done:
                if number < self._connections.allowed and self._clock.now() >= self._paused_until:
                    span = self._board.take(self._clock.now(), self._policy.hedge_after)
                    if span is not None:
                        return span
                self._changed.wait(_LOOK)
        return None

    def _one(self, channel: Channel, span: Span, buffer: mmap.mmap) -> mmap.mmap:
        """Read one chunk; the buffer for the next. After a failure, wait as long as patience says."""
        view = memoryview(buffer)[: span.length]
        try:
            channel.read(span, self._of, view)
        except Retryable as error:
            self._again(span, error)
            return buffer
        digest = blake3(view).hexdigest()
        with self._changed:
            self._transferred += span.length
            self._patience.came()
            if self._cursor.waiting <= self._policy.waiting_chunks:  # else the digest is slower: no use in more
                self._connections.came()
            first = self._error is None and self._board.claim(span, self._clock.now())
        if not first:
            return buffer
        self._partial.write(span, view)
        view.release()
        spare: mmap.mmap | None = None
        with self._changed:
            self._partial.record(span, digest)
            keep = len(self._kept) < self._policy.waiting_chunks
            if keep:
                self._kept[span.index] = buffer
                spare = self._spare.pop() if self._spare else None
            self._cursor.add(span.index)
            self._progress(span.length)
            self._changed.notify_all()
        if not keep:
            return buffer
        return _buffer(len(buffer)) if spare is None else spare

    def _again(self, span: Span, error: Retryable) -> None:
        with self._changed:
            if self._error is not None or self._board.done:
                return
            self._board.give_back(span)
            self._connections.refused(self._clock.now())
            wanted = error.retry_after if isinstance(error, Throttled) else None
            wait = self._patience.failed(wanted, random.random())  # noqa: S311 - jitter, no secret
            if wait is None:
                raise SourceUnavailable(self._source.shown(), f"{error} (and no retries are left)")
            if wanted is not None:
                self._paused_until = Instant(self._clock.now() + wait)
            self._changed.wait_for(lambda: self._error is not None or self._board.done, wait)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
        self._break_off()

    def _break_off(self) -> None:
        """Readers that are in the middle of something nobody needs any more."""
        with self._changed:
            channels = list(self._channels.values())
            self._changed.notify_all()
        for channel in channels:
            channel.close()


def _buffer(length: int) -> mmap.mmap:
    """Room for a chunk, in huge pages where the system has them: touching it costs 4 page faults instead of 2,048."""
    made = mmap.mmap(-1, max(1, length))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            made.madvise(mmap.MADV_HUGEPAGE)
    return made


def late(source: Source, policy: FetchPolicy) -> SourceUnavailable:
    """The fetch took longer than patience has."""
    return SourceUnavailable(source.shown(), f"it was not whole after {format_duration(policy.patience)}")


def fetch_stream(
    source: Source, described: Described, partial: Partial, policy: FetchPolicy, progress: Callable[[int], None]
) -> Fetched:
    """From a source that has no ranges: the whole in one stream, in order. A failed try begins anew.

    The caller retries: Retryable, VersionMoved and CacheErrors are raised as they come.
    """
    buffer = memoryview(bytearray(policy.chunk_bytes))
    whole, chunks, at = hashlib.sha256(), list[str](), 0

    def take(length: int) -> None:
        nonlocal at
        view = buffer[:length]
        partial.write(Span(len(chunks), at, length), view)
        chunks.append(blake3(view).hexdigest())
        whole.update(view)
        at += length
        progress(length)

    channel = source.connect()
    try:
        channel.stream(described, buffer, take)
    finally:
        channel.close()
    return Fetched(f"sha256:{whole.hexdigest()}", tuple(chunks), at)
