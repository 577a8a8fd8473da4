"""What containers are given of Secrets and ConfigMaps, and what is told while it is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.kubernetes.resources import PODS
from tests.support.kube_mounts import CONFIG_MAPS, SECRETS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes", "linux")]

SHOWS: Final = 'cat /etc/given/token; echo " $A_COLOR $SIZE $SHAPE"'


async def secret(here: World, name: str, **values: str) -> None:
    """Make a Secret."""
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
    await here.api.create(SECRETS.path(here.namespace), body)


async def environment(here: World) -> str:
    """Of the one replica's process."""
    (pod,) = await here.pods()
    pid = here.kubelet.pod(pod["metadata"]["name"]).pid
    return await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_text)


async def test_a_secret_that_comes_late(plane: ControlPlane, tmp_path: Path) -> None:
    """Its Model says which one is missing; a request waits, and is answered by a replica that has its values once it
    is there."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model().replace("relume.test/relume:1}", "relume.test/relume:1, envFromSecrets: [hub]}"))
        await here.known()
        asking = asyncio.create_task(here.chat())

        async def told() -> bool:
            return any("ContainerConfigError" in one["note"] and '"hub" not found' in one["note"]
                       for one in await here.events())  # fmt: skip

        await here.until("the missing Secret is told", told)
        await secret(here, "hub", HF_TOKEN="hf_1234")
        assert (await asking).status == 200
        assert "\0HF_TOKEN=hf_1234\0" in f"\0{await environment(here)}"


async def test_a_container_gets_all_that_its_pod_names(plane: ControlPlane, tmp_path: Path) -> None:
    """By the tests' kubelet: each key of a Secret as a file, a ConfigMap's values under a prefix, its own values before
    those, nothing of what is missing and may be."""
    async with world(plane, tmp_path) as here:
        here.kubelet.mounts.kubeconfig = plane.kubeconfig_of
        await secret(here, "given", token="t0ken", SIZE="small", SHAPE="round")
        colors = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "colors"}, "data": {"COLOR": "red"}}
        await here.api.create(CONFIG_MAPS.path(here.namespace), colors)
        container: dict[str, Any] = {
            "name": "main", "image": "a", "command": ["sh", "-c", SHOWS], "env": [{"name": "SHAPE", "value": "flat"}],
            "volumeMounts": [{"name": "given", "mountPath": "/etc/given"}],
            "envFrom": [
                {"secretRef": {"name": "given"}}, {"configMapRef": {"name": "colors"}, "prefix": "A_"},
                {"secretRef": {"name": "nobody", "optional": True}},
            ],
        }  # fmt: skip
        spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False,
                "volumes": [{"name": "given", "secret": {"secretName": "given"}}]}  # fmt: skip
        await here.api.create(PODS.path(here.namespace), {"metadata": {"name": "shows"}, "spec": spec})

        async def over() -> bool:
            return any(one["status"].get("phase") == "Succeeded" for one in await here.pods())

        await here.until("the pod is over", over)
        (log,) = await asyncio.to_thread(lambda: [*tmp_path.glob("shows-*.log")])
        assert await asyncio.to_thread(log.read_text) == "t0ken red small flat\n"
