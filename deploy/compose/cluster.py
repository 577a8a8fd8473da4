"""The cluster as a part: the allocator of the pool, and the adapter that runs replicas on this machine.

There is one of them at a time. Another one stands by twice: for the data folder (on one machine, where it then finds
the replicas that the first one left), and for the leadership of the pool (anywhere).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.api.ports import Reading
from deploy.compose.part import readings, until_one_ends
from deploy.local.cluster import ClusterStats, LocalCluster
from deploy.local.folder import DataFolder
from deploy.local.keeping import Keeper, NoKeeper
from deploy.local.settings import LocalSettings
from deploy.local.training.local import TrainingStats
from deploy.settings.gpus import made_up_cards, parse_gpus
from deploy.settings.settings import Settings
from events.clock import Clock
from events.log import EventLog
from events.units import Seconds
from events.writer import EventWriter
from preemption.loop import Allocator, AllocatorSettings

logger = logging.getLogger(__name__)

TOLD_AFTER = 5.0
"""Seconds at the start after which it is told that it does not lead yet."""
TakeFolder = Callable[[], Coroutine[Any, Any, DataFolder]]


@dataclass(frozen=True, slots=True)
class ClusterHow:
    """How one process runs the cluster. `leader` is its name in the log; `drain` what replicas may take at the end."""

    leader: str
    local: LocalSettings
    drain: Seconds


class ClusterPart:
    """Allocator and local cluster of one process. `take_folder` returns once the data folder is this process's."""

    def __init__(self, log: EventLog, clock: Clock, take_folder: TakeFolder, how: ClusterHow) -> None:
        self._event_log = log
        self._clock = clock
        self._take_folder = take_folder
        self._how = how
        writer = EventWriter(f"relume/allocator/{how.leader}", clock)
        self.allocator = Allocator(log, clock, writer, AllocatorSettings(leader=how.leader, node=how.local.node))
        self.folder_taken = asyncio.Event()
        """Set once the data folder is this process's."""
        self._serves = False
        self._allocating: asyncio.Task[None] | None = None
        self._cluster: LocalCluster | None = None
        self.keeper: Keeper = NoKeeper()
        """The node's weights; set before the start."""
        self.training_logs = TrainingOutput(lambda: self._cluster)

    async def start(self) -> None:
        """Return when this process leads and its replicas are looked after; until then it stands by.

        Raises what the roles' own starts raise.
        """
        folder = await self._take_folder()
        self.folder_taken.set()
        writer = EventWriter(f"relume/cluster/{self._how.local.node}", self._clock)
        self._cluster = LocalCluster(self._event_log, writer, self._clock, folder, self._how.local)
        self._cluster.keeper = self.keeper
        self.allocator.tell(self._cluster.recorded)
        self._allocating = asyncio.create_task(self.allocator.run(), name="allocator")
        leading = asyncio.create_task(self.allocator.caught_up.wait())
        both = {leading, self._allocating}
        try:
            done, _ = await asyncio.wait(both, timeout=TOLD_AFTER, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                logger.info("stands by for the leadership of the pool, or waits for the event log")
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leading.cancel()
        if self._allocating.done():
            await self._allocating
        writer.epoch = self.allocator.epoch
        await self._cluster.start()
        self._serves = True

    async def wait(self) -> None:
        """See `Part.wait`."""
        assert self._cluster is not None, "start it first"
        assert self._allocating is not None, "start it first"
        await until_one_ends(self._cluster.wait_broken(), self._allocating)

    async def stop(self, bound: Seconds) -> None:
        """Decide nothing any more; replicas drain as long as this process gives them, within `bound`. Training
        jobs save within it, and leave."""
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, each also when another fails
            if self._cluster is not None:
                steps.push_async_callback(self._cluster.stop, min(bound, self._how.drain), bound)
            steps.push_async_callback(self._end_allocator)

    async def _end_allocator(self) -> None:
        if self._allocating is not None:
            self._allocating.cancel()
            await asyncio.gather(self._allocating, return_exceptions=True)

    def missing(self) -> Sequence[str]:
        """See `Part.missing`."""
        if not self.folder_taken.is_set():
            return ["stands by: another relume has the data folder"]
        missing = []
        if not self.allocator.caught_up.is_set():
            missing.append("the allocator has not read the states yet, or stands by for the leadership of the pool")
        if not self._serves:
            missing.append("the local cluster has not taken its inventory and what is granted yet")
        return missing

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        yield from readings("allocator", self.allocator.stats)
        yield from readings("cluster", ClusterStats() if self._cluster is None else self._cluster.stats())
        yield from readings("training", TrainingStats() if self._cluster is None else self._cluster.training_stats())

    # Logs of replicas: see `deploy.api.ports.ReplicaLogs`.

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:
        """The last lines of a replica of this process; None for others."""
        return None if self._cluster is None else await self._cluster.logs.tail(replica, lines)

    async def follow(self, replica: str, lines: int) -> AsyncIterator[str]:
        """The last lines and then each new one; nothing while it stands by."""
        if self._cluster is not None:
            async for line in self._cluster.logs.follow(replica, lines):
                yield line


class TrainingOutput:
    """What training jobs of this process wrote, by member: see `deploy.api.ports.TrainingLogs`."""

    def __init__(self, cluster: Callable[[], LocalCluster | None]) -> None:
        self._cluster = cluster

    async def tail(self, member: str, lines: int) -> Sequence[str] | None:
        """The last lines of a member of this process; None for others."""
        cluster = self._cluster()
        return None if cluster is None else await cluster.training_logs.tail(member, lines)

    async def follow(self, member: str, lines: int) -> AsyncIterator[str]:
        """The last lines and then each new one; nothing while it stands by."""
        cluster = self._cluster()
        if cluster is not None:
            async for line in cluster.training_logs.follow(member, lines):
                yield line


def local_settings(settings: Settings) -> LocalSettings:
    """The local cluster's part of the settings."""
    gpus = settings.gpus
    made_up = made_up_cards(parse_gpus(gpus)) if isinstance(gpus, str) else ()
    return LocalSettings(
        node=settings.node_name, gpus=gpus if isinstance(gpus, int) else None, made_up=made_up, cpu=settings.cpu,
        gpu_limiter=settings.gpu_limiter, memory_bytes=settings.memory, sleep_memory=settings.sleep_memory,
    )  # fmt: skip
