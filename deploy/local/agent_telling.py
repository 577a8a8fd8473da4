"""What the agent tells: the node's weights as a state, whole, newest only; and news of fetches, which may be lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from coldstart.cache.inventory import Cached
from coldstart.cache.wanting import Got, Wanted
from coldstart.core.budget import ENGINE_PHASES, Tier
from deploy.local.agent import Agent
from deploy.local.agent_facts import Disk, look, tier_of
from deploy.local.agent_view import AgentView, Size
from deploy.local.flight import Why, Yielded
from events.clock import Clock
from events.log import EventLog, LogUnavailable
from events.types.caches import (
    MOST_CONTENTS,
    CachedWeights,
    CacheObserved,
    ModelWarmth,
    WeightsEvicted,
    WeightsFailed,
    WeightsFetched,
    WeightsFetching,
    WeightsFetchStarted,
)
from events.types.replicas import Phase
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

APART: Final = Seconds(1.0)
"""Between two states: a fetch moves all the time, and nobody reads faster."""
LOOK_EVERY: Final = Seconds(30.0)
"""Uses begin and end without an event, and pages leave the memory."""
AGAIN_EVERY: Final = Seconds(60.0)
"""A state that has not changed is told again: who places replicas takes an agent that is silent for three times as long
for gone (`preemption.core.view.Locality`)."""
FORGETS: Final = 10_000
"""Digests whose reason for going is remembered until it is told."""


class Teller:
    """Fulfils `agent.Told`. Used on the event loop; `run` publishes."""

    def __init__(self, agent: Agent, view: AgentView, log: EventLog, writer: EventWriter, node: str) -> None:
        self._agent = agent
        self._view = view
        self._log = log
        self._writer = writer
        self._node = node
        self._marked = asyncio.Event()
        self._told: CacheObserved | None = None
        self._told_at = Instant(0.0)
        self._gone: dict[str, str] = {}
        self.after: list[Callable[[Wanted, BaseException | None], None]] = []
        """Who else wants to hear the end of a fetch."""
        self.peer = ""
        """Where other nodes read these weights."""
        self.dropped = 0
        self.fetches = 0
        self.failures = 0
        self.fetched_bytes = 0
        self.evictions = 0

    @property
    def state(self) -> CacheObserved | None:
        """What was told last."""
        return self._told

    def mark(self) -> None:
        """Something changed."""
        self._marked.set()

    def goes(self, digest: str, why: str) -> None:
        """Why weights will be missing: ``asked`` or ``damaged``; without a word it was for room."""
        if len(self._gone) < FORGETS:
            self._gone[digest] = why
        self.mark()

    def began(self, wanted: Wanted, source: str, why: Why) -> None:
        """See `Told`."""
        models = self._view.models_of(wanted)
        self._news(WeightsFetchStarted(node=self._node, source=source, why=why.value, models=models))
        self.mark()

    def ended(self, wanted: Wanted, got: Got) -> None:
        """See `Told`."""
        self._view.sizes[wanted] = Size(got.manifest.bytes, len(got.manifest.files))
        if not got.hit:
            self.fetches += 1
            self.fetched_bytes += got.transferred
            manifest = got.manifest
            self._news(
                WeightsFetched(
                    node=self._node, source=manifest.source, digest=manifest.digest, bytes=manifest.bytes,
                    transferred=got.transferred, seconds=got.seconds, models=self._view.models_of(wanted),
                    times=got.times,
                )
            )  # fmt: skip
        self._end(wanted, None)

    def failed(self, wanted: Wanted, source: str, error: BaseException) -> None:
        """See `Told`."""
        if not isinstance(error, Yielded):
            self.failures += 1
            logger.warning("weights could not be fetched: %s", error)
        self._news(
            WeightsFailed(
                node=self._node, source=source, reason=type(error).__name__, message=str(error)[:2000],
                models=self._view.models_of(wanted),
            )
        )  # fmt: skip
        self._end(wanted, error)

    def _end(self, wanted: Wanted, error: BaseException | None) -> None:
        for hear in self.after:
            hear(wanted, error)
        self.mark()

    def _news(self, data: object) -> None:
        if not self._log.offer(self._writer.envelope(data)):
            self.dropped += 1

    async def run(self, clock: Clock) -> None:
        """Publish until cancelled; a log that takes nothing gets the newest state once it does."""
        while True:
            patience = APART if self._agent.flying() else LOOK_EVERY
            try:
                async with asyncio.timeout(patience):
                    await self._marked.wait()
            except TimeoutError:
                pass
            self._marked.clear()
            if not self._agent.is_open:
                continue  # who writes to the folder tells of it
            try:
                await self.tell(clock.now())
            except LogUnavailable as error:
                logger.warning("the state of this node's weights waits for the log: %s", error)
                self._marked.set()
            except OSError as error:
                logger.warning("the node's weights cannot be read: %s", error)
            await clock.sleep_until(Instant(clock.now() + APART))

    async def tell(self, now: Instant) -> None:
        """Publish the state if it is another than before, or was told a while ago."""
        state = await self._state()
        before, self._told = self._told, state
        if state == before and now < self._told_at + AGAIN_EVERY:
            return
        try:
            await self._log.append([self._writer.envelope(state)])
        except LogUnavailable:
            self._told = before
            raise
        self._told_at = now
        self._tell_evictions(before, state)

    def _tell_evictions(self, before: CacheObserved | None, state: CacheObserved) -> None:
        if state.untold:
            return
        there = {one.digest for one in state.contents}
        for one in () if before is None else before.contents:
            if one.digest not in there:
                self.evictions += 1
                why = self._gone.pop(one.digest, "room")
                told = WeightsEvicted(
                    node=self._node, source=one.source, digest=one.digest, bytes=one.bytes, why=why
                )  # fmt: skip
                self._news(told)

    async def _state(self) -> CacheObserved:
        agent, named = self._agent, self._view.by_weights()
        disk = await asyncio.to_thread(look, agent.layout, agent.settings.room, tuple(named))
        tiers = await asyncio.to_thread(self._tiers, disk, tuple(named))
        models = {one.digest: names for one, names in _by_digest(disk, named)}
        contents = sorted((_content(one, models) for one in disk.contents), key=lambda one: (-one.bytes, one.digest))
        return CacheObserved(
            node=self._node, used_bytes=disk.space.used, capacity_bytes=disk.space.capacity,
            contents=tuple(contents[:MOST_CONTENTS]), untold=max(0, len(contents) - MOST_CONTENTS),
            fetching=tuple(
                WeightsFetching(
                    source=one.source, bytes=one.seen.total, done=one.seen.done, rate=one.seen.rate,
                    why=one.why.value, waiting=one.waiting,
                )
                for one in agent.in_flight()
            ),
            models=self._warmth(disk, tiers), network=agent.speeds.network, disk=agent.speeds.disk,
            digest=agent.speeds.digest, peer=self.peer,
        )  # fmt: skip

    def _tiers(self, disk: Disk, wanted: tuple[Wanted, ...]) -> dict[Wanted, Tier]:
        return {one: tier_of(self._agent.layout, disk.here.get(one)) for one in wanted[:MOST_CONTENTS]}

    def _warmth(self, disk: Disk, tiers: dict[Wanted, Tier]) -> tuple[ModelWarmth, ...]:
        found = []
        for name in sorted(self._view.models)[: 2 * MOST_CONTENTS]:
            model = self._view.models[name]
            if model.wanted is None or model.wanted not in tiers:
                continue
            manifest, tier = disk.here.get(model.wanted), tiers[model.wanted]
            known = self._view.sizes.get(model.wanted)
            size = manifest.bytes if manifest is not None else None if known is None else known.bytes
            seconds, missing = self._seconds(name, tier, size), self._missing(model.wanted, tier, size)
            found.append(
                ModelWarmth(
                    model=name, tier=tier, bytes=size, seconds=seconds, revision=model.revision, missing=missing
                )
            )  # fmt: skip
        return tuple(found)

    def _missing(self, wanted: Wanted, tier: Tier, size: int | None) -> int | None:
        """What a start would have to fetch: all, less what a fetch that runs already has."""
        if tier is not Tier.REMOTE:
            return 0
        seen = self._agent.seen(wanted)
        return size if seen is None or not seen.total else max(0, seen.total - seen.done)

    def _seconds(self, name: str, tier: Tier, size: int | None) -> float | None:
        """Engine's usual time, and what comes before it: the fetch as it usually takes, where it must be fetched.

        From the disk the pages are read while the engine loads: of both the larger counts.
        """
        estimate = self._view.models[name].estimate
        engine = estimate.typical(ENGINE_PHASES)
        if engine is None:
            return None
        speeds = self._agent.speeds
        if tier is Tier.REMOTE:
            fetch = estimate.typical((Phase.FETCH,), 0.9)
            return round(engine + fetch - estimate.hidden(fetch), 3) if fetch else None
        if tier is Tier.DISK and size is not None and speeds.disk:
            return round(max(engine, size / speeds.disk), 3)
        return round(engine, 3)


def _by_digest(disk: Disk, named: dict[Wanted, list[str]]) -> list[tuple[Cached, tuple[str, ...]]]:
    names: dict[str, set[str]] = {}
    for wanted, manifest in disk.here.items():
        names.setdefault(manifest.digest, set()).update(named.get(wanted, ()))
    return [(one, tuple(sorted(names.get(one.digest, ())))) for one in disk.contents]


def _content(one: Cached, models: dict[str, tuple[str, ...]]) -> CachedWeights:
    newest = max(one.manifests, key=lambda manifest: manifest.fetched_at)
    return CachedWeights(
        source=newest.source, digest=one.digest, bytes=one.bytes, models=models.get(one.digest, ()),
        pinned=one.pinned, in_use=one.in_use, fetched_at=newest.fetched_at,
    )  # fmt: skip
