"""The cluster as a part, on Kubernetes: the allocator of the pool, and the adapter that runs replicas as pods.

Leadership is had twice. The Lease says who acts on the namespace, and comes first: whoever has none reads and writes
nothing. The leadership of the pool in the event log then says whose grants count, and its offset is their epoch. Why
both: docs/decisions/0070-kubernetes.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from deploy.api.declaring import Declarations
from deploy.api.ports import Reading
from deploy.compose.part import readings, until_one_ends
from deploy.kubernetes.cluster import KubernetesCluster, KubernetesStats
from deploy.kubernetes.objects import ObjectWriter
from deploy.kubernetes.pod_logs import PodLogs
from deploy.kubernetes.settings import KubernetesSettings
from deploy.settings.settings import Settings
from events.clock import Clock
from events.log import EventLog
from events.units import Seconds
from events.writer import EventWriter
from preemption.core.view import AllocatorPolicy
from preemption.loop import Allocator, AllocatorSettings

logger = logging.getLogger(__name__)


class KubernetesPart:
    """Allocator and Kubernetes adapter of one process. `declares` before `start`."""

    def __init__(self, log: EventLog, clock: Clock, leader: str, settings: KubernetesSettings) -> None:
        self._event_log = log
        self._clock = clock
        self._settings = settings
        self._declarations: Declarations
        writer = EventWriter(f"relume/allocator/{leader}", clock)
        policy = AllocatorPolicy(calls=True)
        self.allocator = Allocator(log, clock, writer, AllocatorSettings(leader=leader, policy=policy))
        self._serves = False
        self._holds_lease = False
        self._allocating: asyncio.Task[None] | None = None
        self._cluster: KubernetesCluster | None = None
        self.objects = ObjectWriter(lambda: None if self._cluster is None else self._cluster.api, settings.namespace)
        """What is applied through the admin API."""
        self.training_logs = MembersOutput(lambda: self._cluster)

    def declares(self, declarations: Declarations) -> None:
        """What writes the declarations that Model objects make."""
        self._declarations = declarations

    async def start(self) -> None:
        """Return when this process has the Lease, leads the pool, and its pods are looked after; until then it stands
        by. Raises KubernetesMissing, and what the roles' own starts raise."""
        writer = EventWriter(f"relume/cluster/{self._settings.namespace}", self._clock)
        self._cluster = KubernetesCluster(
            self._event_log, writer, self._clock, self._declarations, self._settings
        )  # fmt: skip
        await self._cluster.stand_by()
        self._holds_lease = True
        self._allocating = asyncio.create_task(self.allocator.run(), name="allocator")
        await until_one_ends(self._led(), self._allocating, self._cluster.wait_broken())
        writer.epoch = self.allocator.epoch
        await self._cluster.start()
        self._serves = True

    async def _led(self) -> None:
        await self.allocator.caught_up.wait()

    async def wait(self) -> None:
        """See `Part.wait`."""
        assert self._cluster is not None, "start it first"
        assert self._allocating is not None, "start it first"
        await until_one_ends(self._cluster.wait_broken(), self._allocating)

    async def stop(self, bound: Seconds) -> None:
        """Decide nothing any more; the pods go on, for the next one to take over."""
        del bound
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, each also when another fails
            if self._cluster is not None:
                steps.push_async_callback(self._cluster.stop)
            steps.push_async_callback(self._end_allocator)

    async def _end_allocator(self) -> None:
        if self._allocating is not None:
            self._allocating.cancel()
            await asyncio.gather(self._allocating, return_exceptions=True)

    # Logs of replicas: see `deploy.api.ports.ReplicaLogs`.

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:
        """The last lines of a replica's pod; None for others, and while it stands by."""
        logs = None if self._cluster is None else self._cluster.logs
        return None if logs is None else await logs.tail(replica, lines)

    async def follow(self, replica: str, lines: int) -> AsyncIterator[str]:
        """The last lines and then each new one; nothing while it stands by."""
        logs = None if self._cluster is None else self._cluster.logs
        if logs is not None:
            async for line in logs.follow(replica, lines):
                yield line

    def missing(self) -> Sequence[str]:
        """See `Part.missing`."""
        if not self._holds_lease:
            return ["stands by: another relume has the lease of the namespace, or the API server does not answer"]
        missing = []
        if not self.allocator.caught_up.is_set():
            missing.append("the allocator has not read the states yet, or stands by for the leadership of the pool")
        if not self._serves:
            missing.append("the Kubernetes adapter has not read the cluster yet")
        return missing

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        yield from readings("allocator", self.allocator.stats)
        yield from readings("kubernetes", KubernetesStats() if self._cluster is None else self._cluster.stats())
        if self._cluster is not None:
            yield from readings("kubernetes", self._cluster.training_stats())


class MembersOutput:
    """What members of training jobs wrote. Fulfils `deploy.api.ports.TrainingLogs`; nothing while it stands by."""

    def __init__(self, cluster: Callable[[], KubernetesCluster | None]) -> None:
        self._cluster = cluster

    def _logs(self) -> PodLogs | None:
        cluster = self._cluster()
        return None if cluster is None else cluster.training_logs

    async def tail(self, member: str, lines: int) -> Sequence[str] | None:
        """The last lines of a member's pod; None for others."""
        logs = self._logs()
        return None if logs is None else await logs.tail(member, lines)

    async def follow(self, member: str, lines: int) -> AsyncIterator[str]:
        """The last lines and then each new one."""
        logs = self._logs()
        if logs is not None:
            async for line in logs.follow(member, lines):
                yield line


def kubernetes_settings(settings: Settings, identity: str) -> KubernetesSettings:
    """The Kubernetes adapter's part of the settings."""
    return KubernetesSettings(
        namespace=settings.kube_namespace, kubeconfig=settings.kubeconfig, context=settings.kube_context,
        identity=identity, weights_claim=settings.kube_weights_claim, agent_token=settings.admin_token(),
        enrolled=tuple(settings.kube_enrolled.split(",")) if settings.kube_enrolled else (),
    )  # fmt: skip
