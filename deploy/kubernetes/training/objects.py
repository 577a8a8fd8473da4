"""From objects to declarations of training jobs: TrainingJob objects, and Jobs of others that carry our label.

As with models (`deploy.kubernetes.declaring`): level-based, what is wrong is told on the object, and what was declared
before stays. A name belongs to one object: a TrainingJob before a Job of others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from deploy.api.problem import ProblemError
from deploy.kubernetes.declaring import RETRY
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import Json, Resource
from deploy.kubernetes.shapes import ANNOTATION_OBJECT
from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.kinds import Document
from deploy.spec.problem import SpecProblem, SpecRefused
from deploy.spec.training import TrainingJob
from events.clock import Clock
from events.log import LogUnavailable
from events.types.training import TrainingDeclared
from events.units import Instant

logger = logging.getLogger(__name__)

ANNOTATION_TARGET: Final = "relume.dev/training-target"
"""In a declaration: ``apiVersion/kind/name`` of the enrolled object that runs it. Ours, as `ANNOTATION_OBJECT` is."""
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Declares(Protocol):
    """Writes declarations (`deploy.api.declaring`). All raise ProblemError."""

    async def apply(self, documents: Sequence[Document]) -> object:
        """Declare these, all or none."""

    async def delete_training(self, name: str) -> object:
        """Declare a training job no longer."""

    async def pause(self, name: str, *, paused: bool) -> None:
        """Let it give its GPUs back, or resume it."""


class Refused(Exception):
    """An object cannot be enrolled. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an object says: a document, and whether another hand holds it back. `paused` None: it does not say."""

    document: dict[str, Any]
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of object. `wanted` says what one declares; None: nothing (it is not enrolled). Raises Refused."""

    resource: Resource
    reflector: Reflector
    wanted: Callable[[Json], Wanted | None]


class JobObjects:
    """Follows what stands in the log (`declared`) and the objects of one namespace. `told` hears what became of one."""

    def __init__(
        self, declaring: Declares, clock: Clock, namespace: str, told: Callable[[str, int, str], None]
    ) -> None:
        self.sources: list[Source] = []
        """In order of precedence. Fill it before anything is read."""
        self._declaring = declaring
        self._clock = clock
        self._namespace = namespace
        self._told = told
        self._declared: dict[str, TrainingDeclared] = {}
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()
        self.refused = 0

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
        except Refused:
            return True

    def changed(self, key: str) -> None:
        """An object changed, or is gone."""
        self._dirty[key.rpartition("/")[2]] = None
        self._wake.set()

    async def run(self) -> None:
        """Declare until cancelled. Begin when both sides have been read."""
        for name, event in self._declared.items():
            if not event.deleted and ANNOTATION_OBJECT in event.annotations:
                self._dirty[name] = None
        for source in self.sources:
            self._dirty |= dict.fromkeys(key.rpartition("/")[2] for key in source.reflector.objects)
        self._wake.set()
        tries = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            for name in list(self._dirty):
                del self._dirty[name]
                try:
                    await self._settle(name)
                    tries = 0
                except LogUnavailable as error:
                    logger.warning("training job %s cannot be declared now: %s", name, error)
                    self._dirty[name] = None
                    await self._clock.sleep_until(Instant(self._clock.now() + RETRY[min(tries, len(RETRY) - 1)]))
                    tries += 1
                    self._wake.set()

    async def _settle(self, name: str) -> None:
        known = self.object_of(name)
        if known is None or "deletionTimestamp" in known[1]["metadata"]:
            await self._withdraw(name)
            return
        source, found = known
        generation = int(found["metadata"].get("generation", 0))
        try:
            wanted = source.wanted(found)
            assert wanted is not None  # else it would not count
            job, declared = check_as(TrainingJob, wanted.document), self._declared.get(name)
            if declared is not None and not declared.deleted and _object_uid(declared) not in ("", uid_of(found)):
                await self._declaring.delete_training(name)  # an object of this name was deleted, and made anew
            await self._declaring.apply([job])
            await self._pause(name, wanted.paused)
        except Refused as refused:
            self._refuse(name, generation, str(refused))
        except SpecRefused as refused:
            self._refuse(name, generation, "; ".join(_words(problem) for problem in refused.problems))
        except ProblemError as error:
            fields = error.problem.problems
            text = "; ".join(f"{field.path}: {field.rule}; {field.remedy}" for field in fields) or str(error)
            self._refuse(name, generation, text)
        else:
            self._told(name, generation, "")

    async def _pause(self, name: str, paused: bool | None) -> None:
        declared = self._declared.get(name)
        if paused is not None and (declared.paused if declared is not None else False) != paused:
            await self._declaring.pause(name, paused=paused)

    def _refuse(self, name: str, generation: int, problem: str) -> None:
        self.refused += 1
        logger.warning("the object of training job %s is not declared: %s", name, problem)
        self._told(name, generation, problem)

    async def _withdraw(self, name: str) -> None:
        declared = self._declared.get(name)
        if declared is None or declared.deleted or not _object_uid(declared):
            return
        try:
            await self._declaring.delete_training(name)
        except ProblemError as error:
            logger.info("training job %s: %s", name, error)  # it is gone already


def of_training_job(found: Json) -> Wanted:
    """The document that a TrainingJob object is, as on one machine."""
    return Wanted({
        "apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata_of(found), "spec": found["spec"],
    })  # fmt: skip


def metadata_of(found: Json) -> dict[str, Any]:
    """The metadata of a document: without what Kubernetes and other programs keep there, and with the object's uid."""
    metadata = found["metadata"]
    ours = (_APPLIED, ANNOTATION_OBJECT, ANNOTATION_TARGET)
    annotations = {name: text for name, text in metadata.get("annotations", {}).items() if name not in ours}
    return {
        "name": metadata["name"], "labels": dict(metadata.get("labels", {})),
        "annotations": annotations | {ANNOTATION_OBJECT: uid_of(found)},
    }  # fmt: skip


def uid_of(found: Json) -> str:
    """An object's uid."""
    return str(found["metadata"]["uid"])


def _object_uid(declared: TrainingDeclared) -> str:
    return declared.annotations.get(ANNOTATION_OBJECT, "")


def _words(problem: SpecProblem) -> str:
    return f"{problem.path}: {problem.rule}; {problem.remedy}"
