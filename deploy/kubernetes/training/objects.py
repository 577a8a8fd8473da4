"""From objects to declarations of training jobs: TrainingJob objects, and Jobs of others that carry our label.

As with models (`declared_objects`). A name belongs to one object: a TrainingJob before a Job of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from deploy.kubernetes import declared_objects
from deploy.kubernetes.declared_objects import Accepted, DeclaredObjects, RefusedObject
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import TRAINING_JOBS, Json, Resource
from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.kinds import Document
from deploy.spec.training import TrainingJob
from events.clock import Clock
from events.types.training import TrainingDeclared

ANNOTATION_TARGET: Final = "relume.dev/training-target"
"""In a declaration: ``apiVersion/kind/name`` of the enrolled object that runs it. Ours, as `ANNOTATION_OBJECT` is."""


PAUSED: Final = "relume.dev/paused"
"""On a TrainingJob object: ``true`` has it save and give its GPUs back, ``false`` lets it go on; without it nothing is
said. `relume train pause` and people write it."""
CANCELLED: Final = "relume.dev/cancelled"
"""Likewise: ``true`` ends it, ``false`` lets it run again."""


class Declares(Protocol):
    """Writes declarations (`deploy.api.declaring`). All raise ProblemError."""

    async def apply(self, documents: Sequence[Document]) -> object:
        """Declare these, all or none."""

    async def delete_training(self, name: str) -> object:
        """Declare a training job no longer."""

    async def pause(self, name: str, *, paused: bool) -> None:
        """Let it give its GPUs back, or resume it."""

    async def cancel(self, name: str) -> None:
        """End it; it stays listed."""

    async def resume(self, name: str, forgiven: int) -> None:
        """Let it run again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an object says: a document, and whether another hand holds it back, or has ended it. None: it does not
    say."""

    document: dict[str, Any]
    paused: bool | None = None
    cancelled: bool | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of object. `wanted` says what one declares; None: nothing (it is not enrolled). Raises RefusedObject.
    `listed`: all objects of the kind are known; there are none where it is not served."""

    resource: Resource
    reflector: Reflector
    wanted: Callable[[Json], Wanted | None]
    listed: Callable[[], bool]


class JobObjects(DeclaredObjects[TrainingDeclared]):
    """Follows what stands in the log (`declared`) and the objects of one namespace. `told` hears what became of one."""

    word = "training job"

    def __init__(self, declaring: Declares, clock: Clock, namespace: str, told: Accepted) -> None:
        super().__init__(clock, told)
        self.sources: list[Source] = []
        """In order of precedence. Fill it before anything is read."""
        self._declaring = declaring
        self._namespace = namespace

    def declared(self, event: TrainingDeclared) -> None:
        """A declaration stands in the log."""
        self._declared[event.job] = event

    def object_of(self, name: str) -> tuple[Source, Json] | None:
        """The object that a job of this name is, if there is one."""
        for source in self.sources:
            found = source.reflector.objects.get(f"{self._namespace}/{name}")
            if found is not None and self._counts(source, found):
                return source, found
        return None

    @staticmethod
    def _counts(source: Source, found: Json) -> bool:
        """Whether it declares anything. One that is wrong counts too: what is wrong with it must be told."""
        try:
            return source.wanted(found) is not None
        except RefusedObject:
            return True

    def _found(self, name: str) -> Json | None:
        known = self.object_of(name)
        return None if known is None else known[1]

    def _keys(self) -> Iterable[str]:
        return [key for source in self.sources for key in source.reflector.objects]

    def _listed(self, name: str) -> bool:
        """By the kind that the declaration was made of: one that we may not see now has not lost its objects."""
        declared = self._declared.get(name)
        target = "" if declared is None else declared.annotations.get(ANNOTATION_TARGET, "")
        kind = target.rpartition("/")[0] or f"{TRAINING_JOBS.api_version}/{TRAINING_JOBS.kind}"
        return all(
            source.listed() for source in self.sources
            if f"{source.resource.api_version}/{source.resource.kind}" == kind
        )  # fmt: skip

    async def _declare(self, name: str, found: Json) -> None:
        known = self.object_of(name)
        wanted = None if known is None else known[0].wanted(found)
        assert wanted is not None  # else it would not have been found
        job = check_as(TrainingJob, wanted.document)
        await self._end_former(name, found)
        await self._declaring.apply([job])
        await self._hold(name, wanted)

    async def _delete(self, name: str) -> object:
        return await self._declaring.delete_training(name)

    async def _hold(self, name: str, wanted: Wanted) -> None:
        """Pause it, cancel it, or let it go on, where the object says something else than what stands."""
        declared = self._declared.get(name)
        lives = declared is not None and not declared.deleted
        paused = lives and declared is not None and declared.paused
        cancelled = lives and declared is not None and declared.cancelled
        if wanted.cancelled is not None and wanted.cancelled != cancelled:
            await (self._declaring.cancel(name) if wanted.cancelled else self._declaring.resume(name, 0))
            cancelled, paused = wanted.cancelled, paused and wanted.cancelled
        if wanted.paused is not None and wanted.paused != paused and not cancelled:
            await self._declaring.pause(name, paused=wanted.paused)


def of_training_job(found: Json) -> Wanted:
    """The document that a TrainingJob object is, as on one machine. Raises RefusedObject."""
    document = {
        "apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata_of(found), "spec": found["spec"],
    }  # fmt: skip
    return Wanted(document, _said(found, PAUSED), _said(found, CANCELLED))


def _said(found: Json, annotation: str) -> bool | None:
    """What an annotation says; None: nothing. Raises RefusedObject."""
    text = found["metadata"].get("annotations", {}).get(annotation)
    if text not in (None, "true", "false"):
        raise RefusedObject(f"metadata.annotations.{annotation}: {text!r} is neither true nor false; write one of them")
    return None if text is None else bool(text == "true")


def metadata_of(found: Json) -> dict[str, Any]:
    """The metadata of a document of a training job, without what would pass for ours."""
    return declared_objects.metadata_of(found, (ANNOTATION_TARGET, PAUSED, CANCELLED))
