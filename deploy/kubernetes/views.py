"""What relume reads of pods and nodes: the few fields that it decides by, out of the JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from deploy.kubernetes import hami, slicing
from deploy.kubernetes.quantities import card_memory, read_quantity
from deploy.kubernetes.resources import Json
from deploy.kubernetes.times import read_time
from events.types.replicas import Card, Taint
from events.units import Instant

LABEL_MODEL = "relume.dev/model"
LABEL_REVISION = "relume.dev/revision"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
MANAGED_BY = "relume"
POD_INDEX = "apps.kubernetes.io/pod-index"
"""A pod's number in its StatefulSet."""
ANNOTATION_REPLICA = "relume.dev/replica"
"""The replica that a pod is."""
ANNOTATION_GRANT = "relume.dev/grant"
"""The grant that a pod of ours was made of, as JSON: a relume that starts goes on with it."""


OURS = "RELUME_"
"""With this the variables of a container begin that we read."""
OVER = ("Succeeded", "Failed")
"""Phases of a pod of which no container runs again."""
NOTHING: Mapping[str, str] = {}
BEGINNING = Instant(0.0)
"""For a pod that does not say when it was made."""


@dataclass(frozen=True, slots=True)
class Told:
    """A reason and its sentence."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    exit_code: int
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container: its ports by number and name, and its variables that begin with `OURS`. A value that stands
    elsewhere (`valueFrom`) is empty."""

    name: str
    ports: tuple[tuple[int, str], ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod. `waiting`, `ended` and `running` are its first container's; `disrupted` is the condition
    DisruptionTarget."""

    name: str
    namespace: str
    uid: str
    node: str = ""
    ip: str = ""
    phase: str = "Pending"
    created_at: Instant = BEGINNING
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    containers: tuple[ContainerView, ...] = ()
    deleting: bool = False
    running: bool = False
    waiting: Told | None = None
    ended: Ended | None = None
    unscheduled: Told | None = None
    disrupted: Told | None = None
    sick: bool = False
    """Its kubelet, or the agent of its node, says that a device of it is unhealthy."""
    told: Told | None = None
    """The pod's own reason, such as Evicted or NodeLost."""
    ready: bool = False
    """By its readiness probes, as its kubelet tells."""
    ordinal: int | None = None
    """Its number in the StatefulSet that made it, which ends the highest first; None: another made it."""

    @property
    def ports(self) -> tuple[int, ...]:
        """Of all containers."""
        return tuple(number for one in self.containers for number, _ in one.ports)

    @property
    def over(self) -> bool:
        """No container of it will run again."""
        return self.phase in OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node. `usable`: ready, and open for pods. `taints`: without the one that all pods of ours bear."""

    name: str
    ready: bool
    usable: bool
    allocatable: Mapping[str, float] = field(default_factory=dict)
    product: str = ""
    card_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    shared: tuple[Card, ...] | None = None
    """The cards that HAMi shares; None: it does not."""


def pod_of(item: Json) -> PodView:
    """A pod's JSON. Missing parts are as if nothing were said."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    state = _first(status.get("containerStatuses", ())).get("state", {})
    scheduled, disrupted = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    ended = state.get("terminated")
    return PodView(
        name=metadata["name"], namespace=metadata.get("namespace", ""), uid=metadata["uid"],
        node=spec.get("nodeName", ""), ip=status.get("podIP", ""), phase=status.get("phase", "Pending"),
        created_at=read_time(metadata["creationTimestamp"]),
        labels=metadata.get("labels", {}), annotations=metadata.get("annotations", {}), requests=_requests(spec),
        containers=tuple(map(container_of, spec.get("containers", ()))),
        deleting="deletionTimestamp" in metadata, running="running" in state, waiting=_told(state.get("waiting")),
        ended=None if ended is None else Ended(
            int(ended.get("exitCode", 0)), str(ended.get("reason", "")), str(ended.get("message", ""))
        ),
        unscheduled=_told(scheduled) if scheduled.get("status") == "False" else None,
        disrupted=_told(disrupted) if disrupted.get("status") == "True" else None,
        told=_told(status) if status.get("reason") else None, sick=_sick(status),
        ready=conditions.get("Ready", {}).get("status") == "True", ordinal=_ordinal(metadata),
    )  # fmt: skip


def _ordinal(metadata: Json) -> int | None:
    """By its label (since Kubernetes 1.28), or else by its name. A LeaderWorkerSet's leaders are a StatefulSet's."""
    owners = metadata.get("ownerReferences", ())
    if not any(one.get("controller") and one.get("kind") == "StatefulSet" for one in owners):
        return None
    told = str(metadata.get("labels", {}).get(POD_INDEX) or metadata["name"].rpartition("-")[2])
    return int(told) if told.isdecimal() else None


def container_of(part: Json) -> ContainerView:
    """A container's JSON."""
    variables = {intern(str(one["name"])): str(one.get("value", "")) for one in part.get("env", ())
                 if str(one["name"]).startswith(OURS)}  # fmt: skip
    ports = tuple((int(one["containerPort"]), str(one.get("name", ""))) for one in part.get("ports", ()))
    return ContainerView(intern(str(part.get("name", ""))), ports, variables or NOTHING)


def taker_of(item: Json) -> PodView:
    """A pod of another namespace: what it takes of its node, also by HAMi's word, and nothing else. They may be many:
    names that repeat are kept once."""
    pod, metadata = pod_of(item), item["metadata"]
    allocated = {name: text for name, text in metadata.get("annotations", {}).items() if name == hami.ALLOCATED}
    return PodView(
        name=pod.name, namespace=intern(pod.namespace), uid=pod.uid, node=intern(pod.node), phase=intern(pod.phase),
        created_at=pod.created_at, annotations=allocated or NOTHING, deleting=pod.deleting,
        labels=NOTHING, requests={intern(name): amount for name, amount in pod.requests.items()},
    )  # fmt: skip


def _sick(status: Json) -> bool:
    """By `allocatedResourcesStatus`, which kubelets write since Kubernetes 1.31 where ResourceHealthStatus is on."""
    return any(
        device.get("health") == "Unhealthy"
        for container in status.get("containerStatuses", ())
        for resource in container.get("allocatedResourcesStatus", ())
        for device in resource.get("resources", ())
    )


BORNE = "nvidia.com/gpu"
"""The taint that nodes with GPUs usually have; pods of ours bear it."""


def node_of(item: Json) -> NodeView:
    """A node's JSON."""
    spec, status = item.get("spec", {}), item.get("status", {})
    labels = item["metadata"].get("labels", {})
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
    taints = (
        Taint(key=str(one.get("key", "")), value=str(one.get("value", "")), effect=str(one.get("effect", "")))
        for one in spec.get("taints", ())
    )
    return NodeView(
        name=item["metadata"]["name"], ready=ready,
        usable=ready and not spec.get("unschedulable", False),
        allocatable={name: read_quantity(text) for name, text in status.get("allocatable", {}).items()},
        product=slicing.product_of(labels),
        card_bytes=card_memory(str(labels.get("nvidia.com/gpu.memory", ""))) or 0,
        labels={str(key): str(value) for key, value in labels.items()},
        shared=hami.cards_in(item["metadata"].get("annotations", {})),
        taints=tuple(sorted((one for one in taints if not _borne(one)), key=lambda one: (one.key, one.effect))),
    )  # fmt: skip


def _borne(taint: Taint) -> bool:
    return taint.key == BORNE and taint.effect == "NoSchedule"


def _first(items: Any) -> Json:
    found: Json = next(iter(items), {})
    return found


def _told(part: Json | None) -> Told | None:
    return None if part is None else Told(str(part.get("reason", "")), str(part.get("message", "")))


def _requests(spec: Json) -> Mapping[str, float]:
    """What the scheduler counts of each resource: containers and sidecars together, or what its start takes if that is
    more, and the runtime's overhead; what the pod asks for as a whole instead, where it does."""
    beside: dict[str, float] = {}
    peak: dict[str, float] = {}
    for one in spec.get("initContainers", ()):
        runs = _sum(beside, _asked(one))
        peak = {name: max(amount, peak.get(name, 0.0)) for name, amount in {**peak, **runs}.items()}
        if one.get("restartPolicy") == "Always":  # a sidecar goes on beside what comes after it
            beside = runs
    sums = beside
    for one in spec.get("containers", ()):
        sums = _sum(sums, _asked(one))
    counted = {name: max(sums.get(name, 0.0), peak.get(name, 0.0)) for name in {**sums, **peak}}
    overhead = {name: read_quantity(text) for name, text in spec.get("overhead", {}).items()}
    return _sum({**counted, **_asked(spec)}, overhead)


def _sum(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in {**first, **second}}


def _asked(container: Json) -> Mapping[str, float]:
    resources = container.get("resources", {})
    asked = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {name: read_quantity(text) for name, text in asked.items()}
