"""What is read of pods and nodes, what is wrong with pods, what nodes have for replicas."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deploy.kubernetes.judging import Limits, PodReason, gone, judge
from deploy.kubernetes.nodes import mig_profile, mig_resource, observed
from deploy.kubernetes.quantities import read_quantity, write_cpu
from deploy.kubernetes.times import micro_time, read_time, time
from deploy.kubernetes.views import NodeView, PodView, node_of, pod_of
from events.types.replicas import Taint
from events.units import Instant, Seconds
from preemption.core.gpus.mig_names import known_profiles

NOW = Instant(1_000_000_000.0)
MADE = "2001-09-09T01:46:40Z"
LIMITS = Limits(schedule=Seconds(60.0), pull=Seconds(600.0))


@pytest.mark.parametrize(
    ("text", "number"),
    [("2", 2), ("100m", 0.1), ("1.5", 1.5), ("16Gi", 16 << 30), ("2G", 2e9), ("1e3", 1000), ("500n", 5e-7), (3, 3)],
)
def test_quantities_are_numbers(text: str | int, number: float) -> None:
    """All forms that the API server writes."""
    assert read_quantity(text) == number


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "--1", "1KiB"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Other forms raise ValueError."""
    with pytest.raises(ValueError, match="quantity"):
        read_quantity(text)


@pytest.mark.parametrize(("cores", "text"), [(1.0, "1"), (0.1, "100m"), (2.5, "2500m"), (0.0001, "1m"), (0.3, "300m")])
def test_cores_are_written_in_thousandths(cores: float, text: str) -> None:
    """Rounded up, so that no replica gets less than it was granted."""
    assert write_cpu(cores) == text


def test_times_are_written_and_read() -> None:
    """Leases have six digits, conditions whole seconds."""
    assert micro_time(1.5) == "1970-01-01T00:00:01.500000Z"
    assert time(1.5) == "1970-01-01T00:00:01Z"
    assert read_time("1970-01-01T00:00:01.500000Z") == 1.5


