"""The newest value of each key of one place: what a follower of states wants first.

Only the newest record of each key is decoded: states are repeated far more often than they are read. Should one of them
not be readable, the place is scanned again with every record decoded, so that the newest *readable* one is found.
"""

from __future__ import annotations

from collections.abc import Iterable

from events.adapters.kafka.opening import Opener
from events.adapters.kafka.window import Ident, Window
from events.adapters.kafka.wire import RawRecord, ident_of
from events.log import Record

SEEN = 4096
"""Events of a place that a repetition is known by, while it is scanned."""


class Scan:
    """Feed it the records of one place in order, then ask for the newest; or it must be fed anew, `carefully`."""

    def __init__(self, careful: bool = False) -> None:
        self._careful = careful
        self._raw: dict[bytes, RawRecord] = {}
        self._records: dict[str, Record] = {}
        self._seen: Window[bool] = Window(SEEN)

    def feed(self, raws: Iterable[RawRecord], opener: Opener) -> None:
        """The next records of the place."""
        for raw in raws:
            if self._careful:
                self._open(raw, opener)
                continue
            ident: Ident | None = ident_of(raw)
            if ident is not None:
                if self._seen.get(ident):
                    continue  # told again after something newer, perhaps
                self._seen.put(ident, True)
            key = raw.key or b""
            self._raw.pop(key, None)  # so that the dict stays in the order of offsets
            self._raw[key] = raw

    def newest(self, opener: Opener) -> list[Record] | None:
        """The newest of each key, in the order of the log; None: scan again, carefully."""
        if self._careful:
            return list(self._records.values())
        for raw in self._raw.values():
            if not self._open(raw, opener) and raw.value is not None:
                return None
        return list(self._records.values())

    def _open(self, raw: RawRecord, opener: Opener) -> bool:
        record = opener.open(raw)
        if record is not None:
            self._records.pop(record.envelope.key, None)
            self._records[record.envelope.key] = record
        return record is not None
