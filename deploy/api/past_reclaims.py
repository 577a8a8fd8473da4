"""Reclaims of the past, read back from the log: the board has the newest only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from events.log import EventLog, Query, Record
from events.names import Topic, reclaim_key
from events.types.reclaims import ReclaimChanged
from events.units import Instant, format_instant, parse_instant

MOST_READ: Final = 20_000
"""Reclaims that one reading remembers: the newest. (Chosen: some tens of megabytes, for as long as it is asked.)"""

BREATH: Final = 200
"""Records after which the loop may do other things."""


@dataclass(frozen=True, slots=True)
class Page:
    """Reclaims, by the time of their newest state, the newest last. `before`: where the page before this one ends;
    None: there is none since the time that was asked for."""

    items: tuple[ReclaimChanged, ...]
    before: Instant | None


async def read_page(
    log: EventLog, span: tuple[Instant, Instant | None], limit: int, wanted: Callable[[ReclaimChanged], bool]
) -> Page:
    """The newest `limit` of those whose newest state was recorded within `span` (from, and up to but not including);
    some more where several were recorded at one time."""
    since, until = span
    end = None if until is None else _stamp(until)
    newest: dict[str, Record] = {}
    dropped = -1
    async for record, reclaim in _reclaims(log, Query(Topic.RECLAIMS, from_time=since)):
        newest.pop(reclaim.id, None)
        if end is None or _stamp(record.appended_at) < end:  # else it belongs to a later page
            newest[reclaim.id] = record
            if len(newest) > MOST_READ:
                dropped = max(dropped, _stamp(newest.pop(next(iter(newest))).appended_at))
    found = sorted(newest.values(), key=lambda record: (record.appended_at, record.position.offset))
    fits = [
        (record.appended_at, data)
        for record in found
        if _stamp(record.appended_at) > dropped and isinstance(data := record.envelope.data, ReclaimChanged)
        and wanted(data)
    ]  # fmt: skip
    first = _stamp(fits[-limit:][0][0]) if fits else 0  # what was recorded at one time is on one page
    page = [(at, data) for at, data in fits if _stamp(at) >= first]
    more = dropped >= 0 or len(fits) > len(page)
    return Page(tuple(data for _, data in page), page[0][0] if more and page else None)


async def find(log: EventLog, name: str) -> ReclaimChanged | None:
    """One by its id, as it stood last."""
    key, found = reclaim_key(name), None
    async for record, reclaim in _reclaims(log, Query(Topic.RECLAIMS, newest_per_key=True)):
        if record.envelope.key == key:
            found = reclaim
    return found


def _stamp(at: Instant) -> int:
    """Microseconds, as an instant has them once it was written and read."""
    return round(1e6 * parse_instant(format_instant(at)))


async def _reclaims(log: EventLog, query: Query) -> AsyncIterator[tuple[Record, ReclaimChanged]]:
    count = 0
    async for record in log.read(query):
        count += 1
        if count % BREATH == 0:
            await asyncio.sleep(0)
        if isinstance(record.envelope.data, ReclaimChanged):
            yield record, record.envelope.data
