"""The operations on training jobs and on reclaims. (Their output is in `logs.py`.)"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from deploy.api import queries
from deploy.api.fronting import Declarer
from deploy.api.past_reclaims import Page, find, read_page
from deploy.api.problem import unknown
from deploy.api.reclaim_status import explain, reclaim_item
from deploy.api.shapes import Deleted, Shape
from deploy.api.training_board import BREATH, TrainingBoard
from deploy.api.training_status import goodput_of
from deploy.api.trainingshapes import (
    Goodput,
    ReclaimExplanation,
    ReclaimItem,
    TrainingItem,
)
from events.clock import Clock
from events.log import EventLog
from events.types.reclaims import ReclaimChanged
from events.units import Instant, format_instant

LIMIT: Final = 200
"""Reclaims that are listed unless more are asked for."""


class Training:
    """Training jobs: list, read, delete, pause, resume, cancel. They are applied as models are."""

    def __init__(self, board: TrainingBoard, declarations: Declarer, clock: Clock) -> None:
        self._board = board
        self._declarations = declarations
        self._clock = clock

    async def list_training(self, request: web.Request) -> web.Response:
        """All of them, by name (`TrainingList`, written piece by piece, since requests run on the same loop)."""
        queries.check_known(request, ())
        now = self._clock.now()
        items = [_json(item) async for item in self._board.items(now)]
        return _list(items, goodput_of(await self._board.goodput(now)))

    async def get_training(self, request: web.Request) -> TrainingItem:
        """One."""
        queries.check_known(request, ())
        return self._item(request.match_info["name"])

    async def delete_training(self, request: web.Request) -> Deleted:
        """End it for good, and forget it; with `purge` its own folder too."""
        queries.check_known(request, ("purge",))
        purge = queries.flag(request, "purge")
        return Deleted(metadata=await self._declarations.delete_training(request.match_info["name"], purge=purge))

    async def pause_training(self, request: web.Request) -> TrainingItem:
        """Let it save and give its GPUs back."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        await self._declarations.pause(name, paused=True)
        return self._item(name)

    async def resume_training(self, request: web.Request) -> TrainingItem:
        """Let it go on: paused, cancelled, or failed."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        await self._declarations.resume(name, self._board.failed_run(name))
        return self._item(name)

    async def cancel_training(self, request: web.Request) -> TrainingItem:
        """End it; it stays listed, and may be resumed."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        await self._declarations.cancel(name)
        return self._item(name)

    def _item(self, name: str) -> TrainingItem:
        item = self._board.item(name, self._clock.now())
        if item is None:
            raise unknown("training job", name, self._board.names())
        return item


class Reclaims:
    """Attempts to take the GPUs of training jobs: list, read, explain."""

    def __init__(self, board: TrainingBoard, log: EventLog, clock: Clock) -> None:
        self._board = board
        self._log = log
        self._clock = clock

    async def list_reclaims(self, request: web.Request) -> web.Response:
        """The newest ones, the newest last; those that go on are always the last (`ReclaimList`, as above). With
        ``since`` they are read back from the log, by the time of their newest state."""
        queries.check_known(request, ("job", "model", "limit", "since", "until"))
        job, model = request.query.get("job"), request.query.get("model")
        limit = queries.number(request, "limit", LIMIT)
        since, until = queries.instant(request, "since"), queries.instant(request, "until")

        def wanted(one: ReclaimChanged) -> bool:
            return job in (None, one.job) and model in (None, one.shortage)

        if since is None and until is None:
            page = Page(tuple([one for one in self._board.reclaims() if wanted(one)][-limit:]), None)
        else:
            page = await read_page(self._log, (since or Instant(0.0), until), limit, wanted)
        pieces = []
        for count, one in enumerate(page.items, 1):
            pieces.append(_json(reclaim_item(one)))
            if count % BREATH == 0:
                await asyncio.sleep(0)
        before = b"null" if page.before is None else f'"{format_instant(page.before)}"'.encode()
        return _list(pieces, goodput_of(await self._board.goodput(self._clock.now())), b',"before":' + before)

    async def get_reclaim(self, request: web.Request) -> ReclaimItem:
        """One, by its id."""
        queries.check_known(request, ())
        return reclaim_item(await self._reclaim(request))

    async def explain_reclaim(self, request: web.Request) -> ReclaimExplanation:
        """One, in sentences."""
        queries.check_known(request, ())
        reclaim = await self._reclaim(request)
        return ReclaimExplanation(id=reclaim.id, sentences=explain(reclaim, self._clock.now()))

    async def _reclaim(self, request: web.Request) -> ReclaimChanged:
        name = request.match_info["name"]
        found = self._board.reclaim(name) or await find(self._log, name)
        if found is None:
            raise unknown("reclaim", name, [one.id for one in self._board.reclaims()])
        return found


def _json(item: Shape) -> bytes:
    return item.model_dump_json(by_alias=True).encode()


def _list(pieces: Sequence[bytes], goodput: Goodput, more: bytes = b"") -> web.Response:
    body = b'{"items":[' + b",".join(pieces) + b'],"goodput":' + _json(goodput)
    body += more + b"}"
    return web.Response(body=body, content_type="application/json")
