"""From a training grant to the pods of its gang: names, labels, environment, volumes. Pure.

A member's pod is that of a replica (`deploy.kubernetes.shaping`) with other labels and another container's work. Where
checkpoints last the declaration says: a claim or a folder of the node in `pod.mounts`; `folder` is where the container
starts. A gang's ranks meet in a folder of the first such mount, which all members must then see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deploy.kubernetes import hami
from deploy.kubernetes.resources import GROUP, VERSION
from deploy.kubernetes.shaping import HOST, Manifest, Owner, PodOrder
from deploy.kubernetes.shaping import manifest as replica_manifest
from deploy.kubernetes.views import LABEL_MANAGED, MANAGED_BY, PodView
from deploy.local.training.starting import LISTEN, TOKEN, Shape
from deploy.spec.pod import PodSpec
from events.types.grants import ReplicaGrant
from preemption.core.training import Channel
from preemption.trainer.channels.file import ANNOTATION
from preemption.trainer.report import TERMINATION_LOG
from runtime.ports import Launch

LABEL_JOB: Final = "relume.dev/training-job"
"""The training job that a pod of ours is a member of."""
LABEL_RUN: Final = "relume.dev/run"
ANNOTATION_RUN: Final = "relume.dev/training-run"
"""The declaration's uid, the run and the member, as JSON: a relume that starts goes on with it."""
ANNOTATION_NOTICE: Final = ANNOTATION
"""The notice that stands, as the SDK reads it: the slow way in, and what people see of it."""
CONTAINER: Final = "trainer"
MEETING_PORT: Final = 29500
"""Where rank 0 meets the others (torchrun's own default; each pod has an address of its own)."""
NOTES: Final = "/etc/relume"
"""Where a container finds its pod's annotations."""
TOLD: Final = (Channel.FILE, Channel.HTTP)
"""Channels that are the SDK's: a trainer with one of them hears, and is heard, over HTTP."""


@dataclass(frozen=True, slots=True)
class Look:
    """How members of one revision look, and the TrainingJob object that they belong to."""

    pod: PodSpec
    owner: Owner | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOrder:
    """What a member's pod is made of. `master`: rank 0's address; for rank 0 itself nothing. `token`: who has it may
    give notices."""

    namespace: str
    shape: Shape
    rank: int
    look: Look
    epoch: int
    master: str
    token: str


def pod_name(shape: Shape, rank: int) -> str:
    """The member, the run, and a word for the declaration: the same grant has the same pods, however often asked."""
    member = shape.members[rank].member
    word = hashlib.sha256(f"{shape.uid}/{shape.run}/{member}".encode()).hexdigest()[:6]
    return f"{member}-{shape.run}-{word}"


def run_of(annotations: Mapping[str, str]) -> tuple[str, int, str] | None:
    """The uid, run and member that a pod of ours says; None: it is none."""
    try:
        uid, run, member = json.loads(annotations.get(ANNOTATION_RUN, ""))
        return str(uid), int(run), str(member)
    except (ValueError, TypeError):
        return None


def manifest(order: MemberOrder) -> Manifest:
    """The pod, as it is applied."""
    shape, member = order.shape, order.shape.members[order.rank]
    grant = ReplicaGrant(
        replica=member.member, revision=shape.revision, placement=member.placement, resources=member.resources
    )
    made = replica_manifest(PodOrder(
        namespace=order.namespace, model=shape.policy.job, uid=shape.uid, grant=grant, shape=order.look.pod,
        launch=Launch(shape.policy.command, {}), owner=None, epoch=order.epoch, drain=0,
    ))  # fmt: skip
    job = shape.policy.job
    made["metadata"] = {
        "name": pod_name(shape, order.rank), "namespace": order.namespace,
        "labels": {LABEL_JOB: job, LABEL_RUN: str(shape.run), LABEL_MANAGED: MANAGED_BY,
                   "app.kubernetes.io/name": job},
        "annotations": {ANNOTATION_RUN: json.dumps([shape.uid, shape.run, member.member]),
                        "relume.dev/epoch": str(order.epoch), **hami.choice_of(member.placement.gpus)},
    }  # fmt: skip
    owner = order.look.owner
    if owner is not None:
        made["metadata"]["ownerReferences"] = [{
            "apiVersion": f"{GROUP}/{VERSION}", "kind": "TrainingJob", "name": owner.name, "uid": owner.uid,
            "controller": True, "blockOwnerDeletion": False,
        }]  # fmt: skip
    spec = made["spec"]
    for claimed in spec.get("resourceClaims", ()):
        claimed["resourceClaimName"] = made["metadata"]["name"]
    spec["terminationGracePeriodSeconds"] = max(1, round(shape.policy.checkpoint.grace))
    notes = {"name": "relume", "downwardAPI": {
        "items": [{"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]
    }}  # fmt: skip
    spec["volumes"] = [*spec.get("volumes", ()), notes]
    (container,) = spec["containers"]
    container.pop("lifecycle", None)  # it is told before, and has its own grace
    container["name"], container["env"] = CONTAINER, _environment(order)
    container["ports"] = [{"name": "relume", "containerPort": order.look.pod.port}]
    container["volumeMounts"] = [
        *container.get("volumeMounts", ()), {"name": "relume", "mountPath": NOTES, "readOnly": True}
    ]  # fmt: skip
    container["terminationMessagePath"] = str(TERMINATION_LOG)
    if shape.policy.folder:
        container["workingDir"] = shape.policy.folder
    return made


def _environment(order: MemberOrder) -> list[Manifest]:
    """As on one machine (`deploy.local.training.starting`): each member sees its own cards only, so its LOCAL_RANK is
    0. The pod's address comes first: others name it."""
    shape, policy = order.shape, order.shape.policy
    values = dict(policy.environment) | {
        "RANK": str(order.rank), "WORLD_SIZE": str(len(shape.members)), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": order.master or HOST, "MASTER_PORT": str(MEETING_PORT),
        "RELUME_JOB": policy.job, "RELUME_RUN": str(shape.run), "RELUME_PREEMPT_SIGNAL": policy.checkpoint.signal,
        "RELUME_TERMINATION_LOG": str(TERMINATION_LOG),
    }  # fmt: skip
    board = _board(order)
    if board:
        values["RELUME_BOARD"] = board
    if Channel.FILE in policy.checkpoint.channels:
        values["RELUME_ANNOTATIONS_FILE"] = f"{NOTES}/annotations"
    if order.rank == 0 and is_told(shape):
        values |= {LISTEN: f"{HOST}:{order.look.pod.port}", TOKEN: order.token}
    host = {"name": "RELUME_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return [host, *({"name": name, "value": text} for name, text in values.items())]


def is_told(shape: Shape) -> bool:
    """Whether its trainer hears notices before it must go."""
    return any(channel in TOLD for channel in shape.policy.checkpoint.channels)


def lasting(pod: PodSpec) -> str:
    """Where in the container files last beyond the pod; empty: nowhere."""
    found = (one.path for one in pod.mounts if one.memory is None and not one.read_only)
    return next(found, "")


def _board(order: MemberOrder) -> str:
    """Where the ranks of a gang meet: new for each run."""
    root = lasting(order.look.pod)
    if len(order.shape.members) == 1 or not root:
        return ""
    return f"{root.rstrip('/')}/.relume/{order.shape.policy.job}/{order.shape.uid}/{order.shape.run}"


def token_in(pod: PodView) -> str:
    """The token that a pod was started with; empty: none."""
    return next((one.variables.get(TOKEN, "") for one in pod.containers[:1]), "")
