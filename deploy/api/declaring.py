"""Declaring models and training jobs: the one writer of `relume.models` in this process.

Applying is: read the documents, take the lock, compare with the newest declaration of each name, append all changes at
once, show them on the board. The lock makes compare-and-set exact within this process; `writing` does so beside other
processes that declare; the log makes it last.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from deploy.api.board import metadata_of
from deploy.api.book import D
from deploy.api.changing import Boards, Planned, Register, Words, registers
from deploy.api.pool_board import pool_metadata
from deploy.api.problem import ProblemError, refuse, unknown
from deploy.api.shapes import Action, ApplyResult, FieldProblem, Metadata
from deploy.api.training_board import training_metadata
from deploy.api.writing import DeclarationWriter
from deploy.spec.declare import delete, override
from deploy.spec.declare_pool import delete_pool
from deploy.spec.declare_training import cancel, delete_training, pause, resume
from deploy.spec.kinds import Document
from deploy.spec.load import load_bytes
from deploy.spec.mig import reported_profiles
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, shown
from events.log import EventLog
from events.types.models import ModelDeclared, Override
from events.types.training import TrainingDeclared
from events.writer import EventWriter

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_FOR = 30 * 86400.0
"""Longest override, seconds: what should stand longer belongs in the declaration."""


BREATH = 20
"""Documents after which the loop may do other things: some milliseconds, since requests run on it too."""


class Declarations:
    """Applies, deletes, scales, pauses. One instance a process; all calls wait until the boards have caught up."""

    def __init__(self, log: EventLog, boards: Boards, writer: EventWriter, caught_up: asyncio.Event) -> None:
        self._boards = boards
        self._registers = registers(boards)
        self._writer = DeclarationWriter(log, writer)
        self._caught_up = caught_up
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def apply_text(self, raw: bytes, *, dry_run: bool = False) -> ApplyResult:
        """Declare the documents of a YAML or JSON text, all or none; ProblemError tells each wrong field."""
        reported = reported_profiles(self._boards.models.nodes())
        loaded = await asyncio.to_thread(load_bytes, raw, "", reported)
        if loaded.problems:
            raise refused(loaded.problems)
        return await self.apply(loaded.documents, dry_run=dry_run)

    async def apply(self, documents: Sequence[Document], *, dry_run: bool = False) -> ApplyResult:
        """Declare `documents` of any kinds, all or none. With `dry_run` nothing is written."""
        planned = await self._alone(self._apply(documents, dry_run))
        return ApplyResult(dry_run=dry_run, items=[one.told for one in planned])

    async def delete(self, name: str) -> Metadata:
        """Declare a model no longer."""
        return metadata_of(await self._alone(self._change_one(self._registers.models, name, delete)))

    async def scale(self, name: str, wanted: Override | None) -> None:
        """Set a person's number of replicas for a while, which stands before the wish; None takes it away."""
        await self._alone(self._change_one(self._registers.models, name, functools.partial(_override, wanted)))

    async def delete_training(self, name: str, *, purge: bool = False) -> Metadata:
        """Declare a training job no longer. With `purge` what it has left in a folder of its own goes too, also of one
        that was deleted before."""
        make = functools.partial(delete_training, purge=purge)
        change = self._change_one(self._registers.training, name, make, deleted_too=purge)
        return training_metadata(await self._alone(change))

    async def delete_pool(self, name: str) -> Metadata:
        """Declare a pool no longer: the defaults hold again."""
        return pool_metadata(await self._alone(self._change_one(self._registers.pools, name, delete_pool)))

    async def cancel(self, name: str) -> None:
        """End a training job for good."""
        await self._alone(self._change_one(self._registers.training, name, cancel))

    async def pause(self, name: str, *, paused: bool) -> None:
        """Let a training job save and give its GPUs back, or not. ProblemError when it was cancelled."""
        await self._alone(self._pause(name, paused=paused))

    async def resume(self, name: str, forgiven: int) -> None:
        """Let a training job go on that was paused, cancelled, or failed; failures of runs up to this one are
        forgiven."""
        make = functools.partial(_resumed, forgiven)
        await self._alone(self._change_one(self._registers.training, name, make))

    async def _alone(self, work: Coroutine[None, None, T]) -> T:
        """Do `work` under the lock, to its end also when the asker leaves: the board may not miss what the log has."""
        task = asyncio.create_task(self._locked(work))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug(
                "a declaration was refused or failed: %s", task.exception()
            )  # its asker was told, if it is there

    async def _locked(self, work: Coroutine[None, None, T]) -> T:
        await self._caught_up.wait()
        async with self._lock:
            return await work

    async def _apply(self, documents: Sequence[Document], dry_run: bool) -> list[Planned]:
        planned = await self._planned(documents)
        if not dry_run:
            await self._writer.write([one.change for one in planned if one.told.action is not Action.UNCHANGED])
        return planned

    async def _pause(self, name: str, *, paused: bool) -> None:
        register = self._registers.training
        if _living(register, name).cancelled:
            raise refuse(
                HTTPStatus.CONFLICT, "cancelled", f"the training job {name} was cancelled, so it has ended",
                remedy=f"to run it again: relume train resume {name}",
            )  # fmt: skip
        await self._change_one(register, name, functools.partial(_paused, paused))

    async def _change_one(
        self, register: Register[D], name: str, make: Callable[[D], D], *, deleted_too: bool = False
    ) -> D:
        """A living name's next declaration, written if it is another one."""
        living = _living(register, name, deleted_too=deleted_too)
        change = register.changed(living, make)
        if change is None:
            return living
        await self._writer.write([change])
        return change.declared

    async def _planned(self, documents: Sequence[Document]) -> list[Planned]:
        """What each document changes."""
        words = Words.beside(self._boards.models, documents)
        planned: dict[tuple[str, str], Planned] = {}
        problems: list[SpecProblem] = []
        for count, document in enumerate(documents, 1):
            name, register = document.metadata.name, self._registers.of(document)
            if (document.kind, name) in planned:
                rule = f"this {register.word} is declared twice"
                problems.append(SpecProblem("metadata.name", name, rule, "keep one of them"))
                continue
            if isinstance(document, Model):
                problems += words.problems(document)
            one = planned[document.kind, name] = register.applied(document)
            if isinstance(one.change.declared, ModelDeclared):
                words.add(one.change.declared)
            if count % BREATH == 0:
                await asyncio.sleep(0)
        if problems:
            raise refused(problems, HTTPStatus.CONFLICT)
        return list(planned.values())


