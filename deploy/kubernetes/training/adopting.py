"""Runs that an earlier relume left: found by what the log says of them and by their pods, and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from deploy.kubernetes.occupied import Left
from deploy.kubernetes.training.shaping import pod_name, run_of
from deploy.kubernetes.views import LABEL_MANAGED, MANAGED_BY, PodView
from deploy.local.training.lives import AnyRun
from deploy.local.training.starting import Shape
from deploy.local.training.story import Story, story_of
from events.types.grants import Placement
from events.types.training import MemberGrant, MemberStatus, TrainingObserved
from preemption.core.training import TrainingPolicy

R = TypeVar("R", bound=AnyRun)


def adopted(
    observed: TrainingObserved, policy: TrainingPolicy, make: Callable[[Shape, Story, Callable[[R], None]], R],
    changed: Callable[[R], None],
) -> R:  # fmt: skip
    """The run as it was told last, made anew; not begun."""
    members = tuple(_grant(one) for one in observed.members)
    return make(Shape(policy, observed.uid, observed.revision, observed.run, members), story_of(observed), changed)


def left_of(observed: TrainingObserved, namespace: str) -> list[Left]:
    """The pods of a run that had ended before, as far as they had GPUs."""
    members = tuple(_grant(one) for one in observed.members)
    shape = Shape(TrainingPolicy(job=observed.job, command=("unknown",)), observed.uid, observed.revision, observed.run,
                  members)  # fmt: skip
    return [
        Left(one.placement.node, f"{namespace}/{pod_name(shape, rank)}", one.placement.gpus)
        for rank, one in enumerate(members) if one.placement.gpus
    ]  # fmt: skip


def is_member(pod: PodView, namespace: str) -> bool:
    """Whether a pod is a member of a run of ours."""
    ours = pod.namespace == namespace and pod.labels.get(LABEL_MANAGED) == MANAGED_BY
    return ours and run_of(pod.annotations) is not None


def _grant(status: MemberStatus) -> MemberGrant:
    placement = Placement(node=status.node, gpus=status.gpus)
    return MemberGrant(member=status.member, placement=placement, resources=status.resources)
