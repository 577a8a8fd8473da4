"""What replicas wrote, as the API server has it of their pods. Fulfils `deploy.api.ports.ReplicaLogs`.

Logs are the kubelet's: they go with the pod. Of an enrolled object's pod its first container's are shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus

from deploy.api.problem import ProblemError, refuse
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.views import ANNOTATION_REPLICA, PodView


class PodLogs:
    """The logs of one namespace's replicas."""

    def __init__(self, api: KubeApi, pods: PodStore, namespace: str) -> None:
        self._api = api
        self._pods = pods
        self._namespace = namespace

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:
        """The last lines; None for a replica without a pod. Raises ProblemError."""
        found = self._find(replica)
        if found is None:
            return None
        path, query = found
        try:
            return [line async for line in self._api.lines(path, {**query, "tailLines": str(lines)})]
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None  # gone meanwhile
            if error.status == HTTPStatus.BAD_REQUEST:
                return [
                    f"[relume: {error.message}]"
                ]  # its container has not started: the server says what it waits for
            raise _told(error, replica) from error
        except ApiUnavailable as error:
            raise refuse(
                HTTPStatus.SERVICE_UNAVAILABLE, "api-server-away", f"the API server gave no log of {replica}: {error}",
                remedy="try again; kubectl logs says more",
            ) from error  # fmt: skip

    async def follow(self, replica: str, lines: int) -> AsyncIterator[str]:
        """The last lines and then each new one, until the pod ends."""
        found = self._find(replica)
        if found is None:
            return
        path, query = found
        try:
            async for line in self._api.lines(path, {**query, "tailLines": str(lines), "follow": "true"}):
                yield line
        except ApiError as error:
            yield f"[relume: {error.message}]"
        except ApiUnavailable as error:
            yield f"[relume: the log broke off: {error}]"

    def _is(self, pod: PodView, replica: str) -> bool:
        return pod.annotations.get(ANNOTATION_REPLICA) == replica

    def _find(self, replica: str) -> tuple[str, Mapping[str, str]] | None:
        """The newest pod of a replica: the path of its log, and which container's."""
        ours = [pod for pod in self._pods if pod.namespace == self._namespace and self._is(pod, replica)]
        if not ours:
            return None
        pod = max(ours, key=lambda one: (not one.deleting, one.created_at))
        query = {"container": pod.containers[0].name} if pod.containers else {}
        return PODS.path(pod.namespace, pod.name, "log"), query


def _told(error: ApiError, replica: str) -> ProblemError:
    remedy = ""
    if error.status == HTTPStatus.FORBIDDEN:
        remedy = "give relume's account the right to get pods/log: relume install, or the chart with rbac.create=true"
    return refuse(
        HTTPStatus.BAD_GATEWAY, "no-log", f"the API server refused the log of {replica}: {error.message}", remedy=remedy
    )
