"""From objects of one kind to declarations: what models, training jobs and pools have in common.

Level-based: an object that changed is compared with what is declared, and declared anew if they differ. What is wrong
with it is told, and what was declared before stays. An object that is gone is declared no longer, also when it went
while no relume looked. What was declared by other ways than an object is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from deploy.api.problem import ProblemError
from deploy.kubernetes.resources import Json
from deploy.kubernetes.shapes import ANNOTATION_OBJECT
from deploy.spec.problem import SpecProblem, SpecRefused
from events.clock import Clock
from events.log import LogUnavailable
from events.units import Instant

logger = logging.getLogger(__name__)

RETRY: Final = (0.2, 1.0, 5.0, 30.0)
"""Seconds between tries while the log cannot be written; the last one repeats."""
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation of kubectl's: the object once more."""


class Declared(Protocol):
    """A declaration of any kind, as it stands in the log."""

    @property
    def deleted(self) -> bool:
        """Whether it is one no longer."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Among them the uid of the object that it was made of, if it was."""


D = TypeVar("D", bound=Declared)


class Accepted(Protocol):
    """Hears what became of an object."""

    def __call__(self, name: str, generation: int, problem: str) -> None:
        """The object of this generation is declared, or why not."""


class RefusedObject(Exception):
    """An object cannot be declared. The text says why, and what to do."""


class DeclaredObjects(ABC, Generic[D]):
    """Follows what stands in the log and the objects of one namespace. `word`: what people call one."""

    word: str

    def __init__(self, clock: Clock, told: Accepted) -> None:
        self._clock = clock
        self._told = told
        self._declared: dict[str, D] = {}
        self._dirty: dict[str, None] = {}
        self._due: dict[str, Instant] = {}
        """When some are to be looked at again though nothing changed."""
        self._wake = asyncio.Event()
        self.refused = 0

    @abstractmethod
    def _found(self, name: str) -> Json | None:
        """The object of this name, if there is one."""

    @abstractmethod
    def _keys(self) -> Iterable[str]:
        """Keys of all objects."""

    def _listed(self, name: str) -> bool:
        """Whether all objects are known that may be of this name: until then none is taken to be gone."""
        del name
        return True

    @abstractmethod
    async def _declare(self, name: str, found: Json) -> None:
        """Declare what an object says. Raises SpecRefused, ProblemError, RefusedObject, LogUnavailable."""

    @abstractmethod
    async def _delete(self, name: str) -> object:
        """Declare it no longer. Raises ProblemError, LogUnavailable."""

    def changed(self, key: str) -> None:
        """An object changed, or is gone."""
        self._dirty[key.rpartition("/")[2]] = None
        self._wake.set()

    def look_at_all(self) -> None:
        """More has been listed: look at everything that is there, and at what was declared and may be gone."""
        for name, event in self._declared.items():
            if not event.deleted and ANNOTATION_OBJECT in event.annotations:
                self._dirty[name] = None
        self._dirty |= dict.fromkeys(key.rpartition("/")[2] for key in self._keys())
        self._wake.set()

    async def run(self) -> None:
        """Declare until cancelled. Begin when both sides have been read."""
        self.look_at_all()
        tries = 0
        while True:
            await self._woken()
            for name in list(self._dirty):
                del self._dirty[name]
                try:
                    await self._settle(name)
                    tries = 0
                except LogUnavailable as error:
                    logger.warning("%s %s cannot be declared now: %s", self.word, name, error)
                    self._dirty[name] = None
                    await self._clock.sleep_until(Instant(self._clock.now() + RETRY[min(tries, len(RETRY) - 1)]))
                    tries += 1
                    self._wake.set()

    async def _woken(self) -> None:
        """Return when something changed, or one is to be looked at again."""
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
        found = self._found(name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            if found is not None or self._listed(name):
                await self._withdraw(name)
            return
        problem = ""
        try:
            await self._declare(name, found)
        except RefusedObject as refused:
            problem = str(refused)
        except SpecRefused as refused:
            problem = "; ".join(words_of(one) for one in refused.problems)
        except ProblemError as error:
            problem = told_of(error)
        if problem:
            self.refused += 1
            logger.warning("the object of %s %s is not declared: %s", self.word, name, problem)
        self._told(name, int(found["metadata"].get("generation", 0)), problem)

    async def _end_former(self, name: str, found: Json) -> None:
        """Whatever an object of this name declared that was deleted, and made anew, goes first."""
        declared = self._declared.get(name)
        if declared is not None and not declared.deleted and _object_uid(declared) not in ("", uid_of(found)):
            await self._delete(name)

    async def _withdraw(self, name: str) -> None:
        declared = self._declared.get(name)
        if declared is None or declared.deleted or not _object_uid(declared):
            return
        try:
            await self._delete(name)
        except ProblemError as error:
            logger.info("%s %s: %s", self.word, name, error)  # it is gone already


def metadata_of(found: Json, ours: Iterable[str]) -> dict[str, Any]:
    """The metadata of a document: without what Kubernetes and other programs keep there and without annotations that
    are `ours`, with the object's uid."""
    metadata = found["metadata"]
    left_out = {APPLIED, ANNOTATION_OBJECT, *ours}
    annotations = {name: text for name, text in metadata.get("annotations", {}).items() if name not in left_out}
    return {
        "name": metadata["name"], "labels": dict(metadata.get("labels", {})),
        "annotations": annotations | {ANNOTATION_OBJECT: uid_of(found)},
    }  # fmt: skip


def uid_of(found: Json) -> str:
    """An object's uid."""
    return str(found["metadata"]["uid"])


def _object_uid(declared: Declared) -> str:
    return declared.annotations.get(ANNOTATION_OBJECT, "")


def words_of(problem: SpecProblem) -> str:
    """A fault in a sentence: where, what stood there, the rule, the remedy."""
    return str(problem)


def told_of(error: ProblemError) -> str:
    """Why nothing was declared, field by field where that is known."""
    fields = (
        SpecProblem(field.path, field.value, field.rule, field.remedy) for field in error.problem.problems
    )  # fmt: skip
    return "; ".join(words_of(field) for field in fields) or str(error)
