"""The plan of one fetch: which chunks there are, who reads which, and how far the in-order digest has come.

A chunk is open, being read (by one reader, in the tail by up to three), or written. Only one reader of a chunk may
write it, so that the losers of a hedge change nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from statistics import median

from coldstart.core.cache.content import Span
from events.units import Instant, Seconds

_DURATIONS_KEPT = 64
READERS_MOST = 3
"""Two are not enough where the second got a connection of those that a server leaves waiting. A choice."""
HEDGE_LEAST = 0.5
"""Seconds below which no chunk is late: small files come in milliseconds, of which three times is noise. A choice."""


def spans(size: int, chunk_bytes: int) -> tuple[Span, ...]:
    """The chunks of a file: contiguous, in order, all of `chunk_bytes` but the last. An empty file has none."""
    if size < 0 or chunk_bytes < 1:
        raise ValueError(f"size {size} and chunk_bytes {chunk_bytes}: the first is not negative, the second above zero")
    return tuple(
        Span(index, start, min(chunk_bytes, size - start)) for index, start in enumerate(range(0, size, chunk_bytes))
    )


class Board:
    """Who reads which chunk. Not thread-safe: its user holds a lock."""

    __slots__ = ("_asked", "_began", "_durations", "_next", "_open", "_readers", "_written", "spans")

    def __init__(self, chunks: tuple[Span, ...], written: Iterable[int] = ()) -> None:
        self.spans = chunks
        self._written = set(written)
        self._open = deque(span.index for span in chunks if span.index not in self._written)
        self._readers: dict[int, int] = {}
        self._began: dict[int, Instant] = {}
        self._asked: dict[int, Instant] = {}
        """When each was asked for last."""
        self._durations: deque[float] = deque(maxlen=_DURATIONS_KEPT)
        self._next = 0

    @property
    def done(self) -> bool:
        """Every chunk is written."""
        return len(self._written) == len(self.spans)

    @property
    def left(self) -> int:
        """Chunks that are not yet written."""
        return len(self.spans) - len(self._written)

    def take(self, now: Instant, hedge_after: float) -> Span | None:
        """The next chunk to read, in order; in the tail, one that takes long; None: there is nothing to do now."""
        if self._open:
            index = self._open.popleft()
            self._began[index] = now
        else:
            late = self._late(now, hedge_after)
            if late is None:
                return None
            index = late
        self._asked[index] = now
        self._readers[index] = self._readers.get(index, 0) + 1
        return self.spans[index]

    def _late(self, now: Instant, hedge_after: float) -> int | None:
        if not self._durations:
            return None
        bound = max(HEDGE_LEAST, hedge_after * median(self._durations))
        late = [
            index for index, readers in self._readers.items()
            if readers < READERS_MOST and index not in self._written and now - self._asked[index] > bound
        ]  # fmt: skip
        return min(late, key=lambda index: self._began[index], default=None)

    def claim(self, span: Span, now: Instant) -> bool:
        """Whether this reader is the first to have the chunk whole, and writes it. Asked once a read."""
        self._leave(span)
        if span.index in self._written:
            return False
        self._written.add(span.index)
        self._durations.append(Seconds(now - self._began[span.index]))
        return True

    def give_back(self, span: Span) -> None:
        """The reader has failed; unless another still reads the chunk, it is open again, and first in turn."""
        self._leave(span)
        if span.index not in self._written and span.index not in self._readers:
            self._open.appendleft(span.index)

    def _leave(self, span: Span) -> None:
        readers = self._readers[span.index] - 1
        if readers:
            self._readers[span.index] = readers
        else:
            del self._readers[span.index]


class Cursor:
    """Feeds chunks to a digest in order, whatever the order in which they come."""

    __slots__ = ("_ready", "_total", "at")

    def __init__(self, total: int) -> None:
        self._total = total
        self._ready: set[int] = set()
        self.at = 0
        """The chunk that the digest needs next."""

    def add(self, index: int) -> None:
        """This chunk can be read now. A chunk comes once."""
        if index < self.at or index in self._ready:
            raise ValueError(f"chunk {index} came twice")
        self._ready.add(index)

    def advance(self) -> int | None:
        """The next chunk to feed, if it has come; it counts as fed."""
        if self.at not in self._ready:
            return None
        self._ready.remove(self.at)
        self.at += 1
        return self.at - 1

    @property
    def waiting(self) -> int:
        """Chunks that have come and were not fed: many, when the digest is slower than what brings them."""
        return len(self._ready)

    @property
    def ripe(self) -> bool:
        """The next chunk has come."""
        return self.at in self._ready

    @property
    def run(self) -> int:
        """How many chunks have come without a gap from the next one on."""
        at = self.at
        while at in self._ready:
            at += 1
        return at - self.at

    @property
    def done(self) -> bool:
        """All chunks were fed."""
        return self.at == self._total


class Cursors:
    """A cursor for each file of a plan: each file's digest is fed in order, whichever file's turn it is."""

    __slots__ = ("_chunk_bytes", "_cursors", "_left", "_ripe", "_spans", "waiting")

    def __init__(self, chunks: tuple[Span, ...], chunk_bytes: int) -> None:
        counts = Counter(span.file for span in chunks)
        self._cursors = {file: Cursor(count) for file, count in counts.items()}
        self._spans = {(span.file, span.start): span for span in chunks}
        self._chunk_bytes = chunk_bytes
        self._ripe: deque[int] = deque()
        self._left = len(chunks)
        self.waiting = 0
        """Chunks that have come and were not fed: many, when the digest is slower than what brings them."""

    def add(self, span: Span) -> None:
        """This chunk can be read now. A chunk comes once."""
        cursor = self._cursors[span.file]
        was = cursor.ripe
        cursor.add(span.start // self._chunk_bytes)
        self.waiting += 1
        if cursor.ripe and not was:
            self._ripe.append(span.file)

    def advance(self) -> Span | None:
        """The next chunk to feed to its file's digest, if there is one; it counts as fed."""
        if not self._ripe:
            return None
        file = self._ripe[0]
        number = self._cursors[file].advance()
        assert number is not None, "a file is ripe while its next chunk has come"
        if not self._cursors[file].ripe:
            self._ripe.popleft()
        self._left -= 1
        self.waiting -= 1
        return self._spans[file, number * self._chunk_bytes]

    @property
    def backlog(self) -> int:
        """Chunks that could be fed now, one after the other: what the digest is behind."""
        return sum(self._cursors[file].run for file in self._ripe)

    def ended(self, file: int) -> bool:
        """All chunks of this file were fed."""
        return self._cursors[file].done

    @property
    def done(self) -> bool:
        """All chunks of all files were fed."""
        return not self._left
