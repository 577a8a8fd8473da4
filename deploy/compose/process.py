"""One process: the admin port and some parts of relume, started in order, watched, ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.api.declaring import Declarations
from deploy.api.fronting import Objects
from deploy.api.gpu_ports import NodeGpus, NoGpus
from deploy.api.logs import NoTrainingLogs
from deploy.api.ports import ReplicaLogs, Traffic, TrainingLogs
from deploy.api.server import AdminParts, AdminServer
from deploy.api.settings import AdminSettings
from deploy.api.weight_ports import NodeWeights
from deploy.api.weights import NoWeights
from deploy.compose.eventlog import OpenLog
from deploy.compose.losses import Losses
from deploy.compose.part import Part, until_one_ends, url_of
from deploy.compose.telling import AllTraffic, BoardExplainer, LogsElsewhere, PartsReadiness, PartsReadings
from deploy.spec.kinds import Document
from events.clock import Clock
from events.units import Seconds


@dataclass(frozen=True, slots=True)
class Made:
    """What a process is made of. `parts` start in this order and end in the other.

    `gateway`: the name of the gateway among them, if there is one, with its `traffic`. `urls`: where it listens,
    besides the admin port, asked once all have started. `folder_taken`: until then the endpoints file is another's.
    `declarer`: is given what writes declarations, before anything starts.
    """

    parts: Sequence[Part]
    admin: AdminSettings
    endpoints_file: Path
    gateway: str = ""
    traffic: Traffic | None = None
    logs: ReplicaLogs = field(default_factory=LogsElsewhere)
    urls: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    folder_taken: asyncio.Event | None = None
    weights: NodeWeights = field(default_factory=NoWeights)
    gpus: NodeGpus = field(default_factory=NoGpus)
    declarer: Callable[[Declarations], None] | None = None
    training_logs: TrainingLogs = field(default_factory=NoTrainingLogs)
    objects: Objects | None = None


class Process:
    """The parts of one process. `start`, then `wait` until it should end, then `stop`."""

    def __init__(self, log: OpenLog, clock: Clock, made: Made) -> None:
        self._made = made
        self._admin = AdminServer(
            AdminParts(
                log=log, clock=clock, logs=made.logs, training_logs=made.training_logs,
                traffic=AllTraffic(lambda: self._admin.board, clock, made.traffic, made.gateway),
                explainer=BoardExplainer(lambda: self._admin.board), readiness=PartsReadiness(log, made.parts),
                readings=(PartsReadings(log, made.parts),), weights=made.weights,
                gpus=made.gpus, objects=made.objects,
            ),
            made.admin,
        )  # fmt: skip
        self._publishing: asyncio.Task[None] | None = None
        self._losses = Losses(log, clock)
        self._looking: asyncio.Task[None] | None = None
        if made.declarer is not None:
            made.declarer(self._admin.declarations)

    async def start(self, documents: Sequence[Document]) -> None:
        """Start every part and declare `documents`; returns when requests are taken.

        Raises OSError for a port that is taken, and what the parts' own starts raise.
        """
        await self._admin.start()
        self._looking = asyncio.create_task(self._losses.run(), name="losses")
        await self._admin.caught_up()
        if documents:
            await self._admin.declarations.apply(documents)
        for part in self._made.parts:
            await part.start()
        self._publishing = asyncio.create_task(self._publish_endpoints(), name="endpoints")
        if self._made.folder_taken is None:
            await self._publishing
        gc.collect()
        gc.freeze()  # what lives as long as the process is never looked at again

    async def wait(self) -> None:
        """Return never, but when the log was closed; raise what broke a part."""
        await until_one_ends(*(part.wait() for part in self._made.parts))

    async def stop(self, bound: Seconds) -> None:
        """End the parts, the last first: no more requests, running ones finish within `bound`, then all else."""
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, each also when another fails
            steps.push_async_callback(self._end_looking)
            steps.push_async_callback(self._admin.close)
            for part in self._made.parts:
                steps.push_async_callback(part.stop, bound)
            steps.push_async_callback(self._withdraw_endpoints)

    async def _end_looking(self) -> None:
        """What was lost until now is told; nobody looks any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._losses.look()

    @property
    def urls(self) -> Mapping[str, str]:
        """Where it listens, by role."""
        host, port = self._admin.address
        admin = url_of(self._made.admin.certificate is not None, host, port)
        return {name: ask() for name, ask in self._made.urls.items()} | {"admin": admin}

    async def _publish_endpoints(self) -> None:
        """Tell scripts where we listen (ports may be 0 in the settings)."""
        if self._made.folder_taken is not None:
            await self._made.folder_taken.wait()
        file = self._made.endpoints_file
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps({**self.urls, "pid": os.getpid()}) + "\n", encoding="utf-8")
        partial.replace(file)

    async def _withdraw_endpoints(self) -> None:
        """Unless they are another's: see `Made.folder_taken`."""
        publishing = self._publishing
        if publishing is None:
            return
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        if not publishing.cancelled():
            self._made.endpoints_file.unlink(missing_ok=True)
