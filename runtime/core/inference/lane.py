"""A lane: one partition of a topic of work, from the first unfinished offset to the last one read.

Requests finish in any order, but a group's offset is one number. What is finished beyond it is remembered in the mark,
which is committed with the offset: nothing is done twice after a crash, and the offset never passes what is unfinished.
"""

from __future__ import annotations

import heapq

from runtime.core.inference.errand import Place


class Lane:
    """Offsets of one place. `read` each once, `finish` each once; `mark` says what to commit."""

    __slots__ = ("_done", "_heap", "_next", "_sizes", "bytes", "place")

    def __init__(self, place: Place, low: int, done: tuple[int, ...]) -> None:
        self.place = place
        self.bytes = 0
        """Of all that is unfinished."""
        self._next = low
        self._done = set(done)
        self._sizes: dict[int, int] = {}
        self._heap: list[int] = []

    def read(self, offset: int, size: int) -> bool:
        """An offset was read; False when it was before, or had been finished already."""
        if offset < self._next:
            return False
        self._next = offset + 1
        if offset in self._done:
            return False
        self._sizes[offset] = size
        self.bytes += size
        heapq.heappush(self._heap, offset)
        return True

    def finish(self, offset: int) -> None:
        """What stands at this offset is settled by the next mark."""
        self.bytes -= self._sizes.pop(offset)
        self._done.add(offset)

    @property
    def low(self) -> int:
        """The first offset that is not finished."""
        while self._heap and self._heap[0] not in self._sizes:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else self._next

    def mark(self) -> tuple[int, tuple[int, ...]]:
        """(the first unfinished offset, finished ones after it)."""
        low = self.low
        self._done = {offset for offset in self._done if offset > low}
        return low, tuple(sorted(self._done))

    @property
    def next(self) -> int:
        """The offset after the last one read."""
        return self._next

    @property
    def span(self) -> int:
        """Offsets from the first unfinished one to the last one read."""
        return self._next - self.low

    def __contains__(self, offset: int) -> bool:
        """Whether it was read and is unfinished."""
        return offset in self._sizes

    def __len__(self) -> int:
        """Unfinished requests."""
        return len(self._sizes)
