"""The output of replicas and of members of training jobs, as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web

from deploy.api import queries
from deploy.api.changing import Boards
from deploy.api.following import Form, Streams
from deploy.api.ports import ReplicaLogs, TrainingLogs
from deploy.api.problem import ProblemError, refuse, unknown

CONTENT: Final = "text/plain; charset=utf-8"

LOG: Final = Form(CONTENT, lambda why: f"[relume: {why}]\n".encode())


class Source(Protocol):
    """One of the ports that give output; see `deploy.api.ports`."""

    async def tail(self, name: str, lines: int, /) -> Sequence[str] | None:
        """The last lines; None for an unknown name."""

    def follow(self, name: str, lines: int, /) -> AsyncIterator[str]:
        """The last lines and then each new one."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What output is asked for: whose, how many lines, and whether to go on."""

    name: str
    lines: int
    follow: bool


class Logs:
    """What replicas and training jobs wrote."""

    def __init__(self, replicas: ReplicaLogs, training: TrainingLogs, boards: Boards, streams: Streams) -> None:
        self._replicas = replicas
        self._training = training
        self._boards = boards
        self._streams = streams

    async def replica_logs(self, request: web.Request) -> web.StreamResponse:
        """The last lines, and with `follow` each new one."""
        queries.check_known(request, ("tail", "follow"))
        asked = _asked(request, request.match_info["name"])
        response = await self._answer(request, self._replicas, asked)
        if response is None:
            raise unknown("replica", asked.name, [one.replica for _, one in self._boards.models.replicas()])
        return response

    async def training_logs(self, request: web.Request) -> web.StreamResponse:
        """Likewise of one member of a job; without `member`, of its first one."""
        queries.check_known(request, ("member", "tail", "follow"))
        job = request.match_info["name"]
        members = self._boards.training.members(job)
        if not members:
            raise unknown("training job", job, self._boards.training.names())
        asked = _asked(request, request.query.get("member") or members[0])
        if asked.name.rpartition("-")[0] != job:
            raise unknown("member", asked.name, members)
        response = await self._answer(request, self._training, asked)
        if response is None:
            raise refuse(
                HTTPStatus.NOT_FOUND, "no-output", f"there is no output of {asked.name} yet",
                remedy=f"see what it waits for: relume train describe {job}",
            )  # fmt: skip
        return response

    async def _answer(self, request: web.Request, source: Source, asked: _Asked) -> web.StreamResponse | None:
        """The output; None when there is none of this name."""
        last = await source.tail(asked.name, asked.lines)
        if last is None:
            return None
        if asked.follow:
            return await self._streams.serve(request, LOG, self._lines(source, asked))
        return web.Response(body=b"".join(_line(line) for line in last), headers={"Content-Type": CONTENT})

    async def _lines(self, source: Source, asked: _Asked) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._streams.ticking(source.follow(asked.name, asked.lines))) as ticking:
            async for line in ticking:
                yield b"" if line is None else _line(line)


class NoTrainingLogs:
    """For a process that runs no training jobs. Both raise ProblemError."""

    async def tail(self, member: str, lines: int) -> Sequence[str] | None:  # noqa: ARG002 - the port's shape
        """See `deploy.api.ports.TrainingLogs`."""
        raise _not_kept(member)

    def follow(self, member: str, lines: int) -> AsyncIterator[str]:  # noqa: ARG002 - the port's shape
        """See `deploy.api.ports.TrainingLogs`."""
        raise _not_kept(member)


def _not_kept(member: str) -> ProblemError:
    return refuse(
        HTTPStatus.NOT_FOUND, "not-kept", f"this process runs no training jobs, so it has no output of {member}",
        remedy="ask the relume cluster of its node: give --admin its admin port",
    )  # fmt: skip


def _asked(request: web.Request, name: str) -> _Asked:
    lines = queries.number(request, "tail", 100, least=0)
    return _Asked(name, lines, queries.flag(request, "follow"))


def _line(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace") + b"\n"
