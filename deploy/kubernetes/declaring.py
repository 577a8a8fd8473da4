"""From Model objects to declarations: what is written on the API server is what is declared.

Level-based: an object that changed is compared with what is declared, and declared anew if they differ. What is wrong
with it is told in its conditions, and what was declared before stays. An object that is gone is declared no longer,
also when it went while no relume looked. A model that was declared by other ways than an object is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from deploy.api.problem import ProblemError
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.shapes import ANNOTATION_ENROLLED, ANNOTATION_OBJECT
from deploy.kubernetes.times import read_time
from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, SpecRefused
from events.clock import Clock
from events.log import LogUnavailable
from events.types.models import ModelDeclared, Override
from events.units import Instant

logger = logging.getLogger(__name__)

RETRY: Final = (0.2, 1.0, 5.0, 30.0)
"""Seconds between tries while the log cannot be written; the last one repeats."""
BY: Final = "spec.replicas"
"""Whose number an override is that an object's own `spec.replicas` makes."""
UNTIL: Final = "relume.dev/replicas-until"
"""An annotation: until when `spec.replicas` counts (RFC 3339). Without it the number stands as long as it is there."""
_THEIRS: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Declaring(Protocol):
    """Writes declarations (`deploy.api.declaring`)."""

    async def apply(self, models: list[Model]) -> object:
        """Declare these, all or none. Raises ProblemError."""

    async def delete(self, name: str) -> object:
        """Declare a model no longer. Raises ProblemError."""

    async def scale(self, name: str, wanted: Override | None) -> None:
        """A person's number of replicas. Raises ProblemError."""


Release = Callable[[str], Coroutine[Any, Any, None]]


class Accepted(Protocol):
    """Hears what became of an object."""

    def __call__(self, name: str, generation: int, problem: str) -> None:
        """The object of this generation is declared, or why not."""


