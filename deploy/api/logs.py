"""The output of replicas, as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from deploy.api import queries
from deploy.api.board import Board
from deploy.api.following import Cut, Pipe, with_ticks
from deploy.api.ports import ReplicaLogs
from deploy.api.problem import unknown
from deploy.api.settings import AdminSettings
from deploy.api.telling import Events, too_many

CONTENT = "text/plain; charset=utf-8"


class Logs:
    """What replicas wrote. Shares the bound of streams with the events."""

    def __init__(self, logs: ReplicaLogs, board: Board, events: Events, settings: AdminSettings) -> None:
        self._logs = logs
        self._board = board
        self._events = events
        self._settings = settings

    async def replica_logs(self, request: web.Request) -> web.StreamResponse:
        """The last lines, and with `follow` each new one."""
        queries.check_known(request, ("tail", "follow"))
        name, lines = request.match_info["name"], queries.number(request, "tail", 100, least=0)
        last = await self._logs.tail(name, lines)
        if last is None:
            raise unknown("replica", name, [replica.replica for _, replica in self._board.replicas()])
        if not queries.flag(request, "follow"):
            return web.Response(text="".join(f"{line}\n" for line in last), headers={"Content-Type": CONTENT})
        return await self._follow(request, name, lines)

    async def _follow(self, request: web.Request, name: str, lines: int) -> web.StreamResponse:
        turnstile = self._events.turnstile
        if not turnstile.enter():
            raise too_many(self._settings)
        pipe = Pipe(request, CONTENT, self._settings)
        try:
            await pipe.open()
            async with aclosing(self._lines(name, lines)) as texts:
                async for text in texts:
                    if pipe.gone:
                        return pipe.response
                    if text:
                        await pipe.send(text)
            return await pipe.close()
        except Cut as cut:
            return await pipe.close(f"[relume: {cut}]\n".encode())
        except ConnectionError:
            return pipe.response
        finally:
            turnstile.leave()

    async def _lines(self, name: str, lines: int) -> AsyncGenerator[bytes, None]:
        source = self._logs.follow(name, lines)
        async with aclosing(with_ticks(source, self._settings.heartbeat, self._events.closing)) as ticking:
            async for line in ticking:
                yield b"" if line is None else line.encode("utf-8", "backslashreplace") + b"\n"
