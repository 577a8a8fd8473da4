"""Writing declarations beside other writers of the same log, so that no change of anybody's is lost.

The newest record of a model is its declaration, whoever wrote it. Two admin ports that change one model at the same
moment both start from what they know, and the later record would undo the earlier one. So each writer hears its own
record back, and with it whatever was written before it: the one that overtook another's change makes its own anew, upon
that one. (Optimistic concurrency; the partition's order is the version.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from deploy.api.board import Board
from deploy.api.problem import refuse
from events.log import EventLog, Position
from events.payload import Unencodable
from events.types.models import ModelDeclared
from events.writer import EventWriter

logger = logging.getLogger(__name__)

TRIES: Final = 8
"""Times that a change is made anew, since others change the same model all the time."""
HEARD_WITHIN: Final = 10.0
"""Seconds for what is written to come back; it is durable by then. A log that fails right now is not waited for longer:
then a change of another port, made in the same instant, may have been undone."""


@dataclass(frozen=True, slots=True)
class Change:
    """A declaration, made of the one at offset `base_at` (-1: of none). `redo` makes it of another one."""

    declared: ModelDeclared
    base_at: int
    redo: Callable[[ModelDeclared | None], ModelDeclared]


class DeclarationWriter:
    """Appends changes and shows them on the board. Used under a lock: one call at a time."""

    def __init__(self, log: EventLog, board: Board, writer: EventWriter) -> None:
        self._log = log
        self._board = board
        self._writer = writer

    async def write(self, changes: Sequence[Change]) -> None:
        """Append all at once, show them, and return when none has undone another's. Raises ProblemError."""
        for _ in range(TRIES):
            if not changes:
                return
            written = list(zip(changes, await self._append([change.declared for change in changes]), strict=True))
            try:
                async with asyncio.timeout(HEARD_WITHIN):
                    for change, position in written:
                        await self._board.heard(change.declared.model, position.offset)
            except TimeoutError:
                logger.warning("%d declarations were written, but have not been read back yet", len(changes))
                return
            changes = [again for change, position in written if (again := self._again(change, position)) is not None]
        names = ", ".join(sorted(change.declared.model for change in changes))
        raise refuse(
            HTTPStatus.CONFLICT, "busy", f"{names}: others declare it at the same time, again and again",
            remedy="look at what stands there now, and apply again",
        )  # fmt: skip

    async def _append(self, declared: Sequence[ModelDeclared]) -> Sequence[Position]:
        envelopes = [self._writer.envelope(one) for one in declared]
        try:
            positions = await self._log.append(envelopes)
        except Unencodable as error:
            raise refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"the declaration cannot be kept: {error}",
                remedy="make labels, annotations and options shorter",
            ) from error  # fmt: skip
        for envelope, position in zip(envelopes, positions, strict=True):
            self._board.show(envelope, position.offset)
        return positions

    def _again(self, change: Change, position: Position) -> Change | None:
        """The change anew, when it has undone another's; None when it stands, or was built upon already."""
        mine = change.declared
        overtaken = self._board.overtaken(mine.model, position.offset, change.base_at)
        if overtaken is None:
            return None
        again = change.redo(overtaken)
        generation = max(again.generation, overtaken.generation + 1, mine.generation + 1)
        return Change(replace(again, generation=generation), position.offset, change.redo)
