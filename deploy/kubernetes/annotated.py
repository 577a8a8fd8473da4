"""Objects of others that the annotation ``relume.dev/model`` enrols: a Deployment, a StatefulSet, what has a scale.

No Model object is needed: the declaration is made of the object itself, and goes when the annotation or the object
does. What is wrong with it is told as an Event on the object. Pure but for `AnnotatedObjects`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from deploy.api.problem import ProblemError
from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.declared_objects import RETRY, told_of, words_of
from deploy.kubernetes.declaring import Declaring
from deploy.kubernetes.not_here import check_here
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import EVENTS, Json, Resource
from deploy.kubernetes.shapes import ANNOTATION_ENROLLED
from deploy.kubernetes.telling_parts import Turn, event_body
from deploy.kubernetes.templates import Template, resources_of, templates_of
from deploy.kubernetes.tools import Tools
from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.model import Model
from deploy.spec.pod import ScaleTargetSpec
from deploy.spec.problem import SpecRefused
from events.log import LogUnavailable
from events.types.models import ModelDeclared
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

ANNOTATION_MODEL: Final = "relume.dev/model"
"""The name of the model that an object's pods serve."""
ANNOTATION_SPEC: Final = "relume.dev/spec"
"""Fields of the model's spec, as YAML; they go before what is read of the object."""
NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "relume.dev/slots": ("slots",), "relume.dev/min-replicas": ("scaling", "minReplicas"),
    "relume.dev/max-replicas": ("scaling", "maxReplicas"), "relume.dev/port": ("scaleTargetRef", "port"),
}  # fmt: skip
KEEP_ALIVE: Final = "relume.dev/keep-alive"
LOOK_AGAIN: Final = Seconds(60.0)
"""Between two looks whether a kind that was not served is now."""
_LOOKED_AT: Final = {"type": "command", "options": {"command": ["enrolled", "{port}"]}}
"""The engine of an object that says nothing of it: an OpenAI-compatible server. Its command is not run."""


class Wrong(Exception):
    """The object cannot be enrolled; the text says why, and what to do."""


def document(resource: Resource, item: Json) -> dict[str, Any]:
    """The Model that an annotated object stands for. Raises Wrong."""
    metadata = item["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations", {})
    templates = templates_of(item)
    spec: dict[str, Any] = {
        "engine": _LOOKED_AT, "resources": resources_of(templates[0].spec) if templates else {"gpus": 0},
        "scaling": {"minReplicas": 0, "maxReplicas": max(1, int(item.get("spec", {}).get("replicas") or 1))},
        "scaleTargetRef": _target(resource, item, templates),
    }  # fmt: skip
    for name, path in NUMBERS.items():
        if name in annotations:
            _put(spec, path, _number(name, annotations[name]))
    if KEEP_ALIVE in annotations:
        _put(spec, ("scaling", "keepAlive"), annotations[KEEP_ALIVE])
    for field, value in _written(annotations.get(ANNOTATION_SPEC, "")).items():
        both = isinstance(value, Mapping) and isinstance(spec.get(field), Mapping) and field != "engine"
        spec[field] = {**spec[field], **value} if both else value
    return {
        "apiVersion": API_VERSION, "kind": "Model",
        "metadata": {"name": annotations[ANNOTATION_MODEL],
                     "annotations": {ANNOTATION_ENROLLED: str(metadata["uid"])}},
        "spec": spec,
    }  # fmt: skip


def _written(text: str) -> Mapping[str, Any]:
    try:
        found = YAML(typ="safe", pure=True).load(text) if text.strip() else {}
    except YAMLError as error:
        raise Wrong(f"the annotation {ANNOTATION_SPEC} is no YAML: {error}") from error
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        raise Wrong(
            f"the annotation {ANNOTATION_SPEC} is no mapping; write fields of a Model's spec, such as slots: 32"
        )
    if "scaleTargetRef" in found or "pod" in found:
        raise Wrong(f"the annotation {ANNOTATION_SPEC} says what a replica is, which this object does; leave it out")
    return found


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise Wrong(f"the annotation {name} is {text!r}; write a whole number")
    return int(text)


