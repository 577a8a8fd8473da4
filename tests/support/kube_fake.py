"""An API server for tests that need only one object, or scripted lists and watches: no network, any answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.resources import Json


class OneObject:
    """Holds one object; writes need its resource version. `away`: nobody answers."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.away = False
        self.writes = 0

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """The object."""
        del path, query
        self._answers()
        if self.object is None:
            raise ApiError(404, "NotFound", "there is none")
        return self.object

    async def create(self, path: str, body: Json, query: Mapping[str, str] | None = None) -> Json:
        """Make it, once."""
        del path, query
        self._answers()
        if self.object is not None:
            raise ApiError(409, "AlreadyExists", "it is there")
        return self._write(body)

    async def replace(self, path: str, body: Json) -> Json:
        """Change it, from what it is."""
        del path
        self._answers()
        if self.object is None or self.object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it was changed")
        return self._write(body)

    def _answers(self) -> None:
        if self.away:
            raise ApiUnavailable("nobody answers")

    def _write(self, body: Json) -> Json:
        self.writes += 1
        self.object = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}
        return self.object


class Scripted:
    """Answers lists and watches by a script: a list is a dict, a watch a list of events or an exception at its end."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Mapping[str, str]] = []
        self.done = asyncio.Event()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """The next list."""
        del path
        self.asked.append(dict(query or {}))
        answer = await self._next()
        if isinstance(answer, Exception):
            raise answer
        found: Json = answer
        return found

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Json]:
        """The next watch."""
        del path
        self.asked.append(dict(query))
        for event in await self._next():
            if isinstance(event, Exception):
                raise event
            yield event

    async def _next(self) -> Any:
        if not self._answers:
            self.done.set()
            await asyncio.Event().wait()
        return self._answers.pop(0)
