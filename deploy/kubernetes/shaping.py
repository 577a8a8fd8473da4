"""From a grant to a pod: its name, labels, command, resources and place. Pure.

The engine's adapter says what to run, as on one machine. Three things differ: it listens on the pod's own address,
which the kubelet fills in (``$(RELUME_HOST)``), on the port that the declaration names; programs of relume itself are
started by the image's own ``python``; and resources are asked of Kubernetes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, Final, Protocol

from deploy.kubernetes import hami, slicing
from deploy.kubernetes.devices import CLAIM, CLAIMS, claim_spec, is_device
from deploy.kubernetes.nodes import GPU, mig_resource
from deploy.kubernetes.quantities import write_cpu
from deploy.kubernetes.resources import GROUP, VERSION
from deploy.kubernetes.views import (
    ANNOTATION_GRANT,
    ANNOTATION_REPLICA,
    BORNE,
    LABEL_MANAGED,
    LABEL_MODEL,
    LABEL_REVISION,
    MANAGED_BY,
)
from deploy.spec.pod import MountSpec, PodSpec
from events.types.grants import Placement, ReplicaGrant
from events.types.shared import Resources
from runtime.ports import Launch

HOST: Final = "$(RELUME_HOST)"
"""The pod's address, as a container's command and environment may name it."""
CONTAINER: Final = "engine"
TERM_GRACE: Final = 30
"""Seconds from SIGTERM to SIGKILL, after the drain (Kubernetes' own default for both together)."""
WEIGHTS: Final = "/relume/weights"
"""Where a pod finds the weights that its node's agent brought; read-only."""
ADAPTERS: Final = "/relume/adapters"
"""Likewise its LoRA adapters, each in a folder of its name."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """The Model object that pods belong to: when it goes, so do they."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class WeightsMount:
    """A snapshot of the node's cache: `claim` is of the volume that is each node's own folder; `path` in the pod."""

    claim: str
    folder: str
    path: str = WEIGHTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOrder:
    """What a pod is made of."""

    namespace: str
    model: str
    uid: str
    grant: ReplicaGrant
    shape: PodSpec
    launch: Launch
    owner: Owner | None
    epoch: int
    drain: int
    """Seconds that its requests have when another hand ends it."""
    weights: tuple[WeightsMount, ...] = ()


def pod_name(uid: str, grant: ReplicaGrant) -> str:
    """The replica's name and a word for its declaration and place: the same grant has the same pod, however often it is
    asked for, and a replica that is placed anew needs not wait for a pod that lingers on a lost node."""
    place = json.dumps([uid, grant.placement.node, *grant.placement.gpus])
    return f"{grant.replica}-{hashlib.sha256(place.encode()).hexdigest()[:6]}"


def manifest(order: PodOrder) -> Manifest:
    """The pod, as it is applied."""
    shape, grant = order.shape, order.grant
    metadata: Manifest = {
        "name": pod_name(order.uid, grant), "namespace": order.namespace,
        "labels": {LABEL_MODEL: order.model, LABEL_REVISION: str(grant.revision), LABEL_MANAGED: MANAGED_BY,
                   "app.kubernetes.io/name": order.model},
        "annotations": {ANNOTATION_REPLICA: grant.replica, ANNOTATION_GRANT: write_grant(order.uid, grant),
                        "relume.dev/epoch": str(order.epoch), **hami.choice_of(grant.placement.gpus)},
    }  # fmt: skip
    if order.owner is not None:
        metadata["ownerReferences"] = [{
            "apiVersion": f"{GROUP}/{VERSION}", "kind": "Model", "name": order.owner.name, "uid": order.owner.uid,
            "controller": True, "blockOwnerDeletion": False,
        }]  # fmt: skip
    spec: Manifest = {
        "containers": [_container(order)],
        "restartPolicy": "Never",  # a start that failed is counted, told and tried again by relume
        "terminationGracePeriodSeconds": order.drain + TERM_GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": _tolerations(shape),
        "securityContext": _pod_security(shape),
        "affinity": {"nodeAffinity": _affinity(order)},
    }
    given = {
        "nodeSelector": dict(shape.node_selector), "serviceAccountName": shape.service_account,
        "priorityClassName": shape.priority_class, "runtimeClassName": shape.runtime_class,
        "schedulerName": shape.scheduler, "imagePullSecrets": [{"name": name} for name in shape.image_pull_secrets],
        "volumes": [*(_volume(index, mount) for index, mount in enumerate(shape.mounts)), *_cached(order)],
    }  # fmt: skip
    spec |= {name: value for name, value in given.items() if value}
    if claim_of(grant):
        spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimName": metadata["name"]}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def write_grant(uid: str, grant: ReplicaGrant) -> str:
    """The grant as JSON, for the relume that reads the pod after a restart."""
    resources = grant.resources
    return json.dumps({
        "uid": uid, "replica": grant.replica, "revision": grant.revision, "node": grant.placement.node,
        "gpus": list(grant.placement.gpus),
        "resources": {"gpus": resources.gpus, "gpu_fraction": resources.gpu_fraction,
                      "mig_profile": resources.mig_profile, "cpu": resources.cpu,
                      "memory_bytes": resources.memory_bytes,
                      **({"gpu_bytes": resources.gpu_bytes} if resources.gpu_bytes else {})},
    }, separators=(",", ":"))  # fmt: skip


def read_grant(text: str) -> tuple[str, ReplicaGrant]:
    """The uid and the grant in a pod's annotation. Raises ValueError for what we did not write."""
    try:
        said = json.loads(text)
        placement = Placement(node=str(said["node"]), gpus=tuple(said["gpus"]))
        grant = ReplicaGrant(
            replica=str(said["replica"]),
            revision=int(said["revision"]),
            placement=placement,
            resources=Resources(**said["resources"]),
        )
        return str(said["uid"]), grant
    except (TypeError, KeyError) as error:
        raise ValueError(f"no grant: {error}") from error


def _container(order: PodOrder) -> Manifest:
    shape = order.shape
    argv = ["python" if word == sys.executable else word for word in order.launch.argv]
    environment: list[Manifest] = [
        {"name": "RELUME_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "RELUME_REPLICA", "value": order.grant.replica},
        {"name": "RELUME_PORT", "value": str(shape.port)},
        *({"name": name, "value": text} for name, text in order.launch.env.items()),
    ]
    made: Manifest = {
        "name": CONTAINER, "image": shape.image, "command": argv, "env": environment,
        "ports": [{"name": "http", "containerPort": shape.port}],
        "resources": _resources(order.grant),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # whoever ends the pod: its requests finish first, while the gateways send it no new ones
        "lifecycle": {"preStop": {"sleep": {"seconds": order.drain}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last words are told with the failure
    }  # fmt: skip
    if shape.image_pull_policy is not None:
        made["imagePullPolicy"] = shape.image_pull_policy
    if shape.env_from_secrets:
        made["envFrom"] = [{"secretRef": {"name": name}} for name in shape.env_from_secrets]
    mounts = [
        {"name": f"mount-{index}", "mountPath": mount.path, "readOnly": mount.read_only}
        for index, mount in enumerate(shape.mounts)
    ]
    mounts += [
        {"name": "weights", "mountPath": one.path, "subPath": one.folder, "readOnly": True} for one in order.weights
    ]
    if mounts:
        made["volumeMounts"] = mounts
    return made


def _resources(grant: ReplicaGrant) -> Manifest:
    """Cores are asked for and not limited: a limit throttles an engine whose node has cores to spare. Memory is both,
    so that a replica that takes more is ended and told instead of its neighbours."""
    wanted = grant.resources
    memory = str(wanted.memory_bytes)
    claim = claim_of(grant)
    gpus = {} if claim else gpu_requests(wanted, grant.placement.gpus)
    made: Manifest = {
        "requests": {"cpu": write_cpu(wanted.cpu), "memory": memory, **gpus}, "limits": {"memory": memory, **gpus},
    }  # fmt: skip
    return made | ({"claims": [{"name": CLAIM}]} if claim else {})


class Granted(Protocol):
    """What a replica, or a member of a training job, was granted."""

    @property
    def placement(self) -> Placement:
        """Where."""

    @property
    def resources(self) -> Resources:
        """What."""


def claim_of(grant: Granted) -> Manifest:
    """The claim of exactly the granted cards, where a driver publishes them one by one; empty where a plugin counts
    them. Raises ValueError for what a claim cannot say."""
    cards = grant.placement.gpus
    if not cards or not is_device(cards[0]):
        return {}
    if grant.resources.gpu_fraction or grant.resources.gpu_bytes or grant.resources.mig_profile:
        raise ValueError(
            f"node {grant.placement.node} offers its GPUs by resource claims, of which relume makes whole ones only; "
            "ask for resources.gpus, or keep the model from that node by pod.nodeSelector"
        )
    return claim_spec(cards)


def claim(pod: Manifest, grant: Granted, uid: str = "") -> Manifest | None:
    """The ResourceClaim of a pod, as it is applied: it goes with the pod once that has a `uid`, with what owns the pod
    before. None: the pod needs none."""
    spec = claim_of(grant)
    if not spec:
        return None
    about = pod["metadata"]
    owners = about.get("ownerReferences", [])
    if uid:
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": uid}]
    metadata = {"name": about["name"], "namespace": about["namespace"], "labels": about["labels"],
                "ownerReferences": owners}  # fmt: skip
    return {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": metadata, "spec": spec}


def gpu_requests(wanted: Resources, cards: Sequence[str] = ()) -> Mapping[str, str]:
    """The extended resources of whole GPUs, of a MIG instance, of a turn of a time-sliced GPU, or of a part of a GPU
    (HAMi's, in per cent or MiB of its memory). Per cents are rounded down: the sum of all may be no more than the
    card."""
    if wanted.mig_profile:
        return {mig_resource(wanted.mig_profile): "1"}
    turn = slicing.resource_of(cards[0]) if cards else None
    if turn is not None:
        return {turn: "1"}
    if wanted.gpu_bytes:
        return {GPU: "1", hami.MEMORY: str(-(-wanted.gpu_bytes >> 20) or 1)}
    if wanted.gpu_fraction:
        return {GPU: "1", hami.PERCENTAGE: str(max(1, floor(round(wanted.gpu_fraction * 100, 6))))}
    return {GPU: str(wanted.gpus)} if wanted.gpus else {}


def _affinity(order: PodOrder) -> Manifest:
    """The node that the allocator chose, among those whose labels and taints allow it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [order.grant.placement.node]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def _tolerations(shape: PodSpec) -> list[Manifest]:
    own = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in shape.tolerations]
    return [{"key": BORNE, "operator": "Exists", "effect": "NoSchedule"}, *own]


def _pod_security(shape: PodSpec) -> Manifest:
    made: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if shape.run_as_user is not None:
        made |= {"runAsUser": shape.run_as_user, "runAsNonRoot": True}
    return made


def _cached(order: PodOrder) -> list[Manifest]:
    """The node's cache; only the snapshots' folders of it are mounted."""
    claims = {one.claim for one in order.weights}
    return [{"name": "weights", "persistentVolumeClaim": {"claimName": one, "readOnly": True}} for one in claims]


def _volume(index: int, mount: MountSpec) -> Manifest:
    name = {"name": f"mount-{index}"}
    if mount.claim is not None:
        return name | {"persistentVolumeClaim": {"claimName": mount.claim, "readOnly": mount.read_only}}
    if mount.host_path is not None:
        return name | {"hostPath": {"path": mount.host_path}}
    return name | {"emptyDir": {"medium": "Memory", "sizeLimit": str(mount.memory)}}
