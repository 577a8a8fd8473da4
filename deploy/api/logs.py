"""The output of replicas, as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from aiohttp import web

from deploy.api import queries
from deploy.api.board import Board
from deploy.api.following import Form, Streams
from deploy.api.ports import ReplicaLogs
from deploy.api.problem import unknown

CONTENT: Final = "text/plain; charset=utf-8"

LOG: Final = Form(CONTENT, lambda why: f"[relume: {why}]\n".encode())


class Logs:
    """What replicas wrote."""

    def __init__(self, logs: ReplicaLogs, board: Board, streams: Streams) -> None:
        self._logs = logs
        self._board = board
        self._streams = streams

    async def replica_logs(self, request: web.Request) -> web.StreamResponse:
        """The last lines, and with `follow` each new one."""
        queries.check_known(request, ("tail", "follow"))
        name, lines = request.match_info["name"], queries.number(request, "tail", 100, least=0)
        follow = queries.flag(request, "follow")
        last = await self._logs.tail(name, lines)
        if last is None:
            raise unknown("replica", name, [replica.replica for _, replica in self._board.replicas()])
        if follow:
            return await self._streams.serve(request, LOG, self._lines(name, lines))
        return web.Response(body=b"".join(_line(line) for line in last), headers={"Content-Type": CONTENT})

    async def _lines(self, name: str, lines: int) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._streams.ticking(self._logs.follow(name, lines))) as ticking:
            async for line in ticking:
                yield b"" if line is None else _line(line)


def _line(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace") + b"\n"
