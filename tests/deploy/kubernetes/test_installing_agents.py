"""What `relume install` adds: agents where they are asked for, a ServiceMonitor where its kind is known."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from deploy.kubernetes.api import KubeApi, connect
from deploy.kubernetes.packaging import KINDS, NAMESPACES, Wanted, objects
from deploy.kubernetes.packaging_apply import Installer, Outcome
from deploy.kubernetes.packaging_doctor import Doctor, State
from deploy.kubernetes.resources import DEFINITIONS, PODS
from tests.support.kube_plane import ControlPlane

MONITORS: Final = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com", "scope": "Namespaced",
        "names": {"plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}],
    },
}  # fmt: skip
"""As far as it goes the kind of the Prometheus operator."""


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[tuple[KubeApi, str]]:
    """The API server, and a namespace that demands the standard "baseline"."""
    api = await connect(plane.kubeconfig)
    name = f"agents-{os.getpid()}"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    await api.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace",
                                         "metadata": {"name": name, "labels": labels}})  # fmt: skip
    try:
        yield api, name
    finally:
        await api.delete(KINDS["PersistentVolume"].path("", f"relume-weights-{name}"))
        await api.delete(DEFINITIONS.path("", MONITORS["metadata"]["name"]))
        await api.delete(NAMESPACES.path("", name))
        await api.close()


def told(outcomes: list[Outcome]) -> dict[tuple[str, str], str]:
    """What became of each object."""
    return {(one.kind, one.name): one.outcome for one in outcomes}


@pytest.mark.slow
@pytest.mark.kubernetes
@pytest.mark.needs("kubernetes")
async def test_agents_and_a_monitor(cluster: tuple[KubeApi, str]) -> None:
    """Installed, the same the second time, taken by PodSecurity, seen by the doctor; data stay unless named."""
    api, namespace = cluster
    installer, wanted = Installer(api, "0.1.0", dry=False), Wanted(namespace, "relume.test/relume:1", agents=True)
    assert ("ServiceMonitor", "relume") not in told(await installer.everything(wanted, create_namespace=False))
    await api.create(DEFINITIONS.path(), MONITORS)
    while not await installer._knows(KINDS["ServiceMonitor"]):
        pass  # the API server serves it some calls later
    first = told(await installer.everything(wanted, create_namespace=False))
    assert first["ServiceMonitor", "relume"] == "created"
    second = told(await installer.everything(wanted, create_namespace=False))
    assert {"unchanged", "kept"} == set(second.values())
    daemon = await api.get(KINDS["DaemonSet"].path(namespace, "relume-agent"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": daemon["spec"]["template"]["spec"]}
    await api.create(PODS.path(namespace), pod, {"dryRun": "All"})  # the standard "baseline" takes it
    (check,) = [one for one in await Doctor(api, namespace, "relume").look() if one.name == "relume-agent"]
    assert check.state in (State.OK, State.FAILED)  # as the nodes are that other tests have
    removed = told(await installer.remove([wanted], data=False, crds=False))
    volume = ("PersistentVolume", f"relume-weights-{namespace}")
    assert (removed[volume], removed["DaemonSet", "relume-agent"]) == ("kept", "deleted")
    assert told(await installer.remove([wanted], data=True, crds=False))[volume] == "deleted"


def test_two_namespaces_share_no_folder() -> None:
    """Of a node; nor a volume, nor a claim."""
    made = {name: objects(Wanted(name, "a/relume:1", agents=True)) for name in ("first", "second")}
    volumes: dict[str, Any] = {
        name: next(one for one in found if one["kind"] == "PersistentVolume") for name, found in made.items()
    }
    assert {name: one["spec"]["hostPath"]["path"] for name, one in volumes.items()} == {
        "first": "/var/lib/relume/first", "second": "/var/lib/relume/second",
    }  # fmt: skip
    for name, found in made.items():
        claim = next(one for one in found if one["metadata"]["name"] == "relume-weights")
        assert claim["spec"]["volumeName"] == volumes[name]["metadata"]["name"] == f"relume-weights-{name}"
        assert volumes[name]["spec"]["claimRef"]["namespace"] == name
        env = [pair for one in found if one["kind"] in ("Deployment", "DaemonSet")
               for pair in one["spec"]["template"]["spec"]["containers"][0]["env"]]  # fmt: skip
        assert {"name": "RELUME_KUBE_WEIGHTS_CLAIM", "value": "relume-weights"} in env