class ModelObjects:
    """Follows `declared`, what stands in the log, and the Model objects of one namespace."""

    def __init__(
        self, reflector: Reflector, declaring: Declaring, clock: Clock, settings: KubernetesSettings, told: Accepted
    ) -> None:
        self._reflector = reflector
        self._declaring = declaring
        self._clock = clock
        self._settings = settings
        self._told = told
        self._declared: dict[str, ModelDeclared] = {}
        self._dirty: dict[str, None] = {}
        self._due: dict[str, Instant] = {}
        """When numbers of objects run out."""
        self.release: Release | None = None
        """Takes a number that has run out away."""
        self._wake = asyncio.Event()
        self.refused = 0

    def declared(self, event: ModelDeclared) -> None:
        """A declaration stands in the log."""
        self._declared[event.model] = event

    def object_of(self, name: str) -> Json | None:
        """The Model object of this name, if there is one."""
        return self._reflector.objects.get(f"{self._settings.namespace}/{name}")

    def changed(self, key: str) -> None:
        """An object changed, or is gone."""
        self._dirty[key.rpartition("/")[2]] = None
        self._wake.set()

    async def run(self) -> None:
        """Declare until cancelled. Begin when both sides have been read."""
        for name, event in self._declared.items():
            if not event.deleted and ANNOTATION_OBJECT in event.annotations:
                self._dirty[name] = None
        self._dirty |= dict.fromkeys(key.rpartition("/")[2] for key in self._reflector.objects)
        self._wake.set()
        tries = 0
        while True:
            await self._woken()
            for name in list(self._dirty):
                del self._dirty[name]
                try:
                    await self._settle(name)
                    tries = 0
                except LogUnavailable as error:
                    logger.warning("model %s cannot be declared now: %s", name, error)
                    self._dirty[name] = None
                    await self._clock.sleep_until(Instant(self._clock.now() + RETRY[min(tries, len(RETRY) - 1)]))
                    tries += 1
                    self._wake.set()

    async def _woken(self) -> None:
        """Return when something changed, or a number has run out."""
        due, loop = min(self._due.values(), default=None), asyncio.get_running_loop()
        waits: list[asyncio.Task[Any]] = [loop.create_task(self._wake.wait())]
        if due is not None:
            waits.append(loop.create_task(self._clock.sleep_until(due)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        self._wake.clear()
        for name in [name for name, at in self._due.items() if at <= self._clock.now()]:
            del self._due[name]
            self._dirty[name] = None

    async def _settle(self, name: str) -> None:
        found, declared = self.object_of(name), self._declared.get(name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            await self._withdraw(name)
            return
        generation = int(found["metadata"].get("generation", 0))
        try:
            model = check_as(Model, document(found))
            if declared is not None and not declared.deleted and _object_uid(declared) not in ("", _uid(found)):
                await self._declaring.delete(name)  # an object of this name was deleted, and made anew
            await self._declaring.apply([model])
            await self._scale(name, found)
        except SpecRefused as refused:
            self._refuse(name, generation, "; ".join(words_of(problem) for problem in refused.problems))
        except ProblemError as error:
            fields = error.problem.problems
            text = "; ".join(f"{field.path}: {field.rule}; {field.remedy}" for field in fields) or str(error)
            self._refuse(name, generation, text)
        else:
            self._told(name, generation, "")

    def _refuse(self, name: str, generation: int, problem: str) -> None:
        self.refused += 1
        logger.warning("the object of model %s is not declared: %s", name, problem)
        self._told(name, generation, problem)

    async def _withdraw(self, name: str) -> None:
        declared = self._declared.get(name)
        if declared is None or declared.deleted or not _object_uid(declared):
            return
        try:
            await self._declaring.delete(name)
        except ProblemError as error:
            logger.info("model %s: %s", name, error)  # it is gone already

    async def _scale(self, name: str, found: Json) -> None:
        """The object's own number stands while it is there, or until its annotation says; it goes when that goes."""
        replicas, until = found["spec"].get("replicas"), _until(found)
        now = self._clock.now()
        self._due.pop(name, None)
        if until is None:
            until = Instant(now + self._settings.standing_override)
        elif until > now:
            self._due[name] = until
        else:
            replicas = None
            if self.release is not None:
                await self.release(name)
        declared = self._declared.get(name)
        standing = None if declared is None or declared.deleted else declared.override
        if replicas is None:
            if standing is not None and standing.by == BY:
                await self._declaring.scale(name, None)
            return
        other = UNTIL in found["metadata"].get("annotations", {}) and standing is not None and standing.until != until
        if standing is None or standing.by != BY or standing.replicas != replicas or other:
            await self._declaring.scale(name, Override(replicas=replicas, until=until, by=BY))


def document(found: Json) -> dict[str, Any]:
    """The document that an object is, as on one machine: without what Kubernetes and other programs keep in it."""
    metadata = found["metadata"]
    annotations = {name: text for name, text in metadata.get("annotations", {}).items()
                   if name not in (_THEIRS, UNTIL, ANNOTATION_ENROLLED, ANNOTATION_OBJECT)}  # fmt: skip
    spec = {name: value for name, value in found["spec"].items() if name != "replicas"}
    return {
        "apiVersion": API_VERSION, "kind": "Model",
        "metadata": {"name": metadata["name"], "labels": dict(metadata.get("labels", {})),
                     "annotations": annotations | {ANNOTATION_OBJECT: _uid(found)}},
        "spec": spec,
    }  # fmt: skip


def _until(found: Json) -> Instant | None:
    """Until when the object's number counts; None: it does not say so, or nothing that can be read."""
    try:
        return read_time(found["metadata"].get("annotations", {})[UNTIL])
    except (KeyError, ValueError):
        return None


def _uid(found: Json) -> str:
    return str(found["metadata"]["uid"])


def _object_uid(declared: ModelDeclared) -> str:
    return declared.annotations.get(ANNOTATION_OBJECT, "")


def words_of(problem: SpecProblem) -> str:
    """A fault in a sentence: where, the rule, the remedy."""
    return f"{problem.path}: {problem.rule}; {problem.remedy}"
