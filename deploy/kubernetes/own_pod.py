"""A pod of our own: applied under its deterministic name, deleted with grace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, pause
from deploy.kubernetes.devices import CLAIMS
from deploy.kubernetes.judging import PodReason, Trouble
from deploy.kubernetes.replica import StartFailed
from deploy.kubernetes.resources import PODS, Json
from deploy.kubernetes.shaping import Granted, Manifest, PodOrder, claim, manifest
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.local.declared import Reason
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)
T = TypeVar("T")

END_GRACE: Final = 1
"""Seconds of grace when it is we who end a pod: its requests are done, or out of time. All of it goes into the hook
that waits for requests, and kubelets leave two seconds more after SIGTERM."""
LOOK_AGAIN: Final = Seconds(1.0)
"""Between two looks at whether the node of a pod that does not go is lost."""


async def apply_pod(api: KubeApi, body: Manifest, grant: Granted) -> Json:
    """Apply a pod, and before it the claim of its cards where it needs one. Raises ApiError, ValueError, ApiUnavailable
    (also while the claim of an earlier pod of this name ends)."""
    about = body["metadata"]
    path = PODS.path(about["namespace"], about["name"])
    wanted = claim(body, grant)
    if wanted is None:
        return await api.apply(path, body)
    where = CLAIMS.path(about["namespace"], about["name"])
    made = await api.apply(where, wanted)
    if "deletionTimestamp" in made["metadata"]:
        raise ApiUnavailable(f"the resource claim {about['name']} of an earlier pod has not ended yet")
    pod = await api.apply(path, body)
    owned = claim(body, grant, pod["metadata"]["uid"])
    assert owned is not None  # as before
    await api.apply(where, owned)
    return pod


async def delete_pod(tools: Tools, namespace: str, name: str, uid: str) -> None:
    """Ask for a pod's end until the API server has taken it: also while it is away, and while it refuses, since
    permissions that were taken away come back."""
    tries = 0
    while True:
        await tools.lease.hold()
        try:
            await tools.api.delete(PODS.path(namespace, name), grace=END_GRACE, uid=uid)
        except (ApiUnavailable, ApiError) as error:
            level = logging.WARNING if isinstance(error, ApiError) else logging.DEBUG
            logger.log(level, "pod %s cannot be deleted now: %s", name, error)
            await pause(tries, error.after if isinstance(error, ApiUnavailable) else None)
            tries += 1
        else:
            return


class OwnPod:
    """The source of a replica's pod. `order` makes what it is made of: ValueError says what is wrong with it."""

    def __init__(self, tools: Tools, name: str, namespace: str, order: Callable[[], PodOrder]) -> None:
        self._tools = tools
        self._name = name
        self._namespace = namespace
        self._order = order
        self._uid = ""
        self._asked = False

    async def obtain(self) -> PodView:
        """See `PodSource.obtain`. One that is there already is gone on with; one that is ending must be gone first."""
        self._asked = True
        while True:
            pod = self._tools.pods.get(self._namespace, self._name)
            if pod is None:
                pod = self._tools.pods.expect(await self._apply())
            self._uid = pod.uid
            if not (pod.deleting or pod.over):
                return pod
            await self._delete()
            await self._gone()
            if self._tools.pods.get(self._namespace, self._name) is pod:  # it lingers on a lost node
                await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + LOOK_AGAIN))

    def keep(self, pod: PodView) -> None:
        """See `PodSource.keep`."""
        self._asked, self._uid = True, pod.uid

    def port(self, pod: PodView) -> int:
        """Where its container was told to listen."""
        if not pod.ports:
            raise StartFailed(Reason.INVALID_SPEC, f"pod {pod.name} names no port")
        return pod.ports[0]

    async def displaced(self) -> Trouble:
        """See `PodSource.displaced`: never, since whoever leaves is the one that is deleted."""
        never: asyncio.Future[Trouble] = asyncio.get_running_loop().create_future()
        return await never

    def drains(self, *, so: bool) -> None:
        """See `PodSource.drains`."""

    def ordinal(self) -> int | None:
        """See `PodSource.ordinal`."""
        return None

    async def dispose(self) -> None:
        """See `PodSource.dispose`. A pod on a lost node is not waited for: nothing tells when it ends."""
        if self._asked:
            await self._delete()
            await self._gone()

    async def _apply(self) -> Json:
        try:
            order = self._order()
            body = manifest(order)
        except ValueError as error:  # pydantic's is one too
            raise StartFailed(Reason.INVALID_SPEC, str(error)) from error
        try:
            return await self._insist(lambda: apply_pod(self._tools.api, body, order.grant))
        except ApiError as error:
            raise StartFailed(PodReason.REFUSED, str(error)) from error

    async def _delete(self) -> None:
        await delete_pod(self._tools, self._namespace, self._name, self._uid)

    async def _insist(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call until the API server answers, as long as we may write to the cluster."""
        tries = 0
        while True:
            await self._tools.lease.hold()
            try:
                return await call()
            except ApiUnavailable as error:
                logger.debug("pod %s: %s", self._name, error)
                await pause(tries, error.after)
                tries += 1

    async def _gone(self) -> None:
        """Return when the pod is not there any more, or its node is lost."""
        bell = self._tools.pods.bell(self._namespace, self._name)
        try:
            while True:
                bell.clear()
                pod = self._tools.pods.get(self._namespace, self._name)
                if pod is None or (self._uid and pod.uid != self._uid):
                    return
                if pod.deleting and pod.node and not self._tools.node_ready(pod.node):
                    logger.warning("pod %s ends on node %s, which is lost; it is not waited for", pod.name, pod.node)
                    return
                again_at = Instant(self._tools.clock.now() + LOOK_AGAIN)
                late = asyncio.get_running_loop().create_task(self._tools.clock.sleep_until(again_at))
                rung = asyncio.get_running_loop().create_task(bell.wait())
                await asyncio.wait({late, rung}, return_when=asyncio.FIRST_COMPLETED)
                late.cancel()
                rung.cancel()
        finally:
            self._tools.pods.unbell(self._namespace, self._name, bell)
