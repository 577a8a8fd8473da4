"""Prewarming: the agent does what `coldstart.core.prewarm` decides, behind whatever is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coldstart.adapters.sources import source_for
from coldstart.cache import inventory
from coldstart.cache.filling import listed
from coldstart.cache.inventory import Cached
from coldstart.cache.wanting import Wanted
from coldstart.core.cache.errors import CacheError, InUse, Pinned, Retryable
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.quotas import matching
from coldstart.core.prewarm import Candidate, Prewarm, PrewarmPolicy, Room, decide
from deploy.local.agent import Agent
from deploy.local.agent_facts import Disk, look
from deploy.local.agent_view import AgentView, Size
from deploy.local.flight import Why, Yielded
from events.clock import Clock
from events.units import Bytes, Instant, Seconds

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = Seconds(60.0)
"""At the latest: demand fades without an event."""
AT_LEAST_APART: Final = Seconds(1.0)
FIRST_RETRY: Final = Seconds(60.0)
LONGEST_RETRY: Final = Seconds(3600.0)
"""Failed fetches ahead of demand are tried again after 1, 2, 4 … 60 minutes (field note on cold starts, §4)."""
YIELDED: Final = Seconds(1.0)
"""One that made way is looked at again so soon; while something is asked for, nothing is begun anyway."""
USUAL_SPEED: Final = 100e6
"""Bytes a second that a source gives as long as none was measured: a gigabit, less its framing."""


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    retry_at: Instant


class Prewarmer:
    """Decides and acts when woken, and every minute. Used on the event loop."""

    def __init__(self, agent: Agent, view: AgentView, clock: Clock, policy: PrewarmPolicy) -> None:
        self._agent = agent
        self._view = view
        self._clock = clock
        self._policy = policy
        self._woken = asyncio.Event()
        self._failures: dict[Wanted, _Failures] = {}
        self.decided = Prewarm()
        """The last decision."""

    def wake(self) -> None:
        """Something changed."""
        self._woken.set()

    def failed(self, wanted: Wanted, error: BaseException) -> None:
        """A fetch did not succeed."""
        now = self._clock.now()
        if isinstance(error, Yielded):
            self._failures[wanted] = _Failures(0, Instant(now + YIELDED))
        else:
            count = self._failures.get(wanted, _Failures(0, now)).count + 1
            pause = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(count - 1, 16))
            self._failures[wanted] = _Failures(count, Instant(now + pause))
        self.wake()

    def succeeded(self, wanted: Wanted) -> None:
        """A fetch did."""
        self._failures.pop(wanted, None)
        self.wake()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._patience()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            if self._agent.is_open:
                try:
                    await self.once()
                except OSError as error:  # a full or broken disk: starts say so; this one tries again
                    logger.warning("prewarming could not read the node's weights: %s", error)
            await self._clock.sleep_until(Instant(self._clock.now() + AT_LEAST_APART))

    def _patience(self) -> float:
        now = self._clock.now()
        due = [one.retry_at - now for one in self._failures.values()]
        return max(AT_LEAST_APART, min([LOOK_EVERY, *due]))

    async def once(self) -> None:
        """Look, decide, act."""
        named = self._view.by_weights()
        self._forget(named)
        disk = await asyncio.to_thread(look, self._agent.layout, self._agent.settings.room, tuple(named))
        now = self._clock.now()
        keys = {_key(wanted): wanted for wanted in named}
        candidates = [self._candidate(wanted, names, disk, now) for wanted, names in named.items()]
        candidates += self._others(named, disk)
        self.decided = decide(candidates, _room(disk, self._agent.settings.room), self._policy, now)
        await self._act(self.decided, keys, disk)

    def _forget(self, named: Mapping[Wanted, object]) -> None:
        for kept in (self._view.sizes, self._failures):
            for wanted in [one for one in kept if one not in named]:
                del kept[wanted]

    def _candidate(self, wanted: Wanted, names: list[str], disk: Disk, now: Instant) -> Candidate:
        manifest = disk.here.get(wanted)
        blob = None if manifest is None else disk.holder(manifest.digest)
        size = self._view.sizes.get(wanted) if manifest is None else Size(manifest.bytes, len(manifest.files))
        models = [self._view.models[name] for name in names]
        speed = self._agent.networks.of(wanted) or USUAL_SPEED
        # The same for what is here and what is not: nobody takes turns.
        absence = Seconds((0 if size is None else size.bytes) / speed)
        failed = self._failures.get(wanted)
        return Candidate(
            key=_key(wanted), bytes=None if size is None else size.bytes,
            # Whose size is not known yet has no worth yet: then its rate says whether to ask.
            rate=sum(model.rate(now) for model in models if size is None or not model.priced), absence=absence,
            worth=sum(model.worth(absence, Bytes(0) if size is None else size.bytes) for model in models),
            here=manifest is not None, fetching=wanted in self._agent.flying(),
            wanted=any(model.counted_on(now) for model in models),
            pinned=blob is not None and blob.pinned,
            held=(blob is not None and blob.in_use) or self._agent.awaited(wanted),
            retry_at=None if failed is None else failed.retry_at, files=0 if size is None else size.files,
            quotas=self._quotas(wanted),
        )  # fmt: skip

    def _others(self, named: Mapping[Wanted, object], disk: Disk) -> list[Candidate]:
        """What is here and nobody names: it goes first, unless it is pinned or in use."""
        return [
            Candidate(
                key=one.digest, bytes=one.bytes, rate=0.0, absence=Seconds(0.0), here=True, pinned=one.pinned,
                held=one.in_use, files=len(one.blobs), quotas=self._quotas_of(one),
            )
            for one in disk.free_of(tuple(named))
        ]  # fmt: skip

    def _quotas(self, wanted: Wanted) -> tuple[str, ...]:
        quotas = self._agent.settings.room.quotas
        try:
            return matching(quotas, self._agent.shown(wanted)) if quotas else ()
        except CacheError:  # its fetch says why no source reads it
            return ()

    def _quotas_of(self, one: Cached) -> tuple[str, ...]:
        quotas = self._agent.settings.room.quotas
        return tuple(dict.fromkeys(name for each in one.manifests for name in matching(quotas, each.source)))

    async def _act(self, made: Prewarm, keys: Mapping[str, Wanted], disk: Disk) -> None:
        agent = self._agent
        digests = {_key(wanted): manifest.digest for wanted, manifest in disk.here.items()}
        agent.cache.keep(frozenset(digests[key] for key in made.keep if key in digests))
        for key in made.stop:
            agent.stop(keys[key])
        if made.ask:
            await asyncio.gather(*(self._ask(keys[key]) for key in made.ask[:8]))
            self.wake()
        if agent.busy():
            return  # what is asked for goes first; its end wakes us
        for key in made.evict:
            await asyncio.to_thread(self._evict, digests.get(key, key), disk)
        for key in made.fetch:
            agent.fly(keys[key], Why.PREWARM)

    def _evict(self, digest: str, disk: Disk) -> None:
        one = disk.holder(digest)
        if one is None:
            return
        with self._agent.cache.changing:
            try:
                inventory.evict(self._agent.layout, one)
            except (InUse, Pinned):
                return  # somebody began to use it just now
            self._agent.layout.empty_trash()

    async def _ask(self, wanted: Wanted) -> None:
        """How large it is."""
        try:
            source = source_for(wanted, self._agent.settings.fetching, self._clock)
            files = (await asyncio.to_thread(listed, wanted, source)).files
            self._view.sizes[wanted] = Size(Bytes(sum(file.bytes for file in files)), len(files))
        except (CacheError, Retryable, OSError) as error:
            logger.info("the size of weights cannot be asked for: %s", error)
            self.failed(wanted, error)


def _key(wanted: Wanted) -> str:
    return f"{wanted.digest or ''} {wanted.identity}"


def _room(disk: Disk, policy: RoomPolicy) -> Room:
    """What is neither blobs nor makes way (partial files, quarantine) takes room as well. A fetch that runs counts with
    all its bytes by itself."""
    taken = sum(one.bytes for one in disk.contents) + disk.gives_way
    return Room(disk.space.capacity, Bytes(max(0, disk.space.used - taken)), policy.quotas)
