"""The agents of nodes: which pods of ours they are, and how they are asked.

An agent is a pod of ours on its node (a DaemonSet): the pods that are followed anyway say where it is. It is asked with
the admin port's token, which all parts of one installation share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.views import PodView
from events.units import Seconds

COMPONENT: Final = "app.kubernetes.io/component"
AGENT: Final = "agent"
PROGRAM: Final = "app.kubernetes.io/name"
ANSWER_WITHIN: Final = Seconds(30.0)
"""For one answer, which takes a second while a fetch goes on, and twenty where news are waited for."""


class Agents:
    """All agents of one namespace. Used on one event loop; close it."""

    def __init__(self, pods: PodStore, namespace: str, token: str | None) -> None:
        self._pods = pods
        self._namespace = namespace
        self._token = token
        self._open: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close its connections."""
        if self._open is not None:
            await self._open.close()

    def all(self) -> Mapping[str, PodView]:
        """Those that can be asked, by node."""
        return {pod.node: pod for pod in self._pods if self._is_agent(pod)}

    def on(self, node: str) -> PodView | None:
        """The one of a node."""
        return next((pod for pod in self._pods if pod.node == node and self._is_agent(pod)), None)

    async def get(self, agent: PodView, path: str) -> tuple[int, Mapping[str, Any]]:
        """The status and the answer. Raises aiohttp's ClientError, TimeoutError, OSError, ValueError."""
        async with self._session().get(_url(agent, path)) as answer:
            return answer.status, await answer.json(content_type=None)

    async def post(self, agent: PodView, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Likewise."""
        async with self._session().post(_url(agent, path), json=dict(body)) as answer:
            return answer.status, await answer.json(content_type=None)

    def _is_agent(self, pod: PodView) -> bool:
        ours = pod.labels.get(COMPONENT) == AGENT and pod.labels.get(PROGRAM) == "relume"
        return bool(
            ours and pod.namespace == self._namespace and pod.node and pod.running and pod.ip and pod.ports
            and not pod.deleting
        )  # fmt: skip

    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
            self._open = aiohttp.ClientSession(
                headers=headers, timeout=aiohttp.ClientTimeout(total=ANSWER_WITHIN),
                connector=aiohttp.TCPConnector(limit=0),
            )  # fmt: skip
        return self._open


def _url(agent: PodView, path: str) -> str:
    host = f"[{agent.ip}]" if ":" in agent.ip else agent.ip
    return f"http://{host}:{agent.ports[0]}/v1alpha1/{path}"
