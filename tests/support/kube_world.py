"""A namespace of the tests' cluster with nodes that run pods, and a real relume beside it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from ruamel.yaml import YAML

from deploy.kubernetes.api import ApiError, KubeApi, connect
from deploy.kubernetes.resources import EVENTS, MODELS, PODS, Json, Resource
from tests.support.kube_kubelet import FakeNode, ProcessKubelet, kubelet
from tests.support.kube_plane import ControlPlane
from tests.support.parts import PartProcess
from tests.support.running import complaints, simulated

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
GPU_NODE = {"nvidia.com/gpu": 4}
_numbers = itertools.count(1)


def pod_model(name: str = "echo", *, extra: str = "", gpus: int = 1, **scaling: object) -> str:
    """A Model document on the simulated engine whose replicas are pods with GPUs."""
    resources = f"  resources: {{gpus: {gpus}, cpu: 0.1, memory: 64Mi}}\n  pod: {{image: relume.test/relume:1}}\n"
    return simulated(name, extra=resources + extra, **scaling)


def parsed(text: str) -> Any:
    """A YAML document as the API server takes it."""
    return YAML(typ="safe", pure=True).load(text)


class UpOnKubernetes(PartProcess):
    """`relume up --cluster kubernetes` in a process of its own."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        super().__init__("up", folder, ("--gateway-port", "0", *arguments))

    def reach(self, arguments: tuple[str, ...]) -> None:
        """Other arguments, from the next start on."""
        self._command = UpOnKubernetes(self.data.parent, arguments)._command

    @property
    def _file(self) -> Path:
        return self.data / "endpoints.json"


class World:
    """What a test on the cluster has in its hands."""

    def __init__(self, api: KubeApi, namespace: str, nodes: ProcessKubelet, relume: UpOnKubernetes) -> None:
        self.api = api
        self.namespace = namespace
        self.kubelet = nodes
        self.relume = relume
        self.session: aiohttp.ClientSession

    # Kubernetes.

    async def apply(self, text: str) -> Json:
        """What `kubectl apply` does with a Model document."""
        body = parsed(text)
        path = MODELS.path(self.namespace, body["metadata"]["name"])
        return await self.api.apply(path, body, {"fieldManager": "tests"})

    async def model(self, name: str = "echo") -> Json:
        """A Model object."""
        return await self.api.get(MODELS.path(self.namespace, name))

    async def pods(self) -> list[Json]:
        """The pods of the namespace."""
        found: list[Json] = (await self.api.get(PODS.path(self.namespace)))["items"]
        return found

    async def events(self) -> list[Json]:
        """The Events of the namespace about models, the oldest first."""
        found = (await self.api.get(EVENTS.path(self.namespace)))["items"]
        ours = [one for one in found if one["regarding"]["kind"] == "Model"]
        return sorted(ours, key=lambda one: str(one["eventTime"]))

    async def until(self, what: str, wanted: Callable[[], Any], within: float = 60.0) -> Any:
        """The result of `wanted` once it is true; AssertionError tells what was waited for."""
        found: Any = None
        try:
            async with asyncio.timeout(within):
                while not (found := await wanted()):  # noqa: ASYNC110 - it happens in other processes
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {within:g} s: {what}; relume said:\n{self.relume.last_words()}") from None
        return found

    async def state(self, wanted: str, name: str = "echo", within: float = 60.0) -> Json:
        """A model's status once its object says this state."""

        async def said() -> Json | None:
            status: Json = (await self.model(name)).get("status", {})
            return status if status.get("state") == wanted else None

        found: Json = await self.until(f"{name} is {wanted}", said, within)
        return found

    # relume.

    @property
    def gateway(self) -> str:
        """Where clients ask, without /v1."""
        url: str = self.relume.endpoints["gateway"]
        return url

    async def chat(self, model: str = "echo", **body: Any) -> aiohttp.ClientResponse:
        """One chat completion; the answer is read whole."""
        asked = {"model": model, "messages": [{"role": "user", "content": "hello"}]} | body
        async with self.session.post(f"{self.gateway}/v1/chat/completions", json=asked) as answer:
            await answer.read()
            return answer

    async def status(self, model: str = "echo") -> dict[str, Any]:
        """The model's status as the admin port tells it; empty while it knows none."""
        url = f"{self.relume.endpoints['admin']}/v1alpha1/models/{model}"
        async with self.session.get(url) as answer:
            status: dict[str, Any] = (await answer.json())["status"] if answer.status == 200 else {}
            return status

    async def told(self, topic: str) -> list[dict[str, Any]]:
        """What the events of a topic say, from the first on."""
        url = f"{self.relume.endpoints['admin']}/v1alpha1/events"
        async with self.session.get(url, params={"topic": topic, "from": "beginning"}) as answer:
            return [json.loads(line)["data"] for line in (await answer.text()).splitlines()]

    async def known_ready(self) -> None:
        """Return once all parts of relume are ready."""

        async def ready() -> bool:
            async with self.session.get(f"{self.relume.endpoints['admin']}/readyz") as answer:
                return answer.status == 200

        await self.until("relume is ready", ready)

    async def known(self, model: str = "echo") -> None:
        """Return once the gateway knows a model."""

        async def answers() -> bool:
            return bool(await self.status(model))

        await self.until(f"{model} is declared", answers)


def arguments(plane: ControlPlane, namespace: str) -> tuple[str, ...]:
    """How a relume reaches the cluster."""
    return ("--cluster", "kubernetes", "--kubeconfig", str(plane.kubeconfig), "--kube-namespace", namespace)


@asynccontextmanager
async def world(plane: ControlPlane, folder: Path, nodes: list[FakeNode] | None = None) -> AsyncIterator[World]:
    """A namespace, nodes, and a `relume up` that is not started; all gone afterwards."""
    number = f"{os.getpid()}-{next(_numbers)}"
    namespace = f"models-{number}"
    api = await connect(plane.kubeconfig)
    await api.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    some = [FakeNode(f"gpu-{number}", extended=GPU_NODE)] if nodes is None else nodes
    relume = UpOnKubernetes(folder, arguments(plane, namespace))
    try:
        async with (
            kubelet(api, some, folder) as running,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session,
        ):
            made = World(api, namespace, running, relume)
            made.session = session
            try:
                yield made
                relume = made.relume  # another one, perhaps
                assert await relume.stop() == 0, relume.last_words()
                assert not relume.log.exists() or complaints(relume.log) == ""
            finally:
                if made.relume.runs:
                    await made.relume.kill()
                await _clear(api, namespace)
    finally:
        await api.close()


async def _clear(api: KubeApi, namespace: str) -> None:
    """Objects first, so that nobody makes pods any more; the kubelet ends the pods while it still runs."""
    for name in [one["metadata"]["name"] for one in (await api.get(MODELS.path(namespace)))["items"]]:
        await api.delete(MODELS.path(namespace, name))
    for name in [one["metadata"]["name"] for one in (await api.get(PODS.path(namespace)))["items"]]:
        try:
            await api.delete(PODS.path(namespace, name), grace=0)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
    await api.delete(NAMESPACES.path("", namespace))
