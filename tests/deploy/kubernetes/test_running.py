"""relume runs as its manifests say: their environment, account, probes, token and grace, on a real control plane."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.kubernetes.packaging import KINDS, Wanted
from deploy.kubernetes.packaging_apply import Installer
from deploy.kubernetes.packaging_doctor import Doctor, State
from deploy.kubernetes.resources import DEPLOYMENTS
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, pod_model, world
from tests.support.parts import parts_on

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]
KAFKA: Final = [pytest.mark.needs("kafka"), *LEAKS]

ELSEWHERE: Final = ("RELUME_DATA_DIR",)
"""What the tests' own command lines say, since their processes share a machine."""


@dataclass
class Installed:
    """An installation in a world's namespace, whose own pods cannot run, and what its processes are started with."""

    here: World
    plane: ControlPlane
    folder: Path
    secrets: Mapping[str, str] = field(default_factory=dict)

    async def install(self, kafka: str = "") -> None:
        """What `relume install` does, and its secrets as files."""
        installer = Installer(self.here.api, "0.1.0", dry=False)
        wanted = Wanted(self.here.namespace, "relume.test/relume:1", kafka)
        await installer.everything(wanted, create_namespace=False)
        told = {"admin-token": await self._secret("relume-admin", "token")}
        if kafka:
            told["peer-secret"] = await self._secret("relume-peers", "secret")
        for name, content in told.items():
            (self.folder / name).write_text(content, encoding="utf-8")
        self.secrets = told

    async def _secret(self, name: str, key: str) -> str:
        secret = await self.here.api.get(KINDS["Secret"].path(self.here.namespace, name))
        return base64.b64decode(secret["data"][key]).decode()

    async def pod(self, deployment: str) -> dict[str, Any]:
        """The pod's spec of a Deployment."""
        found = await self.here.api.get(DEPLOYMENTS.path(self.here.namespace, deployment))
        return dict(found["spec"]["template"]["spec"])

    async def environment(self, deployment: str, number: int = 1) -> dict[str, str]:
        """What the kubelet would give its container, with files where the test has them."""
        pod = await self.pod(deployment)
        own = {"$(POD_NAME)": f"{deployment}-{number}", "$(POD_IP)": f"127.77.{os.getpid() % 250}.{number}"}
        made = {}
        for one in pod["containers"][0]["env"]:
            value = one.get("value", self.here.namespace).replace("/etc/relume", str(self.folder))
            for word, is_ in own.items():
                value = value.replace(word, is_)
            made[one["name"]] = value
        if pod["automountServiceAccountToken"]:
            made["RELUME_KUBECONFIG"] = str(await self._kubeconfig(pod["serviceAccountName"]))
        return {name: value for name, value in made.items() if name not in ELSEWHERE}

    async def _kubeconfig(self, account: str) -> Path:
        path = KINDS["ServiceAccount"].path(self.here.namespace, account, "token")
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = (await self.here.api.create(path, asked))["status"]["token"]
        return self.plane.kubeconfig_of(f"installed-{account}", token)

    async def asked(self, url: str, **headers: str) -> int:
        """The status of an answer."""
        async with self.here.session.get(url, headers=headers) as answer:
            return answer.status

    async def probed(self, pod: Mapping[str, Any], admin: str) -> None:
        """Return once the probes of a pod's container are content."""
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = pod["containers"][0][probe]["httpGet"]["path"]

            async def content(path: str = path) -> bool:
                return await self.asked(f"{admin}{path}") == 200

            await self.here.until(probe, content)


async def test_one_process_as_the_kubelet_would_start_it(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes ready by the manifests' probes, its admin port asks for the token, a model at zero is answered for,
    the doctor is content with its rights, and it ends within its grace."""
    async with world(plane, tmp_path) as here:
        made = Installed(here, plane, tmp_path)
        await made.install()
        for name, value in (await made.environment("relume")).items():
            monkeypatch.setenv(name, value)
        here.relume.reach(())
        await here.relume.start()
        pod, admin = await made.pod("relume"), here.relume.endpoints["admin"]
        await made.probed(pod, admin)
        shown = {"Authorization": f"Bearer {made.secrets['admin-token']}"}
        assert (await made.asked(f"{admin}/metrics"), await made.asked(f"{admin}/metrics", **shown)) == (401, 200)
        await here.apply(pod_model())
        await here.state("Zero")
        assert (await here.chat()).status == 200
        checks = {one.name: one for one in await Doctor(here.api, here.namespace, "relume").look()}
        assert checks["rights of relume"].state is State.OK
        assert checks["GPUs"].state is State.OK  # those of the world's node
        async with asyncio.timeout(pod["terminationGracePeriodSeconds"]):
            assert await here.relume.stop() == 0


class TestParts:
    """On a real Kafka."""

    pytestmark = KAFKA

    async def test_parts_as_the_kubelet_would_start_them(
        self, plane: ControlPlane, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two gateways that know each other by their pods' addresses and secret, an autoscaler without any account, a
        cluster with its own: probes are content, and both gateways answer for a model at zero."""
        async with world(plane, tmp_path) as here, parts_on(tmp_path / "parts", ()) as parts:
            made = Installed(here, plane, tmp_path)
            await made.install(broker.address)
            wanted = [("gateway", 1), ("gateway", 2), ("autoscaler", 3), ("cluster", 4)]
            processes = []
            for role, number in wanted:
                process = parts.part(role, name=f"{role}-{number}")
                with monkeypatch.context() as there:
                    there.setenv("RELUME_KAFKA_PARTITIONS", "2")  # 12 take longer to make than the rest of this
                    for name, value in (await made.environment(f"relume-{role}", number)).items():
                        there.setenv(name, value)
                    await process.start(wait=not processes)  # the first one makes the topics
                processes.append(process)
            await asyncio.gather(*(process.listening() for process in processes))
            for (role, _), process in zip(wanted, processes, strict=True):
                await made.probed(await made.pod(f"relume-{role}"), process.endpoints["admin"])
            await here.apply(pod_model(maxReplicas=2))
            await here.state("Zero")
            first, second, *_ = processes
            for gateway in (first, second):
                await parts.listed(gateway)
            answers = await asyncio.gather(*(parts.chat(gateway) for gateway in (first, second) for _ in range(4)))
            assert {answer.status for answer in answers} == {200}
