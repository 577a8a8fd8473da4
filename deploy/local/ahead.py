"""An engine that is spawned while its weights come, and is told where they are when they have come.

What an engine needs before it reads its weights (a process, its libraries) takes as long as the bytes of a small model.
Whether it can be started so is one of its abilities; what is said is in `runtime.engines.awaiting`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from runtime.engines.awaiting import READY, Paths, send

T = TypeVar("T")


class Word:
    """The socket over which an engine hears of its weights. `close` it; harmless twice."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    @property
    def descriptor(self) -> int:
        """The engine's end, for its process to inherit."""
        return self._theirs.fileno()

    def inherited(self) -> None:
        """The engine's process runs: its end is its own from now on."""
        self._theirs.close()

    async def ready(self) -> None:
        """Return when the engine waits for its weights. For one that ended it never does: watch its process."""
        said, more = b"", b"."
        while more and said != READY:
            more = await asyncio.get_running_loop().sock_recv(self._ours, len(READY) - len(said))
            said += more
        if not more:
            await asyncio.Event().wait()

    def give(self, paths: Paths, uses: Sequence[int]) -> None:
        """The weights are here. An engine that has ended meanwhile is seen by its process."""
        try:
            send(self._ours, paths, uses)
        except OSError:
            return
        self.close()

    def close(self) -> None:
        """Nothing more will be said: an engine that still waits ends."""
        self._ours.close()
        self._theirs.close()


async def beside(
    main: Coroutine[Any, Any, None],
    begin: asyncio.Event,
    work: Callable[[asyncio.Future[T | None]], Coroutine[Any, Any, NoReturn]] | None,
) -> T | None:
    """Await `main` and, beside it, `work` once `begin` is set; the result of the work, None where it did not begin.

    The work gives its result to the future, and watches on until it is stopped here. Raises what `main` raises, or, at
    once, what the work raises.
    """
    loop = asyncio.get_running_loop()
    came: asyncio.Future[T | None] = loop.create_future()
    awaited, begun = loop.create_task(main), loop.create_task(begin.wait())
    working: asyncio.Task[NoReturn] | None = None
    try:
        await asyncio.wait({awaited, begun}, return_when=asyncio.FIRST_COMPLETED)
        if begun.done() and work is not None:
            working = loop.create_task(work(came))
            await asyncio.wait({awaited, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        await asyncio.wait({awaited})
        awaited.result()
        if working is None:
            return None
        either: set[asyncio.Future[Any]] = {came, working}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return came.result()
    finally:
        ours = [task for task in (awaited, begun, working) if task is not None]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)
