"""Pods that an earlier relume left, and pods of ours that nobody here knows: gone on with, or ended.

A pod of ours says in an annotation what it was granted. When relume starts it goes on with all of them; what is not
granted any more the plan then drains or stops, like anything else. What nothing can be made of is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from deploy.kubernetes.own_pod import delete_pod
from deploy.kubernetes.reconciler import SERVED, Left, Reconciler
from deploy.kubernetes.replica import PodReplica
from deploy.kubernetes.shaping import read_grant
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import (
    ANNOTATION_GRANT,
    ANNOTATION_REPLICA,
    LABEL_MANAGED,
    LABEL_MODEL,
    MANAGED_BY,
    PodView,
)
from deploy.local.view import ModelView, View
from events.names import ModelName
from events.types.replicas import ReplicasObserved, ReplicaStatus
from events.units import Seconds

logger = logging.getLogger(__name__)

SILENT_AFTER: Final = Seconds(3.0)
"""For a replica on a node that says nothing to answer a health check."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Leftovers:
    """`said` before `adopt`; then `heard` of each pod."""

    def __init__(self, tools: Tools, reconciler: Reconciler, view: View, spawn: Spawn) -> None:
        self._tools = tools
        self._reconciler = reconciler
        self._view = view
        self._spawn = spawn
        self._said: dict[str, tuple[str, ReplicaStatus]] = {}
        self._deleting: set[str] = set()
        self.adopted = 0

    def said(self, state: ReplicasObserved) -> None:
        """What the log says of a model's replicas."""
        self._said |= {status.replica: (state.model, status) for status in state.replicas}

    def adopt(self) -> None:
        """Go on with all pods of ours."""
        for pod in list(self._tools.pods):
            if self.is_ours(pod):
                self._take(pod)
            elif ANNOTATION_REPLICA in pod.annotations and pod.namespace == self._tools.settings.namespace:
                self._take_enrolled(pod)
        self._said.clear()
        if self.adopted:
            logger.info("took over %d replicas of an earlier run", self.adopted)

    def heard(self, pod: PodView) -> None:
        """A pod is there: of ours and known, or to be taken."""
        if self.is_ours(pod) and not pod.deleting:
            self._take(pod)

    def is_ours(self, pod: PodView) -> bool:
        """Whether we made it."""
        return (
            pod.namespace == self._tools.settings.namespace
            and pod.labels.get(LABEL_MANAGED) == MANAGED_BY
            and ANNOTATION_GRANT in pod.annotations
        )

    def _take(self, pod: PodView) -> None:
        try:
            uid, grant = read_grant(pod.annotations[ANNOTATION_GRANT])
        except ValueError:
            self._delete(pod, "it does not say what it was granted")
            return
        model = pod.labels.get(LABEL_MODEL, "")
        known = self._reconciler.find(model, grant.replica)
        if known is not None:
            if known.pod is not None and known.pod.name != pod.name:
                self._delete(pod, "another pod is this replica now")
            return
        status = self._said.get(grant.replica, ("", None))[1]
        served = status is not None and status.state in SERVED and pod.running
        if pod.over or (pod.deleting and not served):
            self._delete(pod, "it has ended")
        elif self._reconciler.adopt(Left(model, uid, grant, pod, status)):
            self.adopted += 1
        else:
            self._delete(pod, "its model is not declared any more")

    def _take_enrolled(self, pod: PodView) -> None:
        """A pod of an enrolled object that served as a replica: it goes on, if that is still granted."""
        model, status = self._said.get(pod.annotations[ANNOTATION_REPLICA], ("", None))
        view = self._view.models.get(ModelName(model), ModelView())
        grants = () if view.valid_grant is None else view.valid_grant.replicas
        grant = next((one for one in grants if status is not None and one.replica == status.replica), None)
        if status is None or grant is None or status.state not in SERVED or not status.address.startswith(pod.ip):
            return
        if self._reconciler.adopt(Left(model, view.uid, grant, pod, status)):
            self.adopted += 1

    def _delete(self, pod: PodView, why: str) -> None:
        if pod.uid not in self._deleting and not pod.deleting:
            self._deleting.add(pod.uid)
            logger.info("pod %s is deleted: %s", pod.name, why)
            self._spawn(self._insist(pod))

    async def _insist(self, pod: PodView) -> None:
        try:
            await delete_pod(self._tools, pod.namespace, pod.name, pod.uid)
        finally:
            self._deleting.discard(pod.uid)

    async def check_node(self, replica: PodReplica) -> None:
        """Its node is not ready any more: it is lost too, unless it answers."""
        prepared = replica.prepared_start
        if prepared is None:
            return
        wanted, prober = prepared.wanted, self._tools.prober
        await replica.check_node(prober.check(wanted.host, wanted.port, prepared.probe.health_path, SILENT_AFTER))
