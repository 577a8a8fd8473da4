"""Nodes on paper: every pod that is bound to one runs at once, at an address of its own, where one process answers for
all. Heartbeats and ends are as of a kubelet."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.resources import Json
from deploy.kubernetes.views import LABEL_MODEL
from events.clock import SystemClock
from events.units import format_instant
from tests.support.kube_kubelet import FakeNode, ProcessKubelet
from tests.support.kube_pods import Told

AT_ONCE: Final = 16
"""Calls of all nodes together that are under way."""


class PaperKubelet(ProcessKubelet):
    """See the module. `running`: pods that were said to run; `seen`: when the first pod of a model was there
    (monotonic seconds)."""

    def __init__(self, api: KubeApi, nodes: list[FakeNode], folder: Path) -> None:
        super().__init__(api, nodes, folder)
        self.running: dict[str, str] = {}
        self.seen: dict[str, float] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._numbers = itertools.count(2)

    def _changed(self, key: str, pod: Json | None) -> None:
        if pod is None:
            self.running.pop(key, None)
            return
        model = pod["metadata"].get("labels", {}).get(LABEL_MODEL, "")
        self.seen.setdefault(model, time.monotonic())
        if pod["spec"].get("nodeName", "") not in self.nodes:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._spawn(self._in_turn(self._finish(pod)))
        elif key not in self.running:
            self.running[key] = ""
            self._spawn(self._in_turn(self._run(key, pod)))

    async def _run(self, key: str, pod: Json) -> None:
        number = next(self._numbers)
        address = f"127.{number >> 16 & 255 | 64}.{number >> 8 & 255}.{number & 255}"
        now = format_instant(SystemClock().now())
        container = pod["spec"]["containers"][0]
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now}
                      for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]  # fmt: skip
        state = {"name": container["name"], "image": container["image"], "imageID": "paper", "ready": True,
                 "restartCount": 0, "state": {"running": {"startedAt": now}}}  # fmt: skip
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1",
                  "startTime": now, "conditions": conditions, "containerStatuses": [state]}  # fmt: skip
        metadata = pod["metadata"]
        told = Told(metadata["namespace"], metadata["name"], metadata["uid"], pod["spec"]["nodeName"], status)
        await self._tell(told)
        if key in self.running:
            self.running[key] = address

    async def _in_turn(self, work: Coroutine[object, object, None]) -> None:
        async with self._turns:
            await work


@asynccontextmanager
async def paper_kubelet(api: KubeApi, nodes: list[FakeNode], folder: Path) -> AsyncIterator[PaperKubelet]:
    """Nodes that are gone afterwards."""
    running = PaperKubelet(api, nodes, folder)
    try:
        await running.start()
        yield running
    finally:
        await running.close()
