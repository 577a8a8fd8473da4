"""What is the same of all who tell people on the API server about objects: a status is written when it differs from
what was written last, and an Event when something turned."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.resources import EVENTS, Json, Resource
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.status_writes import Acceptance, StatusWrites
from deploy.kubernetes.telling_parts import Turn, condition, event_body
from events.clock import Clock

logger = logging.getLogger(__name__)

F = TypeVar("F")


class ObjectTeller(ABC, Generic[F]):
    """Writes about objects of one kind. `facts` gives what is known of one; None: nothing is declared."""

    word: ClassVar[str]
    """What people call such an object."""
    resource: ClassVar[Resource]
    """Objects whose status is ours."""

    def __init__(
        self, api: KubeApi, lease: Lease, clock: Clock, settings: KubernetesSettings, facts: Callable[[str], F | None]
    ) -> None:
        self._api = api
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._facts = facts
        self._accepted: dict[str, Acceptance] = {}
        self._written: dict[str, Json] = {}
        self._turned: dict[str, tuple[str, str, int]] = {}
        """The state of each, its reason and its run (0: it has none), as told last."""
        self._queue = StatusWrites(self.word, clock, self._tell)
        self.writes = 0
        self.events = 0

    def accepted(self, name: str, generation: int, problem: str) -> None:
        """An object was declared, or refused."""
        self._accepted[name] = Acceptance(generation, problem)
        self.mark(name)

    def mark(self, name: str) -> None:
        """Something about it changed."""
        self._queue.mark(name)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    @abstractmethod
    async def _tell(self, name: str) -> None:
        """Write what is known of one now."""

    def _forget(self, name: str) -> None:
        """Its object is gone."""
        for known in (self._accepted, self._written, self._turned):
            known.pop(name, None)

    def _conditions(
        self, name: str, found: Json, wanted: Sequence[tuple[str, str, str, str]], generation: int
    ) -> list[dict[str, Any]]:
        """Its conditions, each with the time since which it stands so."""
        told: Json = self._written.get(name) or found.get("status") or {}
        before = {one["type"]: one for one in told.get("conditions", ())}
        now = self._clock.now()
        return [
            condition(before.get(kind, {}), (kind, truth, reason, message, generation), now)
            for kind, truth, reason, message in wanted
        ]

    async def _write(self, name: str, found: Json, status: Json) -> None:
        if self._written.get(name) == status or found.get("status") == status:
            return
        await self._lease.hold()
        body = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "status": status,
                "metadata": {"name": name, "namespace": self._settings.namespace}}  # fmt: skip
        await self._api.apply_status(self.resource.path(self._settings.namespace, name), body)
        self.writes += 1
        self._written[name] = status

    async def _event(self, found: Json, turn: Turn, about: Resource | None = None) -> None:
        """`about`: what kind `found` is of; None: of those whose status is ours."""
        await self._lease.hold()
        body = event_body(found, about or self.resource, turn, self._settings.identity, self._clock.now())
        try:
            await self._api.create(EVENTS.path(self._settings.namespace), body)
            self.events += 1
        except ApiError as error:
            logger.debug("an event of %s %s was refused: %s", self.word, found["metadata"]["name"], error)


def acceptance(problem: str) -> tuple[str, str, str, str]:
    """The condition that says whether the object was declared; `problem`: why not."""
    return "Accepted", "False" if problem else "True", "Refused" if problem else "Declared", problem
