"""Declaring where declarations are objects of a cluster: written there first, then declared as they stand there.

What the admin API is asked goes through here; who follows the objects declares them by `Declarations` itself, the same
way, so that both write the same and whoever comes second changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from deploy.api.board import metadata_of
from deploy.api.changing import Boards
from deploy.api.declaring import Declarations, refused
from deploy.api.pool_board import pool_metadata
from deploy.api.problem import ProblemError, unknown
from deploy.api.shapes import ApplyResult, Metadata
from deploy.api.training_board import training_metadata
from deploy.spec.kinds import Document
from deploy.spec.load import load_bytes
from deploy.spec.mig import reported_profiles
from events.types.models import Override


class Objects(Protocol):
    """The objects of a cluster that declarations are made of. All raise ProblemError."""

    async def write(self, documents: Sequence[Document], *, dry_run: bool) -> Sequence[Document]:
        """Write the documents; as they then stand there. With `dry_run` they are checked there, and not written."""

    async def delete(self, name: str) -> bool:
        """Delete a model's object; False: there is none."""

    async def delete_pool(self, name: str) -> bool:
        """Delete a pool's object; False: there is none."""

    async def delete_training(self, name: str) -> bool:
        """Delete a training job's object; False: there is none."""

    async def hold_training(self, name: str, *, paused: bool | None = None, cancelled: bool | None = None) -> None:
        """Write into a training job's object whether it is held back; None: as it is. Without an object: nothing."""

    async def scale(self, name: str, wanted: Override | None) -> Override | None:
        """Write a person's number into a model's object, or take it away; the override that the number makes. Without
        an object: what was given."""


class Declarer(Protocol):
    """What declares for the admin API: `Declarations`, or `ObjectsFirst`."""

    async def apply_text(self, raw: bytes, *, dry_run: bool = False) -> ApplyResult:
        """See `Declarations.apply_text`."""

    async def delete(self, name: str) -> Metadata:
        """See `Declarations.delete`."""

    async def delete_pool(self, name: str) -> Metadata:
        """See `Declarations.delete_pool`."""

    async def delete_training(self, name: str, *, purge: bool = False) -> Metadata:
        """See `Declarations.delete_training`."""

    async def scale(self, name: str, wanted: Override | None) -> None:
        """See `Declarations.scale`."""

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `Declarations.pause`."""

    async def resume(self, name: str, forgiven: int) -> None:
        """See `Declarations.resume`."""

    async def cancel(self, name: str) -> None:
        """See `Declarations.cancel`."""


class ObjectsFirst:
    """See above."""

    def __init__(self, declarations: Declarations, objects: Objects, boards: Boards) -> None:
        self._declarations = declarations
        self._objects = objects
        self._board = boards.models
        self._pools = boards.pools
        self._training = boards.training

    async def apply_text(self, raw: bytes, *, dry_run: bool = False) -> ApplyResult:
        """See `Declarer`. Whatever is wrong with any document is told before the first object is written."""
        reported = reported_profiles(self._board.nodes())
        loaded = await asyncio.to_thread(load_bytes, raw, "", reported)
        if loaded.problems:
            raise refused(loaded.problems)
        await self._declarations.apply(loaded.documents, dry_run=True)
        checked = await self._objects.write(loaded.documents, dry_run=True)
        planned = await self._declarations.apply(checked, dry_run=True)
        if dry_run:
            return planned
        written = await self._objects.write(loaded.documents, dry_run=False)
        done = await self._declarations.apply(written)
        # who follows the objects may have declared them meanwhile: what changed is what was planned
        pairs = zip(planned.items, done.items, strict=True)
        items = [last.model_copy(update={"action": first.action}) for first, last in pairs]
        return ApplyResult(dry_run=False, items=items)

    async def delete(self, name: str) -> Metadata:
        """See `Declarer`. An object that was refused, and so is declared by nobody, can be deleted too."""
        declared = self._board.declared(name)
        there = await self._objects.delete(name)
        before = None if declared is None else metadata_of(declared)
        return await _withdrawn(self._declarations.delete(name), name, before, there=there)

    async def delete_pool(self, name: str) -> Metadata:
        """See `Declarer`. As with models."""
        declared = self._pools.declared(name)
        there = await self._objects.delete_pool(name)
        before = None if declared is None else pool_metadata(declared)
        return await _withdrawn(self._declarations.delete_pool(name), name, before, there=there)

    async def delete_training(self, name: str, *, purge: bool = False) -> Metadata:
        """See `Declarer`. As with models."""
        entry = self._training.entry(name)
        declared = None if entry is None else entry.declared
        there = await self._objects.delete_training(name)
        before = None if declared is None else training_metadata(declared)
        return await _withdrawn(self._declarations.delete_training(name, purge=purge), name, before, there=there)

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `Declarer`. What cannot be paused is left as it is."""
        if self._lives(name):
            await self._objects.hold_training(name, paused=paused)
        await self._declarations.pause(name, paused=paused)

    async def resume(self, name: str, forgiven: int) -> None:
        """See `Declarer`."""
        await self._objects.hold_training(name, paused=False, cancelled=False)
        await self._declarations.resume(name, forgiven)

    async def cancel(self, name: str) -> None:
        """See `Declarer`."""
        await self._objects.hold_training(name, cancelled=True)
        await self._declarations.cancel(name)

    def _lives(self, name: str) -> bool:
        entry = self._training.entry(name)
        return entry is not None and entry.declared is not None and not entry.declared.cancelled

    async def scale(self, name: str, wanted: Override | None) -> None:
        """See `Declarer`."""
        if self._board.declared(name) is None:
            raise unknown("model", name, self._board.names())
        await self._declarations.scale(name, await self._objects.scale(name, wanted))


async def _withdrawn(
    deleting: Coroutine[Any, Any, Metadata], name: str, before: Metadata | None, *, there: bool
) -> Metadata:
    """What `deleting` gives; of an object that was there and is declared no more: what was declared, or its name."""
    try:
        return await deleting
    except ProblemError as error:
        if error.problem.status != HTTPStatus.NOT_FOUND or not there:
            raise
        return before or Metadata(name=name, uid="", generation=0, revision=0)
