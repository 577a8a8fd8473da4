"""A part of relume, as the process that runs it sees it: started, watched, asked, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import fields
from typing import Any, Final, Protocol

from deploy.api.ports import Reading
from events.units import Seconds

_LEVELS: Final = frozenset({
    "connections", "held", "running", "buffered_bytes", "upstream_idle", "queue_depth", "news_pending", "models",
    "replicas", "ready", "starting", "tending", "lags", "gateways", "missing", "upstream_opening", "errands",
    "unproven", "sleeping", "sleeping_bytes",
})  # fmt: skip
"""Fields of the roles' counts that go up and down; all others only count up."""


class Part(Protocol):
    """Gateway, autoscaler or cluster. `stop` must also stand a part that did not start, or not wholly."""

    async def start(self) -> None:
        """Return when it does its work. Raises what keeps it from that."""

    async def wait(self) -> None:
        """Return or raise once it cannot go on."""

    async def stop(self, bound: Seconds) -> None:
        """End it; what it serves may finish within `bound`."""

    def missing(self) -> Sequence[str]:
        """What is not ready, a sentence each."""

    def read(self) -> Iterable[Reading]:
        """Its numbers; zeros before the start."""


class InBackground:
    """A part whose start may take as long as another process lives (it stands by): `start` returns at once."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to start it; `wait` raises what keeps it from that."""
        self._starting = asyncio.create_task(self._part.start(), name="part-start")

    async def wait(self) -> None:
        """See `Part.wait`."""
        assert self._starting is not None, "start it first"
        await asyncio.shield(self._starting)
        await self._part.wait()

    async def stop(self, bound: Seconds) -> None:
        """See `Part.stop`."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._part.stop(bound)

    def missing(self) -> Sequence[str]:
        """See `Part.missing`."""
        return self._part.missing()

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        return self._part.read()


async def until_one_ends(*watched: Coroutine[Any, Any, None] | asyncio.Task[Any]) -> None:
    """Return when the first of these returns, raise what it raised. Coroutines among them end with it, tasks go on."""
    tasks = [asyncio.ensure_future(one) for one in watched]
    own = [task for task, one in zip(tasks, watched, strict=True) if task is not one]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)


def readings(role: str, counts: object) -> Iterable[Reading]:
    """The counts of a role as ``relume_ROLE_FIELD``; counters end in ``_total``."""
    for field in fields(counts):  # type: ignore[arg-type]  # every role's counts are a dataclass
        level = field.name in _LEVELS
        yield Reading(
            name=f"{role}_{field.name}" + ("" if level else "_total"),
            help=f"{role}: {field.name.replace('_', ' ')}" + ("" if level else " since the start"),
            value=float(getattr(counts, field.name)),
            kind="gauge" if level else "counter",
        )


def url_of(tls: bool, host: str, port: int) -> str:
    """An address as people and programs write it."""
    shown = f"[{host}]" if ":" in host else host
    return f"http{'s' if tls else ''}://{shown}:{port}"
