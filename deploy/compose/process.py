"""One process with all roles: built, started in order, watched, ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from autoscaler.loop import Autoscaler
from autoscaler.settings import AutoscalerSettings
from deploy.api.server import AdminParts, AdminServer
from deploy.api.settings import AdminSettings, admin_settings
from deploy.compose.eventlog import OpenLog
from deploy.compose.telling import BoardExplainer, Roles, RolesReadiness, RolesReadings
from deploy.local.cluster import LocalCluster
from deploy.local.folder import DataFolder
from deploy.local.settings import LocalSettings
from deploy.settings.settings import Settings
from deploy.spec.model import Model
from events.clock import Clock
from events.names import GatewayName
from events.units import Bytes, Seconds
from events.writer import EventWriter
from preemption.loop import Allocator, AllocatorSettings
from runtime.desk.desk import Desk, DeskSettings
from runtime.gateway.server import GatewayServer
from runtime.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

READ_BACK = 10.0
"""Longest wait at start for past demand, seconds: until then replicas of an earlier run are not started again, since
the wish for them may be about to fall. Without an answer they are started all the same."""


class Relume:
    """All roles of one process. `start`, then `wait` until it should end, then `stop`."""

    def __init__(self, settings: Settings, log: OpenLog, clock: Clock, folder: DataFolder) -> None:
        self._settings = settings
        self._folder = folder
        boot = uuid.uuid4().hex[:12]
        node = settings.node_name

        def writer(role: str) -> EventWriter:
            return EventWriter(f"relume/{role}/{node}", clock)

        desk = Desk(log, clock, writer("gateway"), DeskSettings(
            gateway=GatewayName(node), boot=boot, hold_max_requests=settings.hold_max_requests,
            hold_max_bytes=Bytes(settings.hold_max_bytes),
        ))  # fmt: skip
        self._roles = Roles(
            log=log,
            desk=desk,
            gateway=GatewayServer(desk, desk, clock, gateway_settings(settings)),
            autoscaler=Autoscaler(log, clock, writer("autoscaler"), AutoscalerSettings(owner=f"{node}/{boot}")),
            allocator=Allocator(log, clock, writer("allocator"), AllocatorSettings(leader=f"{node}/{boot}")),
            cluster=LocalCluster(log, writer("cluster"), clock, folder, local_settings(settings)),
        )
        self._admin_settings: AdminSettings = admin_settings(settings)
        self._admin = AdminServer(
            AdminParts(
                log=log, clock=clock, traffic=desk, logs=self._roles.cluster.logs,
                explainer=BoardExplainer(lambda: self._admin.board), readiness=RolesReadiness(self._roles),
                readings=(RolesReadings(self._roles),),
            ),
            self._admin_settings,
        )  # fmt: skip
        self._allocating: asyncio.Task[None] | None = None

    async def start(self, models: Sequence[Model]) -> None:
        """Start every role and declare `models`; returns when requests are taken.

        Raises OSError for a port that is taken, and what the roles' own starts raise.
        """
        roles = self._roles
        await self._admin.start()
        await self._admin.caught_up()
        if models:
            await self._admin.declarations.apply(models)
        self._allocating = asyncio.create_task(roles.allocator.run(), name="allocator")
        await roles.autoscaler.start()
        await self._read_back()
        await roles.cluster.start()
        await roles.desk.start()
        await roles.gateway.start()
        self._publish_endpoints()
        gc.collect()
        gc.freeze()  # what lives as long as the process is never looked at again

    async def wait(self) -> None:
        """Return never; raise what broke a role."""
        assert self._allocating is not None, "start it first"
        watched = {
            asyncio.ensure_future(self._roles.autoscaler.wait()),
            asyncio.ensure_future(self._roles.cluster.wait_broken()),
            asyncio.ensure_future(self._roles.desk.wait_broken()),
            self._allocating,
        }
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in watched - {self._allocating}:
                task.cancel()
            await asyncio.gather(*(watched - {self._allocating}), return_exceptions=True)

    async def stop(self, bound: Seconds) -> None:
        """Take no more requests, refuse those held, let running ones finish within `bound`, end all processes."""
        roles = self._roles
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, each also when another fails
            steps.push_async_callback(self._admin.close)
            steps.push_async_callback(roles.desk.close)
            steps.push_async_callback(roles.cluster.stop, Seconds(0.0))
            steps.push_async_callback(self._end_allocator)
            steps.push_async_callback(roles.autoscaler.close)
            steps.push_async_callback(roles.gateway.drain, bound)
            steps.callback(roles.desk.shut_down)
            steps.callback(self.endpoints_file.unlink, missing_ok=True)

    async def _end_allocator(self) -> None:
        if self._allocating is not None:
            self._allocating.cancel()
            await asyncio.gather(self._allocating, return_exceptions=True)

    @property
    def endpoints_file(self) -> Path:
        """Where the addresses stand while the process takes requests."""
        return self._folder.path / "endpoints.json"

    @property
    def gateway_url(self) -> str:
        """Where clients point their OpenAI library (without ``/v1``)."""
        settings = self._settings
        return _url(settings.gateway_tls_cert is not None, settings.gateway_host, self._roles.gateway.port)

    @property
    def admin_url(self) -> str:
        """Where the command line asks."""
        host, port = self._admin.address
        return _url(self._admin_settings.certificate is not None, host, port)

    async def _read_back(self) -> None:
        try:
            async with asyncio.timeout(READ_BACK):
                await self._roles.autoscaler.wait_history_read()
        except TimeoutError:
            _log.warning("past demand could not be read back within %.0f s; going on without", READ_BACK)

    def _publish_endpoints(self) -> None:
        """Tell scripts where we listen (ports may be 0 in the settings)."""
        where = {"gateway": self.gateway_url, "admin": self.admin_url, "pid": os.getpid()}
        partial = self.endpoints_file.with_suffix(".partial")
        partial.write_text(json.dumps(where) + "\n", encoding="utf-8")
        partial.replace(self.endpoints_file)


def gateway_settings(settings: Settings) -> GatewaySettings:
    """The data port's part of the settings."""
    return GatewaySettings(
        host=settings.gateway_host,
        port=settings.gateway_port,
        tls_certificate=str(settings.gateway_tls_cert or ""),
        tls_key=str(settings.gateway_tls_key or ""),
        access_log="/dev/stderr" if settings.access_log == "-" else settings.access_log,
        max_body_bytes=Bytes(settings.max_body_bytes),
    )


def local_settings(settings: Settings) -> LocalSettings:
    """The local cluster's part of the settings."""
    return LocalSettings(
        node=settings.node_name, gpus=settings.gpus, cpu=settings.cpu, memory_bytes=settings.memory
    )  # fmt: skip


def _url(tls: bool, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http{'s' if tls else ''}://{shown}:{port}"
