"""From a grant to a pod."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from deploy.kubernetes.shaping import (
    Owner,
    PodOrder,
    WeightsMount,
    gpu_requests,
    manifest,
    pod_name,
    read_grant,
    write_grant,
)
from deploy.spec.pod import PodSpec
from events.types.grants import Placement, ReplicaGrant
from events.types.shared import Resources
from runtime.ports import Launch

GRANT = ReplicaGrant(
    replica="llama-r1-0", revision=1, placement=Placement(node="gpu-0", gpus=("gpu-1",)),
    resources=Resources(gpus=1, cpu=2.0, memory_bytes=1 << 30),
)  # fmt: skip


def made(
    shape: dict[str, Any] | None = None, owner: Owner | None = None, weights: tuple[WeightsMount, ...] = ()
) -> dict[str, Any]:
    """The pod of a declaration's `pod`."""
    order = PodOrder(
        namespace="models", model="llama", uid="u1", grant=GRANT, owner=owner, epoch=7, drain=300, weights=weights,
        shape=PodSpec.model_validate({"image": "vllm:1"} | (shape or {})),
        launch=Launch((sys.executable, "-m", "engine", "--host", "$(RELUME_HOST)"), {"A": "b"}),
    )  # fmt: skip
    return manifest(order)


def test_a_pod_says_whose_it_is_and_what_it_was_granted() -> None:
    """Labels, the owner, the epoch, and the grant, which the next relume reads."""
    pod = made(owner=Owner("llama", "object-1"))
    metadata = pod["metadata"]
    assert metadata["labels"]["relume.dev/model"] == "llama"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "Model", "object-1", True, False,
    )  # fmt: skip
    assert metadata["annotations"]["relume.dev/epoch"] == "7"
    assert read_grant(metadata["annotations"]["relume.dev/grant"]) == ("u1", GRANT)
    assert "ownerReferences" not in made()["metadata"]


def test_a_pod_asks_for_what_was_granted_where_it_was_granted() -> None:
    """Cores are asked for, memory and GPUs are limits too; the node is the allocator's."""
    spec = made()["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": str(1 << 30), "nvidia.com/gpu": "1"},
        "limits": {"memory": str(1 << 30), "nvidia.com/gpu": "1"},
    }
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-0"]}]}]
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)


def test_the_place_is_required_also_where_the_declaration_narrows_the_nodes() -> None:
    """The allocator knows labels and taints, so its place is one of those that are left."""
    spec = made({"nodeSelector": {"pool": "a"}})["spec"]
    assert list(spec["affinity"]["nodeAffinity"]) == ["requiredDuringSchedulingIgnoredDuringExecution"]
    assert spec["nodeSelector"] == {"pool": "a"}


