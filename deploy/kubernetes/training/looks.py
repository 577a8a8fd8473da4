"""What declarations of training jobs say for Kubernetes alone, by job, uid and revision: a fold of `relume.models`."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from deploy.kubernetes.shapes import ANNOTATION_OBJECT
from deploy.kubernetes.shaping import Owner
from deploy.kubernetes.training.objects import ANNOTATION_TARGET
from deploy.kubernetes.training.shaping import Look
from deploy.local.training.view import KEPT_REVISIONS
from deploy.spec.pod import PodSpec
from events.types.training import TrainingDeclared

NO_IMAGE = "spec.pod: on Kubernetes a member is a pod, and no image is named; add pod: {image: ...}"


@dataclass(frozen=True, slots=True)
class Target:
    """An enrolled object, by what names it."""

    api_version: str
    kind: str
    name: str


class Looks:
    """Those of all jobs; of the newest uid only."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, dict[int, Look | str]]] = {}
        self._targets: dict[str, tuple[str, Target | None]] = {}

    def fold(self, event: TrainingDeclared) -> None:
        """Take a declaration in."""
        uid, revisions = self._known.get(event.job, ("", {}))
        if uid != event.uid:
            revisions = {}
        if not event.deleted or event.revision not in revisions:
            revisions[event.revision] = _read(event)
        for old in sorted(revisions)[:-KEPT_REVISIONS]:
            del revisions[old]
        self._known[event.job] = (event.uid, revisions)
        self._targets[event.job] = (event.uid, _target(event))

    def of(self, job: str, uid: str, revision: int) -> Look:
        """One revision's. Raises ValueError when none is known or nothing can be made of it."""
        known, revisions = self._known.get(job, ("", {}))
        look = revisions.get(revision) if known == uid else None
        if look is None:
            raise ValueError(f"revision {revision} is not known")
        if isinstance(look, str):
            raise ValueError(look)  # noqa: TRY004 - a text in its place is why it is wrong
        return look

    def target(self, job: str, uid: str) -> Target | None:
        """The enrolled object that runs a job; None: its pods are ours."""
        known, target = self._targets.get(job, ("", None))
        return target if known == uid else None


def _target(event: TrainingDeclared) -> Target | None:
    words = event.annotations.get(ANNOTATION_TARGET, "").rsplit("/", 2)
    return Target(*words) if len(words) == 3 else None


def _read(event: TrainingDeclared) -> Look | str:
    object_uid = event.annotations.get(ANNOTATION_OBJECT, "")
    owner = Owner(event.job, object_uid) if object_uid else None
    pod = event.spec.get("pod")
    if pod is None:
        return NO_IMAGE
    try:
        return Look(PodSpec.model_validate(pod), owner)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"pod.{'.'.join(map(str, first['loc']))}: {first['msg']}"
