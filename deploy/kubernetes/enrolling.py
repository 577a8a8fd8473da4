"""All enrolled objects: one `Enrolment` each, as long as a declaration names it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from deploy.api.problem import ProblemError
from deploy.kubernetes.declaring import Declaring
from deploy.kubernetes.enrolled import Enrolment
from deploy.kubernetes.enrolled_pod import EnrolledPod
from deploy.kubernetes.rooms import Idle
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.spec.pod import ScaleTargetSpec
from events.log import LogUnavailable
from events.names import ModelName, ReplicaName
from events.types.models import Override
from events.units import Instant

logger = logging.getLogger(__name__)

BY = "another hand"
"""Whose number an override is that was written into an enrolled object."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Enrolments:
    """By model. `declared` begins one, and ends one that is not declared any more."""

    def __init__(self, tools: Tools, declaring: Declaring, spawn: Spawn) -> None:
        self._tools = tools
        self._declaring = declaring
        self._spawn = spawn
        self._known: dict[ModelName, Enrolment] = {}
        self._tasks: dict[ModelName, list[asyncio.Task[None]]] = {}
        self.complain: Callable[[ScaleTargetSpec, str], Coroutine[Any, Any, None]] | None = None
        """Hears what is wrong with scaling an object."""
        self.found: Callable[[], None] | None = None
        """Hears that it is known of an object now which pods are its."""

    def source(self, model: ModelName, target: ScaleTargetSpec, replica: ReplicaName, node: str) -> EnrolledPod:
        """Where a replica of an enrolled object gets its pod; `node`: where it was granted a place."""
        return EnrolledPod(self.of(model, target), replica, node)

    def of(self, model: ModelName, target: ScaleTargetSpec) -> Enrolment:
        """The enrolment of a model's object."""
        known = self._known.get(model)
        if known is not None and _same(known.target, target):
            known.target = target
            return known
        self._end(model)

        def overridden(replicas: int) -> None:
            self._spawn(self._override(model, replicas))

        def wrong(why: str) -> None:
            if self.complain is not None:
                self._spawn(self.complain(target, why))

        made = self._known[model] = Enrolment(self._tools, target, overridden)
        made.complain = wrong
        made.found = self.found
        self._tasks[model] = [self._spawn(made.run()), self._spawn(made.watch())]
        made.wake()
        return made

    def declared(self, model: ModelName, target: ScaleTargetSpec | None) -> None:
        """A model is declared, with this object or none: another one is let go, with the number that it has."""
        if target is None:
            self._end(model)
        else:
            self.of(model, target)

    def heard(self, pod: PodView, there: bool) -> None:
        """A pod changed."""
        for enrolment in self._known.values():
            enrolment.heard(pod, there)

    def idle(self) -> Iterator[Idle]:
        """Pods of enrolled objects that no replica has: room for replicas of their models. (Where others go with each,
        it is not known which are whose.)"""
        for model, enrolment in self._known.items():
            if enrolment.target.workers is None:
                for pod, awaited in enrolment.idle:
                    yield Idle(model, pod, awaited)

    def has(self, pod: PodView) -> bool:
        """Whether a pod was given to a replica."""
        return any(one.uid == pod.uid for enrolment in self._known.values() for one in enrolment.pods)

    def _end(self, model: ModelName) -> None:
        for task in self._tasks.pop(model, ()):
            task.cancel()
        known = self._known.pop(model, None)
        if known is not None:
            known.let_go()

    async def _override(self, model: ModelName, replicas: int) -> None:
        """A person stands before the autoscaler, for a while."""
        until = Instant(self._tools.clock.now() + self._tools.settings.override_for)
        try:
            await self._declaring.scale(model, Override(replicas=replicas, until=until, by=BY))
        except (ProblemError, LogUnavailable) as error:
            logger.warning("the number %d of model %s could not be made an override: %s", replicas, model, error)


def _same(one: ScaleTargetSpec, other: ScaleTargetSpec) -> bool:
    """Whether both name one object: its pods stay whose they are, whatever else is said of it."""
    return (one.api_version, one.kind, one.name) == (other.api_version, other.kind, other.name)
