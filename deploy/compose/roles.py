"""What each command runs: which parts, in which order, in which folder."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import uuid
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.api.settings import AdminSettings, admin_settings
from deploy.compose.eventlog import OpenLog
from deploy.compose.part import InBackground
from deploy.compose.process import Made
from deploy.local.folder import (
    DataFolder,
    FolderInUse,
    FolderUnusable,
    holder_of,
    lasting_name,
    open_folder,
    wait_for_folder,
)
from deploy.settings.kubernetes import ClusterKind
from deploy.settings.settings import Settings
from events.clock import Clock
from events.units import Seconds

if TYPE_CHECKING:
    from deploy.compose.agent import AgentPart
    from deploy.compose.autoscaler import AutoscalerPart
    from deploy.compose.cluster import TakeFolder
    from deploy.compose.gateway import GatewayPart
    from deploy.compose.kubernetes import KubernetesPart

logger = logging.getLogger(__name__)


class Role(StrEnum):
    """What a process does."""

    ALL = "up"
    GATEWAY = "gateway"
    AUTOSCALER = "autoscaler"
    CLUSTER = "cluster"
    AGENT = "agent"


def folder_of(role: Role, settings: Settings) -> Path:
    """The data folder of a process: gateways and autoscalers have one of their own within, so that all parts can run
    on one machine with the same settings."""
    return settings.data_dir / role.value if role in (Role.GATEWAY, Role.AUTOSCALER, Role.AGENT) else settings.data_dir


def hold_folder(role: Role, settings: Settings) -> DataFolder | None:
    """The data folder, taken for as long as the process lives. Raises FolderInUse, FolderUnusable.

    None of a cluster that waits for its own while its admin port is open already. One on Kubernetes keeps nothing there
    but its name, by which it is known when it comes back; None if another process has it, which it does without.
    """
    if role is not Role.CLUSTER:
        return open_folder(folder_of(role, settings))
    if settings.cluster is ClusterKind.KUBERNETES:
        with contextlib.suppress(FolderInUse):
            return open_folder(folder_of(role, settings))
    return None


def known_as(settings: Settings, owner: str, folder: DataFolder | None) -> str:
    """Who a process is in the Lease: by its folder the same one when it comes back, else one of its own each time."""
    return owner if folder is None else f"{settings.node_name}/{lasting_name(folder.path)}"


@dataclass(frozen=True, slots=True)
class _Process:
    """What parts are made of. `owner`: who this process is in the log."""

    settings: Settings
    log: OpenLog
    clock: Clock
    folder: DataFolder | None
    boot: str
    admin: AdminSettings
    endpoints: Path

    @property
    def owner(self) -> str:
        return f"{self.settings.node_name}/{self.boot}"


def make(role: Role, settings: Settings, log: OpenLog, clock: Clock, folder: DataFolder | None) -> Made:
    """The parts of a process. `folder`: see `hold_folder`. Each role loads the modules of its own parts alone.

    Raises SettingsRefused for an admin token or a file of Kafka clusters that cannot be read.
    """
    endpoints = folder_of(role, settings) / "endpoints.json"
    boot = uuid.uuid4().hex[:12]
    process = _Process(settings, log, clock, folder, boot, admin_settings(settings), endpoints)
    kubernetes = settings.cluster is ClusterKind.KUBERNETES
    match role:
        case Role.GATEWAY:
            gateway = _gateway(process)
            return Made(
                (gateway,), process.admin, endpoints, settings.node_name, gateway.desk, urls={"gateway": gateway.url}
            )
        case Role.AUTOSCALER:
            return Made((InBackground(_autoscaler(process)),), process.admin, endpoints)
        case Role.AGENT:
            agent = _agent(process, settings.data_dir)
            return Made((agent,), process.admin, endpoints, weights=agent.asked, gpus=agent.gpus)
        case Role.CLUSTER:
            return _cluster_on_kubernetes(process) if kubernetes else _cluster(process)
        case Role.ALL:
            return _all_on_kubernetes(process) if kubernetes else _all(process)


def _cluster_on_kubernetes(process: _Process) -> Made:
    process.settings.data_dir.mkdir(parents=True, exist_ok=True)  # of the endpoints file
    pods = _pods(process)
    return Made(
        (InBackground(pods),), process.admin, process.endpoints, logs=pods, declarer=pods.declares,
        objects=pods.objects, training_logs=pods.training_logs,
    )  # fmt: skip


def _cluster(process: _Process) -> Made:
    from deploy.compose.cluster import ClusterHow, ClusterPart, local_settings  # noqa: PLC0415 - see `make`
    from deploy.compose.other_agent import AgentElsewhere  # noqa: PLC0415 - likewise

    settings, clock = process.settings, process.clock
    local = replace(local_settings(settings), adopt_within=Seconds(settings.adopt_within))
    how = ClusterHow(process.owner, local, Seconds(settings.drain_bound))
    cluster = ClusterPart(process.log, clock, _awaited(settings.data_dir), how)
    agent = _agent(process, settings.data_dir)
    agent.weights.agent.elsewhere = AgentElsewhere(settings.data_dir, settings.admin_token(), clock)
    cluster.keeper = agent.weights.agent
    return Made(
        (agent, InBackground(cluster)), process.admin, process.endpoints, logs=cluster,
        training_logs=cluster.training_logs, folder_taken=cluster.folder_taken, weights=agent.asked,
    )  # fmt: skip


def _all_on_kubernetes(process: _Process) -> Made:
    gateway, pods = _gateway(process), _pods(process)
    return Made(
        (_autoscaler(process), gateway, InBackground(pods)), process.admin, process.endpoints,
        process.settings.node_name, gateway.desk, pods, urls={"gateway": gateway.url}, declarer=pods.declares,
        objects=pods.objects, training_logs=pods.training_logs,
    )  # fmt: skip


def _all(process: _Process) -> Made:
    from deploy.compose.cluster import ClusterHow, ClusterPart, local_settings  # noqa: PLC0415 - see `make`

    folder = process.folder
    assert folder is not None, "hold it first"
    how = ClusterHow(process.owner, local_settings(process.settings), Seconds(0.0))
    gateway = _gateway(process)
    cluster = ClusterPart(process.log, process.clock, _held(folder), how)
    agent = _agent(process, folder.path)
    cluster.keeper = agent.weights.agent
    return Made(
        (_autoscaler(process), agent, cluster, gateway), process.admin, process.endpoints,
        process.settings.node_name, gateway.desk, cluster, urls={"gateway": gateway.url}, weights=agent.asked,
        training_logs=cluster.training_logs,
    )  # fmt: skip


def _gateway(process: _Process) -> GatewayPart:
    from deploy.compose.gateway import GatewayPart  # noqa: PLC0415 - see `make`

    return GatewayPart(process.settings, process.log, process.clock, process.boot)


def _agent(process: _Process, folder: Path) -> AgentPart:
    from deploy.compose.agent import FOLDER, AgentPart  # noqa: PLC0415 - see `make`

    return AgentPart(folder / FOLDER, process.settings, process.log, process.clock)


def _pods(process: _Process) -> KubernetesPart:
    from deploy.compose.kubernetes import KubernetesPart, kubernetes_settings  # noqa: PLC0415 - see `make`

    known = known_as(process.settings, process.owner, process.folder)
    return KubernetesPart(process.log, process.clock, process.owner, kubernetes_settings(process.settings, known))


def _autoscaler(process: _Process) -> AutoscalerPart:
    from autoscaler.gauges import Readers  # noqa: PLC0415 - see `make`
    from deploy.compose.autoscaler import AutoscalerPart  # noqa: PLC0415 - likewise
    from deploy.compose.lags import KafkaLags  # noqa: PLC0415 - likewise
    from deploy.compose.queries import PrometheusQueries  # noqa: PLC0415 - likewise

    settings, clock = process.settings, process.clock
    readers = Readers(KafkaLags(settings, clock), PrometheusQueries(settings, clock))
    return AutoscalerPart(process.log, clock, process.owner, readers)


def _held(folder: DataFolder) -> TakeFolder:
    async def take() -> DataFolder:
        return folder

    return take


def _awaited(path: Path) -> TakeFolder:
    async def take() -> DataFolder:
        if (holder := await asyncio.to_thread(holder_of, path)) is not None:
            logger.info("stands by: the relume with pid %d has the data folder %s", holder, path)
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[DataFolder] = loop.create_future()
        threading.Thread(target=_wait, args=(path, taken), name="folder", daemon=True).start()
        return await taken

    return take


def _wait(path: Path, taken: asyncio.Future[DataFolder]) -> None:
    """In a thread of its own that nobody waits for: the kernel may hold it as long as another process lives."""
    loop = taken.get_loop()
    try:
        folder = wait_for_folder(path)
    except FolderUnusable as error:
        told = functools.partial(_settle, taken, error)
    else:
        told = functools.partial(_settle, taken, folder)
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile; the lock ends with the process
        loop.call_soon_threadsafe(told)


def _settle(taken: asyncio.Future[DataFolder], outcome: DataFolder | FolderUnusable) -> None:
    if taken.done():
        return
    if isinstance(outcome, DataFolder):
        taken.set_result(outcome)
    else:
        taken.set_exception(outcome)
