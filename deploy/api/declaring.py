"""Declaring models: the one writer of `relume.models` in this process.

Applying is: read the documents, take the lock, compare with the newest declaration of each name, append all changes at
once, show them on the board. The lock makes compare-and-set exact within this process; `writing` does so beside other
processes that declare; the log makes it last.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from deploy.api.board import Board, metadata_of
from deploy.api.problem import ProblemError, refuse, unknown
from deploy.api.shapes import Action, Applied, ApplyResult, FieldProblem, Metadata
from deploy.api.writing import Change, DeclarationWriter
from deploy.spec.declare import alias_problems, aliases_of, declare, delete, override
from deploy.spec.load import load_bytes
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, shown
from events.log import EventLog
from events.types.models import ModelDeclared, Override
from events.writer import EventWriter

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_FOR = 30 * 86400.0
"""Longest override, seconds: what should stand longer belongs in the declaration."""


BREATH = 20
"""Documents after which the loop may do other things: some milliseconds, since requests run on it too."""


@dataclass(frozen=True, slots=True)
class _Change:
    """`base_at`: the offset of the declaration that it was made of."""

    action: Action
    declared: ModelDeclared
    base_at: int


class _Taken:
    """Names and aliases of declared models, by word: only models that share a word can collide."""

    def __init__(self, declared: Iterable[ModelDeclared]) -> None:
        self._owners: dict[str, ModelDeclared] = {}
        for one in declared:
            self.add(one)

    def add(self, declared: ModelDeclared) -> None:
        if not declared.deleted:
            for word in (declared.model, *aliases_of(declared)):
                self._owners.setdefault(word, declared)

    def by(self, model: Model) -> list[ModelDeclared]:
        """The models that have a word of this one."""
        words = (model.metadata.name, *model.spec.aliases)
        found = {self._owners[word].model: self._owners[word] for word in words if word in self._owners}
        return list(found.values())


class Declarations:
    """Applies, deletes and scales. One instance a process; all calls wait until the board has caught up."""

    def __init__(self, log: EventLog, board: Board, writer: EventWriter, caught_up: asyncio.Event) -> None:
        self._board = board
        self._writer = DeclarationWriter(log, board, writer)
        self._caught_up = caught_up
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def apply_text(self, raw: bytes, *, dry_run: bool = False) -> ApplyResult:
        """Declare the documents of a YAML or JSON text, all or none; ProblemError tells each wrong field."""
        loaded = await asyncio.to_thread(load_bytes, raw, "")
        if loaded.problems:
            raise refused(loaded.problems)
        return await self.apply(loaded.models, dry_run=dry_run)

    async def apply(self, models: Sequence[Model], *, dry_run: bool = False) -> ApplyResult:
        """Declare `models`, all or none. With `dry_run` nothing is written."""
        changes = await self._alone(self._apply(models, dry_run))
        items = [
            Applied(
                action=change.action, kind="Model", metadata=metadata_of(change.declared),
                spec=dict(change.declared.spec),
            )
            for change in changes
        ]  # fmt: skip
        return ApplyResult(dry_run=dry_run, items=items)

    async def delete(self, name: str) -> Metadata:
        """Declare a model no longer."""
        return metadata_of(await self._alone(self._delete(name)))

    async def scale(self, name: str, wanted: Override | None) -> None:
        """Set a person's number of replicas for a while, which stands before the wish; None takes it away."""
        await self._alone(self._scale(name, wanted))

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

    async def _apply(self, models: Sequence[Model], dry_run: bool) -> list[_Change]:
        changes = await self._changes(models)
        if not dry_run:
            await self._writer.write([
                Change(change.declared, change.base_at, _of(model))
                for change, model in zip(changes, models, strict=True)
                if change.action is not Action.UNCHANGED
            ])  # fmt: skip
        return changes

    async def _delete(self, name: str) -> ModelDeclared:
        return await self._change_one(name, delete)

    async def _scale(self, name: str, wanted: Override | None) -> None:
        await self._change_one(name, functools.partial(_override, wanted))

    async def _change_one(self, name: str, make: Callable[[ModelDeclared], ModelDeclared]) -> ModelDeclared:
        """One living model's next declaration, written if it is another one."""
        declared = self._living(name)
        changed = make(declared)
        if changed is not declared:

            def redo(previous: ModelDeclared | None) -> ModelDeclared:
                return make(declared if previous is None else previous)

            await self._writer.write([Change(changed, self._board.declared_at(name), redo)])
        return changed

    def _living(self, name: str) -> ModelDeclared:
        declared = self._board.declared(name)
        if declared is None or declared.deleted:
            raise unknown("model", name, self._board.names())
        return declared

    async def _changes(self, models: Sequence[Model]) -> list[_Change]:
        """What each document changes. An alias means one model only, and never the name of another."""
        applied = {model.metadata.name for model in models}
        taken = _Taken(declared for name in self._board.names() if name not in applied
                       and (declared := self._board.declared(name)) is not None)  # fmt: skip
        changes: dict[str, _Change] = {}
        problems: list[SpecProblem] = []
        for count, model in enumerate(models, 1):
            name = model.metadata.name
            if name in changes:
                problems.append(SpecProblem("metadata.name", name, "this model is declared twice", "keep one of them"))
                continue
            problems += alias_problems(model, taken.by(model))
            changes[name] = self._change(model)
            taken.add(changes[name].declared)
            if count % BREATH == 0:
                await asyncio.sleep(0)
        if problems:
            raise refused(problems, HTTPStatus.CONFLICT)
        return list(changes.values())

    def _change(self, model: Model) -> _Change:
        name = model.metadata.name
        previous, base_at = self._board.declared(name), self._board.declared_at(name)
        declared = declare(previous, model, uuid.uuid4().hex)
        if previous is None or previous.uid != declared.uid:
            return _Change(Action.CREATED, declared, base_at)
        return _Change(Action.UNCHANGED if declared == previous else Action.CONFIGURED, declared, base_at)


def _of(model: Model) -> Callable[[ModelDeclared | None], ModelDeclared]:
    """What a document makes of a declaration."""
    return lambda previous: declare(previous, model, uuid.uuid4().hex)


def _override(wanted: Override | None, declared: ModelDeclared) -> ModelDeclared:
    """As `override`; one that was deleted meanwhile stays so."""
    return declared if declared.deleted else override(declared, wanted)


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
