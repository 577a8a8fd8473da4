"""The book of declarations: the newest one of each name of a kind, with its place in the log.

It takes what the log tells, and what was written from here before the log tells it. A declaration never gives way to
an earlier one. Who wrote one can wait until the log has told it, and then ask what stood right before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from events.types.models import ModelDeclared
from events.types.pools import PoolDeclared
from events.types.training import TrainingDeclared

D = TypeVar("D", ModelDeclared, TrainingDeclared, PoolDeclared)


@dataclass(slots=True)
class _Entry(Generic[D]):
    """Of one name. `at`: the declaration's offset. `preceding`: the one right before it in the log, once the log has
    told the newest one (`heard_at`)."""

    declared: D | None = None
    at: int = -1
    preceding: D | None = None
    preceding_at: int = -1
    heard_at: int = -1


class Book(Generic[D]):
    """All declarations of one kind. `changed(before, now)` is called with each one that becomes the newest."""

    def __init__(self, name_of: Callable[[D], str], changed: Callable[[D | None, D], None]) -> None:
        self.name_of: Callable[[D], str] = name_of
        self._changed: Callable[[D | None, D], None] = changed
        self._entries: dict[str, _Entry[D]] = {}
        self._hearing: dict[str, list[tuple[int, asyncio.Future[None]]]] = {}

    def hear(self, declared: D, offset: int) -> None:
        """Take a declaration that the log tells."""
        self.show(declared, offset)
        name = self.name_of(declared)
        entry = self._entries[name]
        entry.heard_at = max(entry.heard_at, offset)
        self._wake(name, offset)

    def show(self, declared: D, offset: int) -> None:
        """Take a declaration that was written from here, before the log tells it."""
        entry = self._entries.setdefault(self.name_of(declared), _Entry())
        if offset <= entry.at:
            if entry.preceding_at < offset < entry.at:
                entry.preceding, entry.preceding_at = declared, offset
            return
        entry.preceding, entry.preceding_at = entry.declared, entry.at
        entry.declared, entry.at = declared, offset
        self._changed(entry.preceding, declared)

    async def heard(self, name: str, offset: int) -> None:
        """Return once the log has told a name's declarations as far as `offset`."""
        entry = self._entries.get(name)
        if entry is None or entry.heard_at < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._hearing.setdefault(name, []).append((offset, future))
            await future

    def overtaken(self, name: str, offset: int, base_at: int) -> D | None:
        """What the declaration at `offset`, made of the one at `base_at`, has undone; None: nothing, or it is not the
        newest any more. Wait until it was `heard`."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        return entry.preceding if entry.at == offset and entry.preceding_at != base_at else None

    def newest(self, name: str) -> D | None:
        """The newest declaration of a name, also one that deletes it."""
        entry = self._entries.get(name)
        return entry.declared if entry else None

    def newest_at(self, name: str) -> int:
        """The offset of the newest declaration of a name; -1 for none."""
        entry = self._entries.get(name)
        return entry.at if entry else -1

    def _wake(self, name: str, offset: int) -> None:
        if name not in self._hearing:
            return
        waiting = self._hearing.pop(name)
        for wanted, future in waiting:
            if wanted <= offset and not future.done():
                future.set_result(None)
        if left := [(wanted, future) for wanted, future in waiting if not future.done()]:
            self._hearing[name] = left
