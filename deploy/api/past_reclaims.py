"""Reclaims of the past, read back from the log: the board has the newest only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from events.log import EventLog, Query, Record
from events.names import Topic, reclaim_key
from events.types.reclaims import ReclaimChanged
from events.units import Instant

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
    """The newest `limit` of those whose newest state was recorded within `span` (from, and up to but not including)."""
    since, until = span
    newest: dict[str, Record] = {}
    dropped = False
    async for record, reclaim in _reclaims(log, Query(Topic.RECLAIMS, from_time=since)):
        newest.pop(reclaim.id, None)
        if until is None or record.appended_at < until:  # else it belongs to a later page
            newest[reclaim.id] = record
            if len(newest) > MOST_READ:
                del newest[next(iter(newest))]
                dropped = True
    found = sorted(newest.values(), key=lambda record: (record.appended_at, record.position.offset))
    told = [(record.appended_at, record.envelope.data) for record in found]
    fits = [(at, data) for at, data in told if isinstance(data, ReclaimChanged) and wanted(data)]
    page = fits[-limit:]
    more = dropped or len(fits) > len(page)
    return Page(tuple(data for _, data in page), page[0][0] if more and page else None)


async def find(log: EventLog, name: str) -> ReclaimChanged | None:
    """One by its id, as it stood last."""
    key, found = reclaim_key(name), None
    async for record, reclaim in _reclaims(log, Query(Topic.RECLAIMS, newest_per_key=True)):
        if record.envelope.key == key:
            found = reclaim
    return found


async def _reclaims(log: EventLog, query: Query) -> AsyncIterator[tuple[Record, ReclaimChanged]]:
    count = 0
    async for record in log.read(query):
        count += 1
        if count % BREATH == 0:
            await asyncio.sleep(0)
        if isinstance(record.envelope.data, ReclaimChanged):
            yield record, record.envelope.data
