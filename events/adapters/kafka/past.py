"""What the shared reader has read lately, kept for who boards next (see `trunk`): bounded in records and in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from events.adapters.kafka.wire import Finding, RawRecord, find
from events.adapters.store import Place

PAST: Final = 512
"""Records that are kept for who boards next: as many as it may have taken in the poll before it asks."""

PAST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of their keys and values: a record may have a mebibyte."""


class Opened:
    """A record, and what `find` says of it, which is asked once, by the first who wants to know."""

    __slots__ = ("_found", "_partitions", "raw")

    def __init__(self, raw: RawRecord, partitions: int) -> None:
        self.raw = raw
        self._partitions = partitions
        self._found: Finding | None = None

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.raw.key or b"") + len(self.raw.value or b"")

    @property
    def found(self) -> Finding:
        """With the trunk's lock held."""
        if self._found is None:
            self._found = find(self.raw, self._partitions)
        return self._found


class Past:
    """The newest records, of all places together."""

    def __init__(self, bound: int = PAST, most_bytes: int = PAST_BYTES) -> None:
        self._bound = bound
        self._most_bytes = most_bytes
        self._bytes = 0
        self._records: deque[tuple[Place, Opened]] = deque()
        self._from: dict[Place, int] = {}
        """Everything that was read of a place from this offset on is here."""

    def begin(self, place: Place, offset: int) -> None:
        """It is read from there on."""
        self.forget(place)
        self._from[place] = offset

    def forget(self, place: Place) -> None:
        """It is read no longer."""
        if self._from.pop(place, None) is not None:
            self._records = deque(one for one in self._records if one[0] != place)
            self._bytes = sum(one.size for _, one in self._records)

    def put(self, place: Place, opened: Sequence[Opened]) -> None:
        """What was read."""
        self._records.extend((place, one) for one in opened)
        self._bytes += sum(one.size for one in opened)
        while len(self._records) > self._bound or self._bytes > self._most_bytes:
            gone, oldest = self._records.popleft()
            self._bytes -= oldest.size
            self._from[gone] = oldest.raw.offset + 1

    def since(self, places: Mapping[Place, int]) -> dict[Place, list[Opened]] | None:
        """What was read of these from these offsets on; None when some of it is here no longer."""
        if any(offset < self._from[place] for place, offset in places.items()):
            return None
        found: dict[Place, list[Opened]] = {}
        for place, one in self._records:
            if one.raw.offset >= places.get(place, one.raw.offset + 1):
                found.setdefault(place, []).append(one)
        return found