def test_the_engine_listens_on_the_pods_address_by_the_images_python() -> None:
    """The kubelet fills in the address; our own interpreter's path means nothing in an image."""
    (container,) = made({"port": 9000})["spec"]["containers"]
    assert container["command"] == ["python", "-m", "engine", "--host", "$(RELUME_HOST)"]
    environment = {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}
    assert environment["RELUME_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert (environment["A"], environment["RELUME_PORT"]) == ("b", "9000")
    assert container["ports"] == [{"name": "http", "containerPort": 9000}]


def test_everything_that_a_declaration_may_say_is_in_the_pod() -> None:
    """No field of `pod` is dead."""
    shape = {
        "imagePullPolicy": "Always", "imagePullSecrets": ["registry"], "envFromSecrets": ["hub"], "runAsUser": 1000,
        "serviceAccount": "engines", "priorityClass": "high", "runtimeClass": "nvidia", "scheduler": "kai",
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute"}],
        "mounts": [{"path": "/w", "claim": "weights", "readOnly": True}, {"path": "/h", "hostPath": "/data"},
                   {"path": "/dev/shm", "memory": "1Gi"}],
    }  # fmt: skip
    assert set(shape) | {"image", "port", "nodeSelector"} == {
        str(field.alias) for field in PodSpec.model_fields.values()
    }
    spec = made(shape)["spec"]
    (container,) = spec["containers"]
    assert (container["imagePullPolicy"], spec["imagePullSecrets"]) == ("Always", [{"name": "registry"}])
    assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (1000, True)
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("engines", "high")
    assert (spec["runtimeClassName"], spec["schedulerName"]) == ("nvidia", "kai")
    assert {"key": "spot", "operator": "Exists", "effect": "NoExecute"} in spec["tolerations"]
    assert [volume.get("persistentVolumeClaim", volume.get("hostPath", volume.get("emptyDir")))
            for volume in spec["volumes"]] == [
        {"claimName": "weights", "readOnly": True}, {"path": "/data"},
        {"medium": "Memory", "sizeLimit": str(1 << 30)},
    ]  # fmt: skip
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/w", "/h", "/dev/shm"]


@pytest.mark.parametrize(("resources", "asked"), [
    (Resources(), {}), (Resources(gpus=2), {"nvidia.com/gpu": "2"}),
    (Resources(mig_profile="1g.10gb+me"), {"nvidia.com/mig-1g.10gb.me": "1"}),
    (Resources(gpu_fraction=0.25), {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}),
])  # fmt: skip
def test_gpus_are_extended_resources(resources: Resources, asked: dict[str, str]) -> None:
    """Whole ones, MIG instances, parts."""
    assert gpu_requests(resources) == asked


def test_a_name_follows_from_the_grant() -> None:
    """The same grant has the same pod; another declaration or place has another one. All are DNS names."""
    name = pod_name("u1", GRANT)
    assert name == pod_name("u1", GRANT)
    elsewhere = ReplicaGrant(
        replica="llama-r1-0", revision=1, placement=Placement(node="gpu-1", gpus=("gpu-1",)), resources=GRANT.resources
    )
    assert len({name, pod_name("u2", GRANT), pod_name("u1", elsewhere)}) == 3
    assert name.startswith("llama-r1-0-")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"uid": 1}', '{"node": "a", "gpus": null}'])
def test_what_is_no_grant_is_refused(text: str) -> None:
    """An annotation that others wrote raises ValueError."""
    with pytest.raises(ValueError, match=r"no grant|Expecting"):
        read_grant(text)


def test_a_grant_comes_back_as_it_was() -> None:
    """Writing and reading are each other's inverse."""
    assert read_grant(write_grant("u1", GRANT)) == ("u1", GRANT)


def test_weights_of_the_nodes_cache_bind_the_pod_to_it() -> None:
    """Only the snapshot is mounted, read-only; the place is no preference, whatever the declaration narrows."""
    mounts = (
        WeightsMount("relume-weights", "snapshots/abc"),
        WeightsMount("relume-weights", "snapshots/def", "/relume/adapters/de"),
    )
    spec = made({"nodeSelector": {"pool": "a"}}, weights=mounts)["spec"]
    mount, adapter = spec["containers"][0]["volumeMounts"]
    assert (adapter["mountPath"], adapter["subPath"]) == ("/relume/adapters/de", "snapshots/def")
    assert mount == {"name": "weights", "mountPath": "/relume/weights", "subPath": "snapshots/abc", "readOnly": True}
    assert spec["volumes"] == [
        {"name": "weights", "persistentVolumeClaim": {"claimName": "relume-weights", "readOnly": True}}
    ]
    assert list(spec["affinity"]["nodeAffinity"]) == ["requiredDuringSchedulingIgnoredDuringExecution"]


def test_whoever_ends_a_pod_its_requests_have_the_drains_bound() -> None:
    """The hook waits for it, and the grace has room for the hook and an end in order."""
    spec = made()["spec"]
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 300}}}
    assert spec["terminationGracePeriodSeconds"] == 330
