"""`relume install | doctor | uninstall` on a real control plane."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from deploy.cli.main import run
from deploy.kubernetes.api import ApiError, KubeApi, connect
from deploy.kubernetes.crd import definitions
from deploy.kubernetes.packaging import KINDS, NAMESPACES, VERSION_NOTE
from deploy.kubernetes.packaging_render import CHART
from deploy.kubernetes.resources import DEFINITIONS, DEPLOYMENTS, MODELS, NODES, PODS, Json
from tests.support.helm import helm
from tests.support.kube_devices import card, publish, withdraw
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import pod_model

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

IMAGE: Final = "relume.test/relume:1"
FIRST: Final = Path(__file__).parent / "first"
_numbers = itertools.count(1)


class Cluster:
    """A namespace, and commands on it."""

    def __init__(self, plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
        self.plane = plane
        self.namespace = f"install-{os.getpid()}-{next(_numbers)}"
        self._capsys = capsys

    def ask(self, *words: str, kubeconfig: Path | None = None) -> tuple[int, dict[str, dict[str, str]]]:
        """The exit code of a command, and its items by ``Kind/name`` or name."""
        where = ("-n", self.namespace, "--kubeconfig", str(kubeconfig or self.plane.kubeconfig), "-o", "json")
        code = run([*words, *where])
        said = self._capsys.readouterr()
        items = json.loads(said.out)["items"] if said.out else []
        self.errors = said.err
        return code, {f"{one['kind']}/{one['name']}" if "kind" in one else one["name"]: one for one in items}

    def api(self, work: Callable[[KubeApi], Awaitable[Any]]) -> Any:
        """Do something as the administrator."""

        async def connected() -> Any:
            api = await connect(self.plane.kubeconfig)
            try:
                return await work(api)
            finally:
                await api.close()

        return asyncio.run(connected())

    def get(self, path: str) -> Json:
        """An object."""
        found: Json = self.api(lambda api: api.get(path))
        return found

    def account(self, name: str) -> Path:
        """A kubeconfig of an account of the namespace."""
        path = KINDS["ServiceAccount"].path(self.namespace, name, "token")
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = self.api(lambda api: api.create(path, asked))["status"]["token"]
        return self.plane.kubeconfig_of(f"{self.namespace}-{name}", token)


@pytest.fixture
def cluster(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    """A namespace that `relume install` makes; the definitions are ours afterwards, and the namespace is gone."""
    made = Cluster(plane, capsys)
    yield made

    async def restore(api: KubeApi) -> None:
        for body in definitions():
            path = DEFINITIONS.path("", body["metadata"]["name"])
            await api.apply(path, body)
            await api.merge(path, {"metadata": {"annotations": {VERSION_NOTE: None}}})
        await api.delete(NAMESPACES.path("", made.namespace))

    made.api(restore)


def outcomes(items: dict[str, dict[str, str]]) -> set[str]:
    return {one["outcome"] for one in items.values()}


def test_install_again_and_uninstall(cluster: Cluster) -> None:
    """Everything is made once, changed when wanted otherwise, and taken away; data and definitions stay."""
    install = ("install", "--image", IMAGE)
    code, _ = cluster.ask(*install)
    assert code == 1
    assert "--create-namespace" in cluster.errors
    code, made = cluster.ask(*install, "--create-namespace")
    assert code == 0, cluster.errors
    assert made["Deployment/relume"]["outcome"] == "created"
    pod = cluster.get(DEPLOYMENTS.path(cluster.namespace, "relume"))["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == IMAGE
    secret = cluster.get(KINDS["Secret"].path(cluster.namespace, "relume-admin"))["data"]
    code, again = cluster.ask(*install)
    assert (code, outcomes(again)) == (0, {"unchanged", "kept"})
    assert cluster.get(KINDS["Secret"].path(cluster.namespace, "relume-admin"))["data"] == secret
    code, dry = cluster.ask("install", "--image", "relume.test/relume:2", "--dry-run")
    assert (code, dry["Deployment/relume"]["outcome"]) == (0, "changed")
    code, other = cluster.ask("install", "--image", "relume.test/relume:2", "--without-crds")
    assert [name for name, one in other.items() if one["outcome"] == "changed"] == ["Deployment/relume"]
    code, dry = cluster.ask("uninstall", "--dry-run")
    assert dry["Deployment/relume"]["outcome"] == "deleted"
    cluster.get(DEPLOYMENTS.path(cluster.namespace, "relume"))
    code, gone = cluster.ask("uninstall")
    kept = {name for name, one in gone.items() if one["outcome"] == "kept"}
    assert (code, kept) == (0, {
        "PersistentVolumeClaim/relume", "CustomResourceDefinition/models.relume.dev",
        "CustomResourceDefinition/trainingjobs.relume.dev", "CustomResourceDefinition/gpupools.relume.dev",
    })  # fmt: skip
    with pytest.raises(ApiError, match="NotFound"):
        cluster.get(DEPLOYMENTS.path(cluster.namespace, "relume"))
    code, gone = cluster.ask("uninstall", "--data")
    assert [name for name, one in gone.items() if one["outcome"] == "deleted"] == ["PersistentVolumeClaim/relume"]


def test_what_another_hand_installed_is_kept(cluster: Cluster) -> None:
    """An object of the same name without our mark is told, and stays."""
    assert cluster.ask("install", "--image", IMAGE, "--create-namespace")[0] == 0
    path = KINDS["Service"].path(cluster.namespace, "relume")
    cluster.api(lambda api: api.merge(path, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}))
    code, gone = cluster.ask("uninstall")
    assert (code, gone["Service/relume"]["outcome"]) == (0, "kept")
    cluster.get(path)


def test_parts_on_kafka_pass_where_pods_are_restricted(cluster: Cluster) -> None:
    """The namespace demands the standard "restricted": everything is taken, and so is a pod of each Deployment."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace, "labels": labels}}
    cluster.api(lambda api: api.create(NAMESPACES.path(), space))
    code, made = cluster.ask(
        "install", "--image", IMAGE, "--events", "kafka://b1:9092", "--prometheus", "http://p:9090"
    )
    assert code == 0, cluster.errors
    names = [name.partition("/")[2] for name in made if name.startswith("Deployment/")]
    assert sorted(names) == ["relume-autoscaler", "relume-cluster", "relume-gateway"]
    for name in names:
        template = cluster.get(DEPLOYMENTS.path(cluster.namespace, name))["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"try-{name}"}, "spec": template["spec"]}
        path = PODS.path(cluster.namespace)
        cluster.api(lambda api, path=path, pod=pod: api.create(path, pod, {"dryRun": "All"}))
    code, found = cluster.ask("doctor")
    assert {found[f"rights of {name}"]["state"] for name in names} == {"ok"}
    assert "none" in found["rights of relume-gateway"]["told"]


def test_doctor_finds_what_is_wrong_and_names_the_remedy(cluster: Cluster) -> None:
    """Nothing installed; then a right less, no GPU, processes that do not run; then the account of relume asks."""
    code, found = cluster.ask("doctor")
    assert (code, found["namespace"]["state"]) == (1, "failed")
    assert "relume install" in found["namespace"]["remedy"]
    assert {found[name]["state"] for name in ("API server", "your rights", "models.relume.dev")} == {"ok"}
    assert cluster.ask("install", "--image", IMAGE, "--create-namespace")[0] == 0
    code, found = cluster.ask("doctor", "--prometheus", "http://127.0.0.1:9")
    assert found["rights of relume"]["state"] == "ok", found
    assert (found["relume"]["state"], found["relume"]["told"]) == ("failed", "0 of 1 available")
    assert (found["Prometheus"]["state"], found["Kafka"]["state"]) == ("failed", "skipped")
    assert found["GPUs"]["state"] == "warning"
    _, other = cluster.ask("doctor", "--name", "another")
    assert (other["processes"]["state"], "--name" in other["processes"]["remedy"]) == ("failed", True)
    role = KINDS["Role"].path(cluster.namespace, "relume")
    rules = [one for one in cluster.get(role)["rules"] if "pods" not in one["resources"]]
    cluster.api(lambda api: api.merge(role, {"rules": rules}))
    told = _eventually(lambda: cluster.ask("doctor")[1]["rights of relume"], lambda one: one["state"] == "failed")
    assert "create pods in" in told["told"]
    assert "relume install" in told["remedy"]
    code, found = cluster.ask("install", "--image", IMAGE)
    assert found["Role/relume"]["outcome"] == "changed"
    ours = cluster.account("relume")
    mine = _eventually(
        lambda: cluster.ask("doctor", kubeconfig=ours)[1], lambda one: one["rights of relume"]["state"] == "ok"
    )
    assert mine["processes"]["state"] == "skipped"  # it may list Deployments, and get none
    code, _ = cluster.ask("install", "--image", IMAGE, kubeconfig=ours)
    assert code == 1
    assert "relume doctor" in cluster.errors


@pytest.mark.needs("helm")
def test_a_helm_release_comes_is_changed_and_goes(cluster: Cluster) -> None:
    """Its random token is the same after an upgrade; the doctor finds it by its name; definitions and volume stay;
    `relume uninstall` leaves it alone."""
    where = ("-n", cluster.namespace, "--kubeconfig", str(cluster.plane.kubeconfig))

    def released(*words: str) -> None:
        done = helm(*words, *where)
        assert done.returncode == 0, done.stderr

    released("install", "warm-relume", str(CHART), "--create-namespace", "--take-ownership")
    path = KINDS["Secret"].path(cluster.namespace, "warm-relume-admin")
    token = cluster.get(path)["data"]
    assert len(token["token"]) > 60
    released("upgrade", "warm-relume", str(CHART), "--take-ownership", "--set-string", "image.tag=2")
    assert cluster.get(path)["data"] == token
    deployment = cluster.get(DEPLOYMENTS.path(cluster.namespace, "warm-relume"))
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "relume:2"
    _, found = cluster.ask("doctor", "--name", "warm-relume")
    assert found["rights of warm-relume"]["state"] == "ok", found
    code, kept = cluster.ask("uninstall", "--data")
    assert (code, outcomes(kept) - {"kept"}) == (0, set())
    released("uninstall", "warm-relume")
    for body in definitions():
        cluster.get(DEFINITIONS.path("", body["metadata"]["name"]))
    cluster.get(KINDS["PersistentVolumeClaim"].path(cluster.namespace, "warm-relume"))
    with pytest.raises(ApiError, match="NotFound"):
        cluster.get(path)


def test_doctor_counts_gpus(cluster: Cluster) -> None:
    """What nodes offer, whole cards and MIG profiles, and what a driver publishes one by one."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{cluster.namespace}-node"}}
    path = NODES.path("", f"{cluster.namespace}-node")
    offered = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7", "cpu": "8"}
    status = {"allocatable": offered, "capacity": offered}

    async def make(api: KubeApi) -> None:
        await api.create(NODES.path(), node)
        await api.merge(f"{path}/status", {"status": status})
        await publish(api, f"{cluster.namespace}-claimed", [card("gpu-0", "GPU-a")])

    cluster.api(make)
    try:
        _, found = cluster.ask("doctor")
        assert (found["GPUs"]["state"], found["GPUs"]["told"]) == (
            "ok", "1 by gpu.nvidia.com, 4 nvidia.com/gpu, 7 nvidia.com/mig-1g.10gb on 1 node",
        )  # fmt: skip
    finally:
        cluster.api(lambda api: withdraw(api, f"{cluster.namespace}-claimed"))
        cluster.api(lambda api: api.delete(path))


def test_definitions_of_the_first_version_are_upgraded(cluster: Cluster) -> None:
    """Objects that were stored under them stay readable, with their status; new fields are taken; a newer relume's
    definitions are not taken back."""
    for path in sorted(FIRST.glob("*.yaml")):
        body = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        cluster.api(lambda api, body=body: api.apply(DEFINITIONS.path("", body["metadata"]["name"]), body))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}}
    cluster.api(lambda api: api.create(NAMESPACES.path(), space))
    where = MODELS.path(cluster.namespace, "echo")
    old = YAML(typ="safe", pure=True).load(pod_model("echo"))
    new = json.loads(json.dumps(old)) | {"metadata": {"name": "newer"}}
    new["spec"]["weights"] = {"uri": "s3://bucket/model", "region": "eu-1"}
    strict = {"fieldValidation": "Strict", "dryRun": "All"}

    def taken() -> bool:
        try:
            cluster.api(lambda api: api.create(MODELS.path(cluster.namespace), new, strict))
        except ApiError as error:
            if "unknown field" not in error.message:
                raise
            return False
        return True

    _eventually(taken, lambda there: not there)
    assert _eventually(lambda: cluster.ask("doctor")[1]["models.relume.dev"], lambda one: one["state"] == "warning")
    cluster.api(lambda api: api.create(MODELS.path(cluster.namespace), old))
    cluster.api(lambda api: api.merge(f"{where}/status", {"status": {"state": "Zero", "replicas": 0}}))
    before = cluster.get(where)
    code, told = cluster.ask("install", "--only-crds")
    assert code == 0, cluster.errors
    assert told["CustomResourceDefinition/models.relume.dev"]["outcome"] == "changed"
    _eventually(taken, bool)
    after = cluster.get(where)
    assert after["status"] == before["status"]
    _stands(before["spec"], after["spec"])
    note = {"metadata": {"annotations": {VERSION_NOTE: "99.0.0"}}}
    cluster.api(lambda api: api.merge(DEFINITIONS.path("", "models.relume.dev"), note))
    code, _ = cluster.ask("install", "--only-crds")
    assert code == 1
    assert "--without-crds" in cluster.errors


def _stands(before: Any, after: Any) -> None:
    """Everything that was there is there, as it was; new defaults may have joined."""
    if isinstance(before, dict):
        for key, value in before.items():
            _stands(value, after[key])
    else:
        assert before == after


def _eventually(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """What `look` finds once it is as wanted: the API server takes changes of roles and definitions in by watches."""
    for _ in range(200):
        found = look()
        if wanted(found):
            return found
    raise AssertionError(f"it stays {found}")
