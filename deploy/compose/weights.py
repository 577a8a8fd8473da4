"""What people ask of this node's agent, through the admin port."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from coldstart.cache.wanting import Got, Wanted
from coldstart.core.cache.errors import CacheError, InUse, NotCached, Pinned, UnsupportedSource
from coldstart.core.cache.transfer import Transferred
from coldstart.core.cache.wanted import Access
from deploy.api.problem import ProblemError, refuse
from deploy.api.weightshapes import FetchBody, Fetching
from deploy.local.flight import Flight, Why, Yielded
from deploy.local.node_agent import NodeAgent

ANSWER: Final = 5.0
"""Seconds after which a fetch that goes on is told as it stands."""


class LocalWeights:
    """Fulfils `deploy.api.weight_ports.NodeWeights`."""

    def __init__(self, node: NodeAgent) -> None:
        self._node = node

    async def fetch(self, wanted: FetchBody) -> Fetching:
        """See the port. Its source is asked whether it has something newer."""
        access = Access(wanted.credentials, tuple(sorted(wanted.headers.items())), wanted.endpoint, wanted.region)
        asked = Wanted(wanted.uri, wanted.digest, tuple(wanted.include), tuple(wanted.exclude), access)
        agent = self._node.agent
        try:
            flight = agent.fly(asked, Why.DEMAND)
            flight.waiting += 1
            try:
                await asyncio.wait({flight.done}, timeout=ANSWER)
            finally:
                flight.waiting -= 1
                agent.land(flight)
            return _told(flight, agent.shown(asked))
        except (CacheError, OSError) as error:
            raise _problem(error) from error

    async def prewarm(self, model: str) -> str:
        """See the port."""
        try:
            return self._node.prewarm(model)
        except KeyError:  # declared a moment ago, and not heard of here yet
            raise refuse(
                HTTPStatus.NOT_FOUND, "model-not-found", f"the agent does not know of {model!r} yet", remedy="try again"
            ) from None

    async def pin(self, name: str, *, pinned: bool) -> str:
        """See the port."""
        try:
            return await self._node.pin(name, pinned)
        except (CacheError, OSError) as error:
            raise _problem(error) from error

    async def evict(self, name: str) -> str:
        """See the port."""
        try:
            return await self._node.evict(name)
        except (CacheError, OSError) as error:
            raise _problem(error) from error


def _told(flight: Flight, source: str) -> Fetching:
    if flight.done.done() and not isinstance(flight.done.exception(), Yielded):
        return _here(flight.done.result())
    seen: Transferred = flight.pace.seen()
    return Fetching(source=source, bytes=seen.total, done=seen.done, rate=seen.rate)


def _here(got: Got) -> Fetching:
    manifest = got.manifest
    return Fetching(
        source=manifest.source, bytes=manifest.bytes, done=manifest.bytes, rate=None, path=str(got.path),
        digest=manifest.digest, hit=got.hit, seconds=round(got.seconds, 6),
    )  # fmt: skip


def _problem(error: CacheError | OSError) -> ProblemError:
    name = type(error).__name__
    remedy = error.remedy if isinstance(error, CacheError) else ""
    statuses: tuple[tuple[type[CacheError], HTTPStatus], ...] = (
        (NotCached, HTTPStatus.NOT_FOUND), (InUse, HTTPStatus.CONFLICT), (Pinned, HTTPStatus.CONFLICT),
        (UnsupportedSource, HTTPStatus.UNPROCESSABLE_ENTITY),
    )  # fmt: skip
    status = next((to for kind, to in statuses if isinstance(error, kind)), HTTPStatus.BAD_GATEWAY)
    return refuse(status, name, str(error), remedy=remedy)
