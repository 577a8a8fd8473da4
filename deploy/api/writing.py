"""Writing declarations beside other writers of the same log, so that no change of anybody's is lost.

The newest record of a name is its declaration, whoever wrote it. Two admin ports that change one of them at the same
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
from typing import Final, Generic

from deploy.api.book import Book, D
from deploy.api.problem import refuse
from events.log import EventLog, Position
from events.payload import Unencodable
from events.types.models import ModelDeclared
from events.types.pools import PoolDeclared
from events.types.training import TrainingDeclared
from events.writer import EventWriter

logger = logging.getLogger(__name__)

TRIES: Final = 8
"""Times that a change is made anew, since others change the same one all the time."""
HEARD_WITHIN: Final = 10.0
"""Seconds for what is written to come back; it is durable by then. A log that fails right now is not waited for longer:
then a change of another port, made in the same instant, may have been undone."""


@dataclass(frozen=True, slots=True)
class Change(Generic[D]):
    """A declaration for a book, made of the one at offset `base_at` (-1: of none). `redo` makes it of another one."""

    book: Book[D]
    declared: D
    base_at: int
    redo: Callable[[D | None], D]

    @property
    def name(self) -> str:
        """What is declared."""
        return self.book.name_of(self.declared)

    def show(self, position: Position) -> None:
        """Show it, before the log tells it."""
        self.book.show(self.declared, position.offset)

    async def heard(self, position: Position) -> None:
        """Return once the log has told it."""
        await self.book.heard(self.name, position.offset)

    def again(self, position: Position) -> Change[D] | None:
        """The change anew, when it has undone another's; None when it stands, or was built upon already."""
        overtaken = self.book.overtaken(self.name, position.offset, self.base_at)
        if overtaken is None:
            return None
        anew = self.redo(overtaken)
        generation = max(anew.generation, overtaken.generation + 1, self.declared.generation + 1)
        return Change(self.book, replace(anew, generation=generation), position.offset, self.redo)


AnyChange = Change[ModelDeclared] | Change[TrainingDeclared] | Change[PoolDeclared]


class DeclarationWriter:
    """Appends changes and shows them in their books. Used under a lock: one call at a time."""

    def __init__(self, log: EventLog, writer: EventWriter) -> None:
        self._log = log
        self._writer = writer

    async def write(self, changes: Sequence[AnyChange]) -> None:
        """Append all at once, show them, and return when none has undone another's. Raises ProblemError."""
        for _ in range(TRIES):
            if not changes:
                return
            written = list(zip(changes, await self._append(changes), strict=True))
            try:
                async with asyncio.timeout(HEARD_WITHIN):
                    for change, position in written:
                        await change.heard(position)
            except TimeoutError:
                logger.warning("%d declarations were written, but have not been read back yet", len(changes))
                return
            changes = [again for change, position in written if (again := change.again(position)) is not None]
        names = ", ".join(sorted(change.name for change in changes))
        raise refuse(
            HTTPStatus.CONFLICT, "busy", f"{names}: others declare it at the same time, again and again",
            remedy="look at what stands there now, and apply again",
        )  # fmt: skip

    async def _append(self, changes: Sequence[AnyChange]) -> Sequence[Position]:
        envelopes = [self._writer.envelope(change.declared) for change in changes]
        try:
            positions = await self._log.append(envelopes)
        except Unencodable as error:
            raise refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"the declaration cannot be kept: {error}",
                remedy="make labels, annotations and options shorter",
            ) from error  # fmt: skip
        for change, position in zip(changes, positions, strict=True):
            change.show(position)
        return positions
