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
from deploy.api.weightshapes import Collected, FetchBody, Fetching, HaveBody, Having, Held
from deploy.local.flight import Flight, Why, Yielded
from deploy.local.holders import Holders
from deploy.local.keeping import Had
from deploy.local.node_agent import NodeAgent
from events.units import Bytes, Instant, format_instant

ANSWER: Final = 5.0
"""Seconds after which a fetch that goes on is told as it stands."""
ANSWER_HOLDERS: Final = 1.0
"""Likewise to who starts pods: people follow a start by it."""


class LocalWeights:
    """Fulfils `deploy.api.weight_ports.NodeWeights`."""

    def __init__(self, node: NodeAgent, holders: Holders) -> None:
        self._node = node
        self._holders = holders

    async def fetch(self, wanted: FetchBody) -> Fetching:
        """See the port. Its source is asked whether it has something newer."""
        asked = _wanted(wanted)
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

    async def have(self, wanted: HaveBody) -> Having:
        """See the port. A hit asks nobody, as for a start on this machine."""
        asked, agent = _wanted(wanted), self._node.agent
        told: list[Transferred] = []

        def listen(seen: Transferred | None) -> None:
            told[:] = [] if seen is None else [seen]

        source = ""
        try:
            source = agent.shown(asked)
            async with asyncio.timeout(ANSWER_HOLDERS):
                had = await agent.have(asked, listen)
        except TimeoutError:
            seen = told[0] if told else Transferred(Bytes(0), Bytes(0), None, Instant(0.0))
            return Having(source=source, bytes=seen.total, done=seen.done, rate=seen.rate)
        except (CacheError, OSError) as error:
            raise _problem(error) from error
        return self._given(wanted.holder, had, source)

    def _given(self, holder: str, had: Had, source: str) -> Having:
        """The weights are the holder's."""
        snapshot, *rest = had.path.relative_to(self._node.agent.layout.snapshots).parts
        try:
            self._holders.take(holder, snapshot, had.use)
        except (CacheError, OSError) as error:
            had.end()
            raise _problem(error) from error
        folder = (self._node.agent.layout.snapshots / snapshot).relative_to(self._node.agent.layout.root)
        return Having(
            source=source, bytes=had.bytes, done=had.bytes, snapshot=str(folder), file="/".join(rest),
            tier=had.tier.value, least_seconds=had.least,
        )  # fmt: skip

    async def hold(self, holder: str, *, held: bool) -> Held:
        """See the port."""
        if not held:
            self._holders.end(holder)
            return Held(holder=holder, until=None)
        until = self._holders.prolong(holder)
        if until is None:
            raise refuse(
                HTTPStatus.NOT_FOUND, "no-holder", f"{holder} holds no weights of this node",
                remedy="ask for them again: POST /v1alpha1/cache/have",
            )  # fmt: skip
        return Held(holder=holder, until=format_instant(until))

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

    async def verify(self, digest: str) -> bool:
        """See the port."""
        try:
            return await self._node.verify(digest)
        except OSError as error:
            raise _problem(error) from error

    async def collect(self) -> Collected:
        """See the port."""
        try:
            cleared = await self._node.collect()
        except OSError as error:
            raise _problem(error) from error
        return Collected(
            evicted=list(cleared.evicted), partials=cleared.partials, orphans=cleared.orphans, bytes=cleared.bytes
        )


def _wanted(body: FetchBody) -> Wanted:
    access = Access(body.credentials, tuple(sorted(body.headers.items())), body.endpoint, body.region)
    return Wanted(body.uri, body.digest, tuple(body.include), tuple(body.exclude), access)


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