def _living(register: Register[D], name: str, *, deleted_too: bool = False) -> D:
    declared = register.book.newest(name)
    if declared is None or (declared.deleted and not deleted_too):
        raise unknown(register.word, name, register.names())
    return declared


def _override(wanted: Override | None, declared: ModelDeclared) -> ModelDeclared:
    """As `override`; one that was deleted meanwhile stays so."""
    return declared if declared.deleted else override(declared, wanted)


def _paused(paused: bool, declared: TrainingDeclared) -> TrainingDeclared:
    """As `pause`; one that was cancelled or deleted meanwhile stays so."""
    return declared if declared.deleted or declared.cancelled else pause(declared, paused=paused)


def _resumed(forgiven: int, declared: TrainingDeclared) -> TrainingDeclared:
    """As `resume`; one that was deleted meanwhile stays so."""
    return declared if declared.deleted else resume(declared, forgiven=forgiven)


def refused(problems: Sequence[SpecProblem], status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY) -> ProblemError:
    fields = [
        FieldProblem(
            path=problem.path, line=problem.line, value=None if problem.value is None else shown(problem.value),
            rule=problem.rule, remedy=problem.remedy,
        )
        for problem in problems
    ]  # fmt: skip
    count = "1 problem" if len(fields) == 1 else f"{len(fields)} problems"
    name = "conflict" if status is HTTPStatus.CONFLICT else "refused"
    return refuse(
        status, name, f"nothing was declared: {count}", remedy="mend these fields and apply again", fields=fields
    )
