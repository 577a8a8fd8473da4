"""One replica's sleep: it falls asleep, sleeps, wakes, or ends where it cannot.

After a wake it must say the same first token as at its start before anybody is sent to it; else it is killed, and since
it is wanted, a cold start follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from deploy.local.process import ReplicaProcess
from deploy.local.sleeping import Bed, memory_of, size_of
from deploy.local.starting import Prepared, Tools
from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import Phase, ReplicaState
from events.units import Instant
from runtime.core.golden import Said
from runtime.ports import Sleep

logger = logging.getLogger(__name__)


class Resting(Protocol):
    """The replica, as far as its sleep goes."""

    name: ReplicaName
    state: ReplicaState | None
    grant: ReplicaGrant
    process: ReplicaProcess | None

    @property
    def prepared_start(self) -> Prepared | None:
        """How its engine is addressed."""

    @property
    def weights_path(self) -> str:
        """Where what its engine loaded lies, or empty."""

    def entered(self, phase: Phase) -> None:
        """A phase of its wake began."""

    def fell_asleep(self) -> None:
        """It serves nothing, and holds host memory only."""

    def woke(self) -> None:
        """It is ready again."""

    def stop(self, why: str) -> None:
        """End it, in order."""

    def kill(self, why: str) -> None:
        """End it at once; nothing has failed."""


class Rest:
    """The sleep of one replica. Used on the event loop only."""

    def __init__(self, tools: Tools, replica: Resting) -> None:
        self.golden: Said | None = None
        """Its first token; None: it cannot be compared with a later one, so it never sleeps."""
        self.since: Instant | None = None
        self.way: Sleep | None = None
        """How it sleeps; None: it does not."""
        self.kept = 0
        """Bytes of host memory that it holds while it sleeps."""
        self.weights = 0
        """Bytes of what it loaded."""
        self._tools = tools
        self._replica = replica
        self._turning: asyncio.Task[None] | None = None

    @property
    def levels(self) -> frozenset[int]:
        """At which it can sleep now."""
        prepared = self._replica.prepared_start
        if prepared is None or self.golden is None or not self._tools.berths.capacity:
            return frozenset()
        return frozenset(way.level for way in prepared.abilities.sleeps)

    @property
    def dozing(self) -> bool:
        """It is falling asleep."""
        turning = self._turning is not None and not self._turning.done()
        return turning and self._replica.state is ReplicaState.DRAINING

    @property
    def unbounded(self) -> bool:
        """Its memory is what sleepers may have, not what its declaration says."""
        return self.dozing or self._replica.state is ReplicaState.SLEEPING

    def doze(self, level: int) -> None:
        """Fall asleep at a level that it can."""
        self._turn(self._fall_asleep(level))

    def wake(self) -> None:
        """Wake."""
        self.since = None
        self._tools.berths.leave(self._replica.name)
        self._tools.berths.wakes += 1
        self._turn(self._wake())

    def end(self) -> list[asyncio.Task[None]]:
        """The replica ends. Returns what must be waited for."""
        self._tools.berths.leave(self._replica.name)
        if self._turning is None:
            return []
        self._turning.cancel()
        return [self._turning]

    def _turn(self, work: Coroutine[Any, Any, None]) -> None:
        self._turning = asyncio.get_running_loop().create_task(work, name=f"sleep of {self._replica.name}")
        self._turning.add_done_callback(self._turned)

    def _turned(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("the sleep of replica %s broke", self._replica.name, exc_info=error)
            self._replica.kill(f"its sleep broke: {error}")

    async def _fall_asleep(self, level: int) -> None:
        prepared, process = self._replica.prepared_start, self._replica.process
        assert prepared is not None
        assert process is not None
        way = next(one for one in prepared.abilities.sleeps if one.level == level)
        self.weights = await asyncio.to_thread(size_of, self._replica.weights_path)
        copied = self.weights if level == 1 and self._replica.grant.placement.gpus else 0
        wrong = self._lie_down(await asyncio.to_thread(memory_of, process.shim_pid) + copied)
        wrong = wrong or await self._bed(prepared).sleep(way)
        if not wrong:  # once it sleeps it holds less, or more, than was thought
            self.kept = await asyncio.to_thread(memory_of, process.shim_pid)
            wrong = self._lie_down(self.kept)
        if wrong:
            logger.warning("%s does not sleep: %s", self._replica.name, wrong)
            self._replica.stop(f"drained; it does not sleep: {wrong}")
            return
        self.way, self.since = way, self._tools.clock.now()
        self._replica.fell_asleep()

    def _lie_down(self, kept: int) -> str:
        berths = self._tools.berths
        if berths.enter(self._replica.name, kept, self._replica.stop):
            return ""
        return f"it keeps {kept} bytes, and {berths.capacity} are set aside for all that sleep"

    async def _wake(self) -> None:
        prepared = self._replica.prepared_start
        assert prepared is not None
        assert self.way is not None
        assert self.golden is not None
        bed = self._bed(prepared)
        wrong = await bed.wake(self.way)
        if not wrong:
            self._replica.entered(Phase.WARMUP)
            wrong = await bed.compare(prepared.probe, self.golden)
        if wrong:
            self._tools.berths.failed_wakes += 1
            logger.warning("%s did not wake as it fell asleep: %s", self._replica.name, wrong)
            self._replica.kill(f"it did not wake as it fell asleep: {wrong}")
            return
        self.way = None
        self._replica.woke()

    def _bed(self, prepared: Prepared) -> Bed:
        return Bed(self._tools.prober, self._tools.clock, prepared.wanted, self._tools.settings.sleep_bound)
