"""From Model objects to declarations: what is written on the API server is what is declared (`declared_objects`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

from deploy.kubernetes.declared_objects import Accepted, DeclaredObjects, metadata_of
from deploy.kubernetes.not_here import check_here
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.shapes import ANNOTATION_ENROLLED
from deploy.kubernetes.times import read_time
from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.model import Model
from events.clock import Clock
from events.types.models import ModelDeclared, Override
from events.units import Instant

BY: Final = "spec.replicas"
"""Whose number an override is that an object's own `spec.replicas` makes."""
UNTIL: Final = "relume.dev/replicas-until"
"""An annotation: until when `spec.replicas` counts (RFC 3339). Without it the number stands as long as it is there."""


class Declaring(Protocol):
    """Writes declarations (`deploy.api.declaring`)."""

    async def apply(self, models: list[Model]) -> object:
        """Declare these, all or none. Raises ProblemError."""

    async def delete(self, name: str) -> object:
        """Declare a model no longer. Raises ProblemError."""

    async def scale(self, name: str, wanted: Override | None) -> None:
        """A person's number of replicas. Raises ProblemError."""


Release = Callable[[str], Coroutine[Any, Any, None]]


class ModelObjects(DeclaredObjects[ModelDeclared]):
    """Follows `declared`, what stands in the log, and the Model objects of one namespace."""

    word = "model"

    def __init__(
        self, reflector: Reflector, declaring: Declaring, clock: Clock, settings: KubernetesSettings, told: Accepted
    ) -> None:
        super().__init__(clock, told)
        self._reflector = reflector
        self._declaring = declaring
        self._settings = settings
        self.release: Release | None = None
        """Takes a number that has run out away."""

    def declared(self, event: ModelDeclared) -> None:
        """A declaration stands in the log. What another hand wrote there, the object says otherwise, and stands."""
        self._declared[event.model] = event
        if self.object_of(event.model) is not None:
            self.changed(event.model)

    def object_of(self, name: str) -> Json | None:
        """The Model object of this name, if there is one."""
        return self._reflector.objects.get(f"{self._settings.namespace}/{name}")

    def _found(self, name: str) -> Json | None:
        return self.object_of(name)

    def _keys(self) -> Iterable[str]:
        return self._reflector.objects

    async def _declare(self, name: str, found: Json) -> None:
        model = check_here(check_as(Model, document(found)))
        await self._end_former(name, found)
        await self._declaring.apply([model])
        await self._scale(name, found)

    async def _delete(self, name: str) -> object:
        return await self._declaring.delete(name)

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
    spec = {name: value for name, value in found["spec"].items() if name != "replicas"}
    metadata = metadata_of(found, (UNTIL, ANNOTATION_ENROLLED))
    return {"apiVersion": API_VERSION, "kind": "Model", "metadata": metadata, "spec": spec}


def _until(found: Json) -> Instant | None:
    """Until when the object's number counts; None: it does not say so, or nothing that can be read."""
    try:
        return read_time(found["metadata"].get("annotations", {})[UNTIL])
    except (KeyError, ValueError):
        return None
