"""The pod of a replica whose object is enrolled: given by the object's enrolment, and given back to it."""

from __future__ import annotations

from deploy.kubernetes.enrolled import Enrolment
from deploy.kubernetes.judging import Trouble
from deploy.kubernetes.replica import StartFailed
from deploy.kubernetes.views import PodView
from deploy.local.declared import Reason
from events.names import ReplicaName


class EnrolledPod:
    """The source of a replica whose pod is an enrolled object's."""

    def __init__(self, enrolment: Enrolment, replica: ReplicaName, node: str) -> None:
        self._enrolment = enrolment
        self._replica = replica
        enrolment.reserve(replica, node)

    async def obtain(self) -> PodView:
        """See `PodSource.obtain`."""
        return await self._enrolment.sit(self._replica)

    def keep(self, pod: PodView) -> None:
        """See `PodSource.keep`."""
        self._enrolment.keep(self._replica, pod)

    def port(self, pod: PodView) -> int:
        """See `PodSource.port`."""
        port = self._enrolment.target.port or (pod.ports[0] if pod.ports else None)
        if port is None:
            rule = f"the container of pod {pod.name} names no port; set spec.scaleTargetRef.port"
            raise StartFailed(Reason.INVALID_SPEC, rule)
        return port

    async def displaced(self) -> Trouble:
        """See `PodSource.displaced`."""
        return await self._enrolment.displaced(self._replica)

    def drains(self, *, so: bool) -> None:
        """See `PodSource.drains`."""
        self._enrolment.drains(self._replica, so=so)

    def ordinal(self) -> int | None:
        """See `PodSource.ordinal`."""
        return self._enrolment.ordinal(self._replica)

    async def dispose(self) -> None:
        """See `PodSource.dispose`."""
        await self._enrolment.leave(self._replica)