def _put(spec: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for part in path[:-1]:
        spec = spec.setdefault(part, {})
    spec[path[-1]] = value


def _target(resource: Resource, item: Json, templates: tuple[Template, ...]) -> dict[str, Any]:
    """How the object is named, and what its pods beside the one that serves take, where it makes such."""
    named = {"apiVersion": resource.api_version, "kind": resource.kind, "name": item["metadata"]["name"]}
    workers = [{"count": one.count, "resources": resources_of(one.spec)} for one in templates[1:]]
    return {**named, "workers": workers[0]} if workers else named


class AnnotatedObjects:
    """All kinds that settings name. `object_of`: the Model object of a name, which goes first."""

    def __init__(self, tools: Tools, declaring: Declaring, object_of: Callable[[str], Json | None]) -> None:
        self._tools = tools
        self._declaring = declaring
        self._object_of = object_of
        self._items: dict[tuple[str, str], tuple[Resource, Json]] = {}
        """By kind and key: objects with the annotation."""
        self._declared: dict[str, ModelDeclared] = {}
        self._told: dict[str, tuple[str, str]] = {}
        """Of each object's uid: what it was told last."""
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._synced: set[str] = set()

    def declared(self, event: ModelDeclared) -> None:
        """A declaration stands in the log. One that somebody deleted is made anew as long as its object says so."""
        self._declared[event.model] = event
        if event.deleted:
            self.look(event.model)

    def look(self, name: str) -> None:
        """Something about a model of this name changed, such as its Model object."""
        self._dirty[name] = None
        self._wake.set()

    async def follow(self, known: str) -> None:
        """Follow a kind, ``RESOURCE.GROUP``, until cancelled; one that is not served is looked for again."""
        plural, _, group = known.partition(".")
        while (resource := await self._find(plural, group)) is None:
            await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + LOOK_AGAIN))

        def changed(key: str, item: Json | None) -> None:
            self._changed(resource, key, item)

        reflector = Reflector(self._tools.api, resource.path(self._tools.settings.namespace), changed)
        running = asyncio.create_task(reflector.run())
        try:
            await reflector.synced.wait()
            self._synced.add(resource.kind)
            for name, event in self._declared.items():
                if ANNOTATION_ENROLLED in event.annotations and not event.deleted:
                    self.look(name)
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _find(self, plural: str, group: str) -> Resource | None:
        """The kind as the API server prefers it; None: it is not served, or cannot be seen now."""
        try:
            version = (await self._tools.api.get(f"/apis/{group}"))["preferredVersion"]["version"]
            served = (await self._tools.api.get(f"/apis/{group}/{version}"))["resources"]
        except (ApiError, ApiUnavailable) as error:
            logger.debug("%s.%s is not followed now: %s", plural, group, error)
            return None
        kind = next((one["kind"] for one in served if one["name"] == plural), "")
        return Resource(group, version, plural, kind) if kind else None

    def _changed(self, resource: Resource, key: str, item: Json | None) -> None:
        at = (resource.kind, key)
        before = self._items.pop(at, None)
        if item is not None and "deletionTimestamp" not in item["metadata"] and _name(item):
            self._items[at] = (resource, item)
            self.look(_name(item))
        if before is not None:
            self.look(_name(before[1]))
            if at not in self._items:
                self._told.pop(str(before[1]["metadata"]["uid"]), None)

    async def run(self) -> None:
        """Declare until cancelled. Begin when the log has been read."""
        tries = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            for name in list(self._dirty):
                del self._dirty[name]
                try:
                    await self._settle(name)
                    tries = 0
                except (LogUnavailable, ApiUnavailable) as error:
                    logger.warning("model %s cannot be enrolled now: %s", name, error)
                    self._dirty[name] = None
                    pause = RETRY[min(tries, len(RETRY) - 1)]
                    await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + pause))
                    tries += 1
                    self._wake.set()

    async def _settle(self, name: str) -> None:
        """Make one name's declaration what its object says."""
        found = sorted((one for one in self._items.values() if _name(one[1]) == name), key=_age)
        declared = self._declared.get(name)
        ours = declared is not None and not declared.deleted and ANNOTATION_ENROLLED in declared.annotations
        if not found or self._object_of(name) is not None:
            if ours and declared is not None and (found or self._gone(declared)):
                await self._withdraw(name)
            for resource, item in found:
                why = f"there is a Model object named {name}, which goes first; delete it, or the annotation"
                await self._tell(resource, item, Turn("NotEnrolled", why, warns=True, action="Enrol"))
            return
        for resource, item in found[1:]:
            first = found[0][1]["metadata"]["name"]
            why = f"{found[0][0].kind} {first} is enrolled as model {name} already; choose another name"
            await self._tell(resource, item, Turn("NotEnrolled", why, warns=True, action="Enrol"))
        await self._enrol(name, *found[0])

    async def _enrol(self, name: str, resource: Resource, item: Json) -> None:
        try:
            model = check_here(check_as(Model, document(resource, item)))
            await self._declaring.apply([model])
        except Wrong as error:
            why = str(error)
        except SpecRefused as refused:
            why = "; ".join(words_of(problem) for problem in refused.problems)
        except ProblemError as error:
            why = told_of(error)
        else:
            note = f"relume scales it as model {name}"
            await self._tell(resource, item, Turn("Enrolled", note, warns=False, action="Enrol"))
            return
        await self._tell(resource, item, Turn("NotEnrolled", why, warns=True, action="Enrol"))

    def _gone(self, declared: ModelDeclared) -> bool:
        """Whether what a declaration was made of would be seen if it were there."""
        target = declared.spec.get("scaleTargetRef")
        return isinstance(target, Mapping) and target.get("kind", "Deployment") in self._synced

    async def _withdraw(self, name: str) -> None:
        try:
            await self._declaring.delete(name)
        except ProblemError as error:
            logger.info("model %s: %s", name, error)  # it is gone already

    async def complain(self, target: ScaleTargetSpec, why: str) -> None:
        """Something is wrong with scaling an enrolled object: told on it, where the annotation enrolled it."""
        at = (target.kind, f"{self._tools.settings.namespace}/{target.name}")
        if at not in self._items:
            return
        try:
            await self._tell(*self._items[at], Turn("NotScaled", why, warns=True))
        except ApiUnavailable as error:
            logger.debug("an event on %s was not written: %s", target.name, error)

    async def _tell(self, resource: Resource, item: Json, turn: Turn) -> None:
        """An Event on the object, unless that is what was told last."""
        uid, told = str(item["metadata"]["uid"]), (turn.reason, turn.note)
        if self._told.get(uid) == told:
            return
        self._told[uid] = told
        logger.log(logging.WARNING if turn.warns else logging.INFO, "%s %s: %s",
                   resource.kind, item["metadata"]["name"], turn.note)  # fmt: skip
        await self._tools.lease.hold()
        settings = self._tools.settings
        body = event_body(item, resource, turn, settings.identity, self._tools.clock.now())
        try:
            await self._tools.api.create(EVENTS.path(settings.namespace), body)
        except ApiError as error:
            logger.debug("an event on %s was refused: %s", item["metadata"]["name"], error)


def _age(one: tuple[Resource, Json]) -> tuple[str, str]:
    metadata = one[1]["metadata"]
    return str(metadata["creationTimestamp"]), str(metadata["uid"])


def _name(item: Json) -> str:
    return str(item["metadata"].get("annotations", {}).get(ANNOTATION_MODEL, ""))