def item(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A pod as the API server says it."""
    return {
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": MADE, **metadata},
        "spec": {"nodeName": "gpu-0", "containers": [
            {"ports": [{"containerPort": 8000}], "resources": {"requests": {"cpu": "500m", "memory": "1Gi"},
                                                               "limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}},
            {"resources": {"requests": {"cpu": "1"}}},
        ], "initContainers": [{"resources": {"requests": {"cpu": "4"}}}]},
        "status": status or {},
    }  # fmt: skip


def test_a_pod_is_read() -> None:
    """Its place, its address, its ports, and what the scheduler counts for it."""
    pod = pod_of(item({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"state": {"running": {}}}]}))
    assert (pod.node, pod.ip, pod.ports, pod.running, pod.created_at) == ("gpu-0", "10.0.0.1", (8000,), True, NOW)
    assert pod.requests == {"cpu": 4.0, "memory": float(1 << 30), "nvidia.com/gpu": 2.0}


def waits(reason: str, message: str = "why") -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


def ended(reason: str, code: int = 1, **more: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, **more}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"state": state}]}


def disrupted(reason: str) -> dict[str, Any]:
    return {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason,
                                               "message": "m"}]}  # fmt: skip


TROUBLES = {
    "no image": (waits("ImagePullBackOff", "no such image"), False, PodReason.IMAGE_PULL, "no such image"),
    "no secret": (waits("CreateContainerConfigError", 'secret "hub" not found'), False, PodReason.CONTAINER_CONFIG,
                  'CreateContainerConfigError: secret "hub" not found'),
    "crash loop": (waits("CrashLoopBackOff", "back-off 10s"), True, PodReason.CRASH_LOOP, "back-off 10s"),
    "memory": (ended("OOMKilled", 137), True, "OOMKilled", "more memory than resources.memory"),
    "crash": (ended("Error", 3, message="CUDA error"), True, "Crashed", "ended by itself with 3: CUDA error"),
    "start": (ended("Error", 3), False, "ExitedWhileStarting", "ended by itself with 3"),
    "clean exit": (ended("Completed", 0), False, "ExitedWhileStarting", "ended by itself with 0"),
    "no program": (ended("StartError", 128, message='exec: "vlm": not found'), False, "CommandNotFound", '"vlm"'),
    "evicted": ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, True, PodReason.EVICTED,
                "Evicted: low on memory"),
    "sick": ({"phase": "Running", "containerStatuses": [
        {"state": {"running": {}}, "allocatedResourcesStatus": [
            {"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1", "health": "Unhealthy"}]}]}]},
        True, PodReason.UNHEALTHY, "GPU is unhealthy"),
    "asked to go": (disrupted("EvictionByEvictionAPI"), True, PodReason.EVICTED, "EvictionByEvictionAPI: m"),
    "preempted": (disrupted("PreemptionByScheduler"), True, PodReason.EVICTED, "PreemptionByScheduler: m"),
    "node": (disrupted("DeletionByTaintManager"), True, PodReason.NODE_LOST, "DeletionByTaintManager: m"),
    "lost": ({"phase": "Failed", "reason": "NodeLost", "message": "silent"}, True, PodReason.NODE_LOST, "silent"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": ["1", "2"]}, 3.0),
        ({"containers": ["1"], "initContainers": ["4", "2"]}, 4.0),
        ({"containers": ["1"], "sidecars": ["2"]}, 3.0),
        ({"containers": ["1"], "sidecars": ["2"], "initContainers": ["3"]}, 5.0),
        ({"containers": ["1"], "overhead": {"cpu": "500m"}}, 1.5),
        ({"containers": ["1"], "resources": {"requests": {"cpu": "6"}}}, 6.0),
    ],
    ids=["containers", "a start", "a sidecar", "a start beside a sidecar", "overhead", "the pod as a whole"],
)
def test_what_the_scheduler_counts(spec: dict[str, Any], cpu: float) -> None:
    """Sidecars run on beside the containers, and beside what comes after them in the start."""
    sidecars = [asks(amount) | {"restartPolicy": "Always"} for amount in spec.pop("sidecars", ())]
    made = item()
    made["spec"] = spec | {
        "containers": [asks(amount) for amount in spec["containers"]],
        "initContainers": sidecars + [asks(amount) for amount in spec.get("initContainers", ())],
    }
    assert pod_of(made).requests == {"cpu": cpu}


def asks(cpu: str) -> dict[str, Any]:
    """A container."""
    return {"resources": {"requests": {"cpu": cpu}}}


@pytest.mark.parametrize(("status", "ready", "reason", "message"), TROUBLES.values(), ids=TROUBLES)
def test_what_is_wrong_with_a_pod_is_told(status: dict[str, Any], ready: bool, reason: str, message: str) -> None:
    """Each way to fail has its reason, and the words of whoever saw it."""
    trouble = judge(pod_of(item(status)), ready=ready, limits=LIMITS, now=NOW).trouble
    assert trouble is not None
    assert trouble.reason == reason
    assert message in trouble.message


def test_a_place_and_an_image_are_waited_for() -> None:
    """A pod without a node and one whose image comes are fine until their deadlines, and looked at again then."""
    unscheduled = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                   "message": "0/3 nodes are available"}]}  # fmt: skip
    pod = pod_of({**item(unscheduled), "spec": {}})
    assert judge(pod, ready=False, limits=LIMITS, now=NOW).again_at == NOW + 60
    late = judge(pod, ready=False, limits=LIMITS, now=Instant(NOW + 60)).trouble
    assert late is not None
    assert (late.reason, late.message) == ("Unschedulable", "no node takes it: 0/3 nodes are available")
    silent = pod_of({**item({}), "spec": {}})
    assert judge(silent, ready=False, limits=LIMITS, now=NOW).again_at == NOW + 60
    nobody = judge(silent, ready=False, limits=LIMITS, now=Instant(NOW + 60)).trouble
    assert nobody is not None
    assert "no scheduler says anything" in nobody.message
    pulling = pod_of(item(waits("ErrImagePull")))
    assert judge(pulling, ready=False, limits=LIMITS, now=NOW).again_at == NOW + 600
    assert judge(pulling, ready=False, limits=LIMITS, now=Instant(NOW + 600)).trouble is not None
    assert judge(pod_of(item(waits("ContainerCreating"))), ready=False, limits=LIMITS, now=NOW).trouble is None


def test_a_pod_that_others_end_is_told() -> None:
    """Deleted by somebody, or evicted: a replica that is taken away is not one that crashed."""
    pod = pod_of(item({"phase": "Running"}, deletionTimestamp=MADE))
    trouble = judge(pod, ready=True, limits=LIMITS, now=NOW).trouble
    assert trouble is not None
    assert (trouble.reason, gone(pod).reason, gone(None).reason) == ("Deleted", "Deleted", "Deleted")


NODE = NodeView(
    name="gpu-0", ready=True, usable=True, product="H200", card_bytes=141 << 30,
    allocatable={"cpu": 16.0, "memory": float(64 << 30), "nvidia.com/gpu": 4.0, "nvidia.com/mig-1g.18gb.me": 2.0},
)  # fmt: skip


def pod(**requests: float) -> PodView:
    """A pod of others."""
    names = {"gpu": "nvidia.com/gpu"}
    return PodView(name="x", namespace="n", uid="x", requests={names.get(key, key): n for key, n in requests.items()})


def test_what_others_take_is_not_there() -> None:
    """Cores, memory and cards of pods that are not ours are left out; cards have counted names."""
    seen = observed(NODE, [pod(cpu=2, memory=4 << 30, gpu=1), pod(cpu=0.5)], ())
    assert (seen.cpu, seen.memory_bytes) == (13.5, 60 << 30)
    assert [card.id for card in seen.cards] == ["gpu-0", "gpu-1", "gpu-2", "mig-1g.18gb+me-0", "mig-1g.18gb+me-1"]
    assert seen.cards[0].product == "H200"
    assert (seen.cards[0].memory_bytes, seen.cards[3].profile) == (141 << 30, "1g.18gb+me")


def test_held_cards_keep_their_names() -> None:
    """A card that a replica was granted stays listed when others take one: the count is right, and the name too."""
    seen = observed(NODE, [pod(gpu=2)], {"gpu-3"})
    assert [card.id for card in seen.cards if not card.profile] == ["gpu-0", "gpu-3"]


@pytest.mark.parametrize("node", [
    {"spec": {"unschedulable": True}},
    {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
], ids=["cordoned", "silent"])  # fmt: skip
def test_a_node_that_takes_no_pods_has_nothing(node: dict[str, Any]) -> None:
    """What is granted on it stays listed, so that it is not thought to be free elsewhere; nothing else is."""
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}}
    view = node_of({"metadata": {"name": "a"}, "spec": {}, "status": status} | node)
    seen = observed(view, (), {"gpu-1"})
    assert (seen.cpu, [card.id for card in seen.cards]) == (0.0, ["gpu-1"] if seen.cards else [])


def test_the_taint_of_gpu_nodes_closes_nothing() -> None:
    """nvidia.com/gpu:NoSchedule is what our pods bear."""
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4"}}
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    assert node_of({"metadata": {"name": "a"}, "spec": {"taints": taints}, "status": status}).usable


def test_labels_and_taints_are_told() -> None:
    """The allocator asks them before there is a pod; what all pods of ours bear is left out."""
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4"}}
    taints = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "spot", "value": "yes", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "effect": "NoExecute"},
    ]  # fmt: skip
    view = node_of({"metadata": {"name": "a", "labels": {"pool": "a"}}, "spec": {"taints": taints}, "status": status})
    seen = observed(view, (), ())
    assert (seen.labels, seen.cpu) == ({"pool": "a"}, 4.0)
    assert seen.taints == (
        Taint(key="nvidia.com/gpu", effect="NoExecute"), Taint(key="spot", value="yes", effect="NoSchedule")
    )  # fmt: skip


def test_mig_profiles_have_two_spellings() -> None:
    """A plus sign in our words, a dot in the device plugin's."""
    assert mig_resource("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"
    assert mig_profile("nvidia.com/mig-3g.40gb") == "3g.40gb"
    assert mig_profile("nvidia.com/gpu") == ""
    for profile in known_profiles():
        assert mig_profile(mig_resource(profile)) == profile
        assert re.fullmatch(r"nvidia\.com/[a-z0-9]([a-z0-9._-]*[a-z0-9])?", mig_resource(profile))
    assert [mig_profile(f"nvidia.com/mig-{name}") for name in ("1g.10gb.shared", "1g.10gb.me.shared", "x")] == [""] * 3
