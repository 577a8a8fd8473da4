"""The node's agent as a part: the one writer of its weights, and what people ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from coldstart.core.cache.policy import Quota, RoomPolicy
from deploy.api.ports import Reading
from deploy.compose.cache_peers import cache_peer_settings
from deploy.compose.part import readings
from deploy.compose.weights import LocalWeights
from deploy.kubernetes.node_gpus import NodeGpus
from deploy.local import nvml
from deploy.local.agent import AgentSettings
from deploy.local.gpu_readings import GpuReadings, GpuSeen
from deploy.local.holders import Holders
from deploy.local.node_agent import NodeAgent, NodeSettings
from deploy.settings.cache_quotas import read_quotas
from deploy.settings.settings import SettingProblem, Settings, SettingsRefused
from events.clock import Clock
from events.log import EventLog
from events.units import Bytes, Seconds

logger = logging.getLogger(__name__)

FOLDER = "weights"
"""In the data folder; `relume cache` uses the same."""


class AgentPart:
    """The weights of this node. Its start does not wait for the folder: another process may write to it just now."""

    def __init__(self, root: Path, settings: Settings, log: EventLog, clock: Clock) -> None:
        self.weights = NodeAgent(root, node_settings(settings), log, clock)
        self._holders = Holders(self.weights.agent.layout, clock)
        self._gpus = GpuReadings(clock, nvml.driver())
        self.gpus = NodeGpus(settings.node_name, self._gpus, settings.pod_resources, clock)
        """Likewise."""
        self._beside: list[asyncio.Task[None]] = []
        self.asked = LocalWeights(self.weights, self._holders)
        """For the admin port."""

    async def start(self) -> None:
        """See `Part.start`."""
        await asyncio.to_thread(self._holders.restore)
        for name, work in (("agent-holders", self._holders.run()), ("agent-gpus", self._gpus.run())):
            self._beside.append(asyncio.create_task(work, name=name))
        await self.weights.start()

    async def wait(self) -> None:
        """See `Part.wait`."""
        await self.weights.wait()

    async def stop(self, bound: Seconds) -> None:
        """See `Part.stop`. Fetches end at their next chunk and go on with the next start."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(1.0, bound)):
                await self.weights.stop()
        self._holders.close()

    def missing(self) -> Sequence[str]:
        """Nothing: what is here can be used, whoever writes."""
        return []

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        yield from _gpu_readings(self._gpus.seen)
        yield from readings("weights", self.weights.stats())
        state = self.weights.state()
        if state is not None:
            yield Reading("weights_used_bytes", "Bytes that the node's weights take.", state.used_bytes)
            yield Reading("weights_capacity_bytes", "Bytes that they may take.", state.capacity_bytes)
            yield Reading("weights_cached", "Weights that are here.", len(state.contents) + state.untold)
        yield Reading("weights_holders", "Pods and others that weights are held for.", len(self._holders))
        yield Reading("weights_fetching", "Fetches that run or wait for their turn.", len(self.weights.fetches()))
        speeds = self.weights.agent.speeds
        for name in ("network", "disk", "digest"):
            speed = getattr(speeds, name)
            if speed is not None:
                yield Reading(
                    "weights_bandwidth_bytes_per_second", "Bytes a second as measured.", speed, labels=(("of", name),)
                )  # fmt: skip


def _gpu_readings(seen: Sequence[GpuSeen]) -> Iterable[Reading]:
    """What the node's GPUs say of themselves; of what they do not say there is no number."""
    told = (
        ("gpu_memory_bytes", "Memory of the GPU.", "memory_bytes"),
        ("gpu_memory_used_bytes", "Memory of the GPU that anybody has.", "used_bytes"),
        ("gpu_busy_ratio", "Share of the time in which something ran on the GPU.", "busy"),
    )
    for name, about, field in told:
        for gpu in seen:
            value = getattr(gpu, field)
            if value is not None:
                yield Reading(name, about, float(value), labels=(("gpu", gpu.id), ("product", gpu.product)))


def _quotas(path: Path | None) -> tuple[Quota, ...]:
    try:
        return read_quotas(path)
    except ValueError as error:
        raise SettingsRefused([SettingProblem("cache_quotas", str(path), str(error), "mend the file")]) from error


def node_settings(settings: Settings) -> NodeSettings:
    """The agent's part of the settings. Raises SettingsRefused for files of peers or quotas that cannot be read."""
    capacity = settings.cache_capacity
    room = RoomPolicy(capacity=None if capacity is None else Bytes(capacity), quotas=_quotas(settings.cache_quotas))
    agent = AgentSettings(room=room, prewarm_rate=settings.cache_prewarm_rate)
    return NodeSettings(
        node=settings.node_name, agent=agent, scrub_rate=float(settings.cache_scrub_rate),
        peers=cache_peer_settings(settings),
    )  # fmt: skip
