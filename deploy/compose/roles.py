"""What each command runs: which parts, in which order, in which folder."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import uuid
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from autoscaler.gauges import Readers
from deploy.api.settings import admin_settings
from deploy.compose.agent import FOLDER as WEIGHTS
from deploy.compose.agent import AgentPart
from deploy.compose.autoscaler import AutoscalerPart
from deploy.compose.cluster import ClusterHow, ClusterPart, TakeFolder, local_settings
from deploy.compose.eventlog import OpenLog
from deploy.compose.gateway import GatewayPart
from deploy.compose.kubernetes import KubernetesPart, kubernetes_settings
from deploy.compose.lags import KafkaLags
from deploy.compose.other_agent import AgentElsewhere
from deploy.compose.part import InBackground
from deploy.compose.process import Made
from deploy.compose.queries import PrometheusQueries
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


def make(role: Role, settings: Settings, log: OpenLog, clock: Clock, folder: DataFolder | None) -> Made:
    """The parts of a process. `folder`: see `hold_folder`.

    Raises SettingsRefused for an admin token or a file of Kafka clusters that cannot be read.
    """
    boot = uuid.uuid4().hex[:12]
    endpoints = folder_of(role, settings) / "endpoints.json"
    admin = admin_settings(settings)
    owner = f"{settings.node_name}/{boot}"
    match role:
        case Role.GATEWAY:
            gateway = GatewayPart(settings, log, clock, boot)
            return Made((gateway,), admin, endpoints, settings.node_name, gateway.desk, urls={"gateway": gateway.url})
        case Role.AUTOSCALER | Role.AGENT:
            if role is Role.AUTOSCALER:
                made = Made((InBackground(_autoscaler(settings, log, clock, owner)),), admin, endpoints)
            else:
                agent = AgentPart(settings.data_dir / WEIGHTS, settings, log, clock)
                made = Made((agent,), admin, endpoints, weights=agent.asked, gpus=agent.gpus)
            return made
        case Role.CLUSTER if settings.cluster is ClusterKind.KUBERNETES:
            settings.data_dir.mkdir(parents=True, exist_ok=True)  # of the endpoints file
            pods = KubernetesPart(log, clock, owner, kubernetes_settings(settings, known_as(settings, owner, folder)))
            return Made(
                (InBackground(pods),), admin, endpoints, logs=pods, declarer=pods.declares, objects=pods.objects,
                training_logs=pods.training_logs,
            )  # fmt: skip
        case Role.CLUSTER:
            local = replace(local_settings(settings), adopt_within=Seconds(settings.adopt_within))
            how = ClusterHow(owner, local, Seconds(settings.drain_bound))
            cluster = ClusterPart(log, clock, _awaited(settings.data_dir), how)
            agent = AgentPart(settings.data_dir / WEIGHTS, settings, log, clock)
            agent.weights.agent.elsewhere = AgentElsewhere(settings.data_dir, settings.admin_token(), clock)
            cluster.keeper = agent.weights.agent
            return Made(
                (agent, InBackground(cluster)),
                admin,
                endpoints,
                logs=cluster,
                training_logs=cluster.training_logs,
                folder_taken=cluster.folder_taken,
                weights=agent.asked,
            )
        case Role.ALL if settings.cluster is ClusterKind.KUBERNETES:
            gateway = GatewayPart(settings, log, clock, boot)
            pods = KubernetesPart(log, clock, owner, kubernetes_settings(settings, known_as(settings, owner, folder)))
            return Made(
                (_autoscaler(settings, log, clock, owner), gateway, InBackground(pods)), admin, endpoints,
                settings.node_name, gateway.desk, pods, urls={"gateway": gateway.url}, declarer=pods.declares,
                objects=pods.objects, training_logs=pods.training_logs,
            )  # fmt: skip
        case Role.ALL:
            assert folder is not None, "hold it first"
            how = ClusterHow(owner, local_settings(settings), Seconds(0.0))
            gateway = GatewayPart(settings, log, clock, boot)
            cluster = ClusterPart(log, clock, _held(folder), how)
            agent = AgentPart(folder.path / WEIGHTS, settings, log, clock)
            cluster.keeper = agent.weights.agent
            return Made(
                (_autoscaler(settings, log, clock, owner), agent, cluster, gateway), admin, endpoints,
                settings.node_name, gateway.desk, cluster, urls={"gateway": gateway.url}, weights=agent.asked,
                training_logs=cluster.training_logs,
            )  # fmt: skip


def _autoscaler(settings: Settings, log: OpenLog, clock: Clock, owner: str) -> AutoscalerPart:
    readers = Readers(KafkaLags(settings, clock), PrometheusQueries(settings, clock))
    return AutoscalerPart(log, clock, owner, readers)


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
