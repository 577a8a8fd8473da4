"""The operations on training jobs and on reclaims. (Their output is in `logs.py`.)"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from deploy.api import queries
from deploy.api.declaring import Declarations
from deploy.api.problem import unknown
from deploy.api.reclaim_status import explain, reclaim_item
from deploy.api.shapes import Deleted
from deploy.api.training_board import TrainingBoard
from deploy.api.trainingshapes import (
    ReclaimExplanation,
    ReclaimItem,
    ReclaimList,
    TrainingItem,
    TrainingList,
)
from events.clock import Clock
from events.types.reclaims import ReclaimChanged

LIMIT: Final = 200
"""Reclaims that are listed unless more are asked for."""


class Training:
    """Training jobs: list, read, delete, pause, resume, cancel. They are applied as models are."""

    def __init__(self, board: TrainingBoard, declarations: Declarations, clock: Clock) -> None:
        self._board = board
        self._declarations = declarations
        self._clock = clock

    async def list_training(self, request: web.Request) -> TrainingList:
        """All of them, by name."""
        queries.check_known(request, ())
        return TrainingList(items=self._board.items(self._clock.now()))

    async def get_training(self, request: web.Request) -> TrainingItem:
        """One."""
        queries.check_known(request, ())
        return self._item(request.match_info["name"])

    async def delete_training(self, request: web.Request) -> Deleted:
        """End it for good, and forget it."""
        queries.check_known(request, ())
        return Deleted(metadata=await self._declarations.delete_training(request.match_info["name"]))

    async def pause_training(self, request: web.Request) -> TrainingItem:
        """Let it save and give its GPUs back."""
        return await self._pause(request, paused=True)

    async def resume_training(self, request: web.Request) -> TrainingItem:
        """Let it go on."""
        return await self._pause(request, paused=False)

    async def cancel_training(self, request: web.Request) -> TrainingItem:
        """End it for good; it stays listed."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        await self._declarations.cancel(name)
        return self._item(name)

    async def _pause(self, request: web.Request, *, paused: bool) -> TrainingItem:
        queries.check_known(request, ())
        name = request.match_info["name"]
        await self._declarations.pause(name, paused=paused)
        return self._item(name)

    def _item(self, name: str) -> TrainingItem:
        item = self._board.item(name, self._clock.now())
        if item is None:
            raise unknown("training job", name, self._board.names())
        return item


class Reclaims:
    """Attempts to take the GPUs of training jobs: list, read, explain."""

    def __init__(self, board: TrainingBoard, clock: Clock) -> None:
        self._board = board
        self._clock = clock

    async def list_reclaims(self, request: web.Request) -> ReclaimList:
        """The newest ones, the newest last; those that go on are always among them."""
        queries.check_known(request, ("job", "model", "limit"))
        job, model = request.query.get("job"), request.query.get("model")
        limit = queries.number(request, "limit", LIMIT)
        found = [one for one in self._board.reclaims() if (job in (None, one.job)) and (model in (None, one.shortage))]
        return ReclaimList(items=[reclaim_item(one) for one in found[-limit:]])

    async def get_reclaim(self, request: web.Request) -> ReclaimItem:
        """One, by its id."""
        queries.check_known(request, ())
        return reclaim_item(self._reclaim(request))

    async def explain_reclaim(self, request: web.Request) -> ReclaimExplanation:
        """One, in sentences."""
        queries.check_known(request, ())
        reclaim = self._reclaim(request)
        return ReclaimExplanation(id=reclaim.id, sentences=explain(reclaim, self._clock.now()))

    def _reclaim(self, request: web.Request) -> ReclaimChanged:
        name = request.match_info["name"]
        found = self._board.reclaim(name)
        if found is None:
            raise unknown("reclaim", name, [one.id for one in self._board.reclaims()])
        return found
