"""Stand-ins: pods that wait in replicas' places, so that whoever adds nodes to the cluster adds one. Pure.

A stand-in asks for what its replica would ask for, but for the node. Cluster autoscalers and Karpenter react to pods
that the scheduler finds no node for. Once the scheduler binds one it has done its work: it is deleted, and the
allocator, which has seen the same node, places the replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.kubernetes.resources import Json
from deploy.kubernetes.shaping import Manifest, PodOrder, manifest
from deploy.kubernetes.views import LABEL_MANAGED, LABEL_REVISION, MANAGED_BY, PodView
from events.types.grants import NodeCall
from events.units import Instant, Seconds
from runtime.ports import Launch

LABEL_STAND_IN: Final = "relume.dev/stand-in"
"""The model that a pod stands in for."""
SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
AGAIN: Final = Seconds(30.0)
"""After a stand-in was bound, or refused: before another one in its place. A node's cards are granted within seconds of
its being seen; who lacks one after that needs another node. Chosen."""
WAITS: Final = Launch(("sleep", "infinity"))
"""What a stand-in runs in the moment that it may have on a node: of the model's own image, which is pulled then."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model's call, and of which declaration. `size`: pods of one replica."""

    uid: str
    revision: int
    call: NodeCall
    size: int = 1

    @property
    def pods(self) -> int:
        """How many stand in for all replicas that are called for."""
        return self.call.replicas * self.size


@dataclass(slots=True)
class Past:
    """What is remembered of a model's stand-ins. `bound_at`: when such were bound that are gone since; `ended`: uids of
    those that we ended; `cancelled_at`: when somebody else deleted one that waited; `refused`: the API server's words,
    `refused_at` when."""

    bound_at: list[Instant] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    cancelled_at: Instant | None = None
    refused: str = ""
    refused_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class StandInPlan:
    """How many to make, which pods to delete, and when to look again though nothing happens."""

    make: int
    delete: tuple[PodView, ...]
    again_at: Instant | None = None


def is_stand_in(pod: PodView, namespace: str) -> bool:
    """Whether a pod is a stand-in of ours."""
    return (
        pod.namespace == namespace and LABEL_STAND_IN in pod.labels and pod.labels.get(LABEL_MANAGED) == MANAGED_BY
    )  # fmt: skip


def waiting(pods: Iterable[PodView]) -> list[PodView]:
    """Those of the pods that no node has yet, by name."""
    return sorted((one for one in pods if not (one.deleting or one.node or one.over)), key=lambda one: one.name)


def plan_stand_ins(wanted: Wanted | None, pods: Iterable[PodView], past: Past, now: Instant) -> StandInPlan:
    """What makes a model's stand-ins as its call has them. `past` is forgotten where it says nothing any more."""
    there = [pod for pod in pods if not pod.deleting]
    bound = [pod for pod in there if pod.node or pod.over]
    past.bound_at = [at for at in past.bound_at if now < at + AGAIN]
    if past.refused_at is not None and now >= past.refused_at + AGAIN:
        past.refused_at = None
    if wanted is None or wanted.call.again_at is not None:
        past.refused, past.refused_at = "", None
        return StandInPlan(0, tuple(there))
    if past.cancelled_at is not None and past.cancelled_at >= wanted.call.since:
        return StandInPlan(0, tuple(there))
    mine = [pod for pod in waiting(there) if pod.labels.get(LABEL_REVISION) == str(wanted.revision)]
    kept = mine[: wanted.pods]
    others = tuple(pod for pod in there if pod not in kept)
    lacking = wanted.pods - len(kept) - len(past.bound_at) - len(bound)
    moments = [Instant(at + AGAIN) for at in past.bound_at]
    if past.refused_at is not None:
        return StandInPlan(0, others, Instant(min([*moments, past.refused_at + AGAIN])))
    return StandInPlan(max(0, lacking), others, min(moments, default=None))


def stand_in_name(model: str, taken: Iterable[str]) -> str:
    """A name that none of `taken` has."""
    names, index = set(taken), 0
    while (name := f"{model}-stand-in-{index}") in names:
        index += 1
    return name


def stand_in(order: PodOrder, name: str) -> Manifest:
    """The pod: a replica's, with any node that its declaration allows, no secrets, and the priority that pods have who
    say nothing: it shall take nobody's place."""
    made = manifest(order)
    made["metadata"] |= {
        "name": name, "annotations": {SAFE: "true"},
        "labels": {LABEL_STAND_IN: order.model, LABEL_MANAGED: MANAGED_BY,
                   LABEL_REVISION: str(order.grant.revision)},
    }  # fmt: skip
    spec = made["spec"]
    for part in ("affinity", "priorityClassName"):
        spec.pop(part, None)
    spec["terminationGracePeriodSeconds"] = 1
    for part in ("env", "envFrom", "lifecycle", "ports"):
        spec["containers"][0].pop(part, None)
    return made


_KEPT: Final = (
    "nodeSelector", "affinity", "tolerations", "schedulerName", "runtimeClassName", "topologySpreadConstraints",
    "resourceClaims", "securityContext", "imagePullSecrets",
)  # fmt: skip
"""What of a template decides on its node, and whether its image can be pulled."""
_OF_CONTAINERS: Final = ("name", "image", "imagePullPolicy", "resources", "securityContext", "restartPolicy")


@dataclass(frozen=True, slots=True)
class About:
    """Whose a stand-in is: its name, its namespace, the model and its revision."""

    name: str
    namespace: str
    model: str
    revision: int


def stand_in_of(about: About, template: Json, owner: Manifest) -> Manifest:
    """The pod that stands in for one of an enrolled object's: what its template asks of a node. It has none of the
    template's labels, so its object's controller takes it for nobody's."""
    spec: Manifest = {name: template[name] for name in _KEPT if name in template}
    for part in ("initContainers", "containers"):
        if template.get(part):
            spec[part] = [_sleeps(one) for one in template[part]]
    claims = [one for one in template.get("volumes", ()) if "persistentVolumeClaim" in one]
    spec |= {
        "volumes": claims, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False, "enableServiceLinks": False,
    }  # fmt: skip
    metadata: Manifest = {
        "name": about.name, "namespace": about.namespace, "annotations": {SAFE: "true"},
        "labels": {LABEL_STAND_IN: about.model, LABEL_MANAGED: MANAGED_BY, LABEL_REVISION: str(about.revision)},
        "ownerReferences": [owner],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _sleeps(container: Json) -> Manifest:
    kept: dict[str, Any] = {name: container[name] for name in _OF_CONTAINERS if name in container}
    return {**kept, "command": list(WAITS.argv)}


def member_of(size: int, name: str) -> int:
    """Which of a replica's pods a stand-in is, by its name: 0 is the one that serves."""
    return int(name.rpartition("-")[2]) % size
