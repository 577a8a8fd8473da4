"""What declarations say for Kubernetes alone, by model, uid and revision: a fold of `relume.models`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from deploy.kubernetes.shaping import Owner
from deploy.local.view import KEPT_REVISIONS
from deploy.spec.pod import PodSpec, ScaleTargetSpec
from events.types.models import ModelDeclared

ANNOTATION_OBJECT: Final = "relume.dev/object"
"""The uid of the Model object that a declaration was made of. Ours: what users write there is taken out."""

ANNOTATION_ENROLLED: Final = "relume.dev/enrolled"
"""Likewise of an object of others that the annotation ``relume.dev/model`` enrols (`annotated`)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How replicas of one revision come to be. `wrong` says why they cannot."""

    pod: PodSpec | None
    target: ScaleTargetSpec | None
    owner: Owner | None
    wrong: str = ""


class Shapes:
    """Those of all models; of the newest uid only."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, dict[int, Shape]]] = {}

    def fold(self, event: ModelDeclared) -> Shape:
        """Take a declaration in; what it says of its revision."""
        uid, revisions = self._known.get(event.model, ("", {}))
        if uid != event.uid:
            revisions = {}
        if not event.deleted or event.revision not in revisions:
            revisions[event.revision] = _read(event)
        for old in sorted(revisions)[:-KEPT_REVISIONS]:
            del revisions[old]
        self._known[event.model] = (event.uid, revisions)
        return revisions.get(event.revision) or _read(event)

    def of(self, model: str, uid: str, revision: int) -> Shape:
        """One revision's. Raises ValueError when none is known or nothing can be made of it."""
        known, revisions = self._known.get(model, ("", {}))
        shape = revisions.get(revision) if known == uid else None
        if shape is None:
            raise ValueError(f"revision {revision} is not known")
        if shape.wrong:
            raise ValueError(shape.wrong)
        return shape


def _read(event: ModelDeclared) -> Shape:
    object_uid = event.annotations.get(ANNOTATION_OBJECT, "")
    owner = Owner(event.model, object_uid) if object_uid else None
    pod, target = event.spec.get("pod"), event.spec.get("scaleTargetRef")
    try:
        if target is not None:
            return Shape(None, ScaleTargetSpec.model_validate(target), owner)
        if pod is not None:
            return Shape(PodSpec.model_validate(pod), None, owner)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return Shape(None, None, owner, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    wrong = (
        "spec.pod: on Kubernetes a replica is a pod, and no image is named; add pod: {image: ...}, or scaleTargetRef"
    )
    return Shape(None, None, owner, wrong)
