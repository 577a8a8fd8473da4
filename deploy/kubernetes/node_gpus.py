"""What a node's agent knows of its GPUs: the driver's word beside the kubelet's, told anew when it has changed.

The driver is read first and the kubelet asked afterwards: a pod is given its devices before its containers start, so
whoever is on a card when it is read stands in the later answer, if a pod accounts for him at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

from deploy.api.gpushapes import DeviceClaimed, DeviceSeen, NodeGpusSeen
from deploy.api.problem import refuse
from deploy.kubernetes.pod_resources import SOCKET, Holding, PodResources, PodResourcesUnknown
from deploy.local.gpu_readings import GpuReadings, GpuSeen
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

WAITS: Final = Seconds(20.0)
"""For how long a question waits for news: less than who asks waits for an answer."""
MEMORY_STEP: Final = 50
"""Memory in use is news when it has changed by a fiftieth of the card..."""
MEMORY_EVERY: Final = Seconds(30.0)
"""...and not more often than this. All else is news at once. Chosen: it moves all the time while training runs."""
STANDS: Final = Seconds(150.0)
"""How long the kubelet's last answer stands while it gives none: it begins anew in seconds."""
OF_NVIDIA: Final = "nvidia.com/"
"""Resources whose devices are GPUs, or parts of them."""
SHARED: Final = "::"
"""In the id of a device that several pods share in turn, before its number (NVIDIA's device plugin)."""
NOT_OFFERED: Final = "its device plugin does not offer it"

Plugins = Mapping[str, tuple[str, ...]]
"""The healthy devices of each resource."""


class NodeGpus:
    """Fulfils `deploy.api.gpu_ports.NodeGpus`. `kubelet` None: nobody is asked who has which device."""

    def __init__(self, node: str, readings: GpuReadings, folder: Path | None, clock: Clock) -> None:
        self._node = node
        self._readings = readings
        self._kubelet = None if folder is None else PodResources(folder / SOCKET)
        self._clock = clock
        self._told = NodeGpusSeen(node=node, version=int(clock.now()), known=False, devices=[], claimed=[])
        """Versions begin with the time, so that one of before a restart is none of after it."""
        self._told_at = Instant(0.0)
        self._read = asyncio.Event()
        self._last: tuple[tuple[Holding, ...], Plugins] | None = None
        self._last_at = Instant(0.0)
        self._unknown = ""
        self._news = asyncio.Event()
        readings.told = self._take

    async def seen(self, after: int) -> NodeGpusSeen:
        """What there is once it is another than version `after`, and after a while anyway."""
        news = self._news if self._read.is_set() else self._read
        if self._told.version == after or not self._read.is_set():
            waiting = [asyncio.create_task(news.wait()),
                       asyncio.create_task(self._clock.sleep_until(Instant(self._clock.now() + WAITS)))]  # fmt: skip
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        if not self._read.is_set():
            raise refuse(HTTPStatus.SERVICE_UNAVAILABLE, "not-read-yet", "the GPUs of this node were not read yet")
        return self._told

    async def look(self) -> NodeGpusSeen:
        """What there is now: read after this was asked."""
        await self._readings.look()
        return self._told

    async def _take(self) -> None:
        """The driver was read."""
        now = self._clock.now()
        known = self._readings.known
        if self._readings.failed:  # what was in use may still be, and what was empty may not be
            devices = [one.model_copy(update={"empty": one.empty and None}) for one in self._told.devices]
            claimed, known = self._told.claimed, self._told.known
        else:
            holdings, plugins = await self._ask(now)
            devices, claimed = joined(self._readings.seen, holdings, plugins), _claimed(holdings or ())
        if self._read.is_set() and not self._is_news(devices, claimed, known, now):
            return
        self._told = NodeGpusSeen(
            node=self._node, version=self._told.version + 1, known=known, devices=devices, claimed=claimed
        )
        self._told_at = now
        self._read.set()
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _ask(self, now: Instant) -> tuple[tuple[Holding, ...] | None, Plugins]:
        """What the kubelet says, or has said lately; None: nobody can tell."""
        if self._kubelet is None or not self._readings.known:
            return None, {}
        try:
            self._last = await self._kubelet.holdings(), await self._kubelet.allocatable()
            self._last_at, self._unknown = now, ""
        except PodResourcesUnknown as error:
            if str(error) != self._unknown:
                logger.warning("which pods have which GPUs is not known: %s", error)
            self._unknown = str(error)
        if self._last is None or now - self._last_at >= STANDS:
            return None, {}
        return self._last

    def _is_news(
        self, devices: Sequence[DeviceSeen], claimed: Sequence[DeviceClaimed], known: bool, now: Instant
    ) -> bool:
        before = self._told
        if known != before.known or list(claimed) != before.claimed:
            return True
        if [_without_memory(one) for one in devices] != [_without_memory(one) for one in before.devices]:
            return True
        moved = any(_moved(was, now_is) for was, now_is in zip(before.devices, devices, strict=True))
        return moved and now - self._told_at >= MEMORY_EVERY


def joined(seen: Sequence[GpuSeen], holdings: Sequence[Holding] | None, plugins: Plugins) -> list[DeviceSeen]:
    """Each GPU with the pods that have it. Nobody's pods are known where the kubelet tells of devices that the driver
    does not know: a plugin then counts in ids of its own, and any of them may be any GPU."""
    holders: dict[str, set[str]] = {}
    for one in holdings or ():
        if one.resource.startswith(OF_NVIDIA):
            for device in one.devices:
                holders.setdefault(_gpu(device), set()).add(f"{one.namespace}/{one.pod}")
    told = holdings is not None and holders.keys() <= {gpu.id for gpu in seen}
    offered = _offered(plugins)
    return [
        DeviceSeen(
            id=gpu.id, product=gpu.product, memory_bytes=gpu.memory_bytes, used_bytes=gpu.used_bytes, empty=gpu.empty,
            processes=len(gpu.pids), sick=gpu.sick or (NOT_OFFERED if _is_missed(gpu, offered) else ""),
            parent=gpu.parent, split=gpu.split,
            pods=sorted(holders.get(gpu.id, ())) if told or gpu.id in holders else None,
        )
        for gpu in seen
    ]  # fmt: skip


def _offered(plugins: Plugins) -> frozenset[str]:
    return frozenset(
        _gpu(device) for resource, devices in plugins.items() if resource.startswith(OF_NVIDIA) for device in devices
    )


def _is_missed(gpu: GpuSeen, offered: frozenset[str]) -> bool:
    """Whether a plugin offers others of its kind, and not this one. (One that offers none begins just now, say.)"""
    kind = "MIG-" if gpu.parent else "GPU-"
    return not gpu.split and gpu.id not in offered and any(one.startswith(kind) for one in offered)


def _gpu(device: str) -> str:
    return device.partition(SHARED)[0]


def _claimed(holdings: Iterable[Holding]) -> list[DeviceClaimed]:
    return [
        DeviceClaimed(pod=f"{one.namespace}/{one.pod}", driver=claim.driver, pool=claim.pool, device=claim.device)
        for one in holdings for claim in one.claimed
    ]  # fmt: skip


def _without_memory(one: DeviceSeen) -> DeviceSeen:
    return one.model_copy(update={"used_bytes": None})


def _moved(was: DeviceSeen, now: DeviceSeen) -> bool:
    if was.used_bytes is None or now.used_bytes is None:
        return was.used_bytes is not now.used_bytes
    return abs(was.used_bytes - now.used_bytes) * MEMORY_STEP >= (now.memory_bytes or 1)
