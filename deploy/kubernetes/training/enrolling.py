"""Jobs of others that carry the label ``relume.dev/training: "true"``: declared as training jobs, suspended to yield.

Not owned: relume writes `spec.suspend` and one annotation, which says that the suspension is its own, and nothing else.
What another hand suspended only that hand resumes. Jobs that Kueue admits are left to Kueue. The contract stands in the
annotation ``relume.dev/training``, as YAML: priority, preemption, checkpoint, maxFailures of a TrainingJob.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from deploy.kubernetes.api import ApiError, insist
from deploy.kubernetes.declared_objects import RefusedObject
from deploy.kubernetes.nodes import GPU, mig_profile
from deploy.kubernetes.quantities import read_quantity
from deploy.kubernetes.reflecting import Reflector, key_of
from deploy.kubernetes.resources import Json
from deploy.kubernetes.training.job_kinds import KINDS, JobKind, Template
from deploy.kubernetes.training.looks import Target
from deploy.kubernetes.training.objects import ANNOTATION_TARGET, Source, Wanted, metadata_of
from deploy.kubernetes.training.tools import PodTools
from deploy.kubernetes.views import ContainerView, PodView, container_of
from deploy.local.training.starting import LISTEN
from deploy.spec.document import API_VERSION
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

LABEL: Final = "relume.dev/training"
ANNOTATION_CONTRACT: Final = "relume.dev/training"
ANNOTATION_SUSPENDED: Final = "relume.dev/suspended"
"""On an enrolled object while its suspension is ours."""
KUEUE: Final = "kueue.x-k8s.io/queue-name"
PARTS: Final = ("priority", "preemption", "checkpoint", "maxFailures")
"""Of a TrainingJob's spec, what the annotation may say."""
PORT: Final = "relume"
"""The name of the container's port at which its SDK takes notices."""
LEAST_CPU: Final = 0.001
"""Cores of a pod that asks for none, which a declaration cannot say: the smallest quantity that Kubernetes counts. One
byte of memory likewise."""
NOTES: Final = "RELUME_ANNOTATIONS_FILE"
"""The variable of a container whose SDK reads notices from its pod's annotations."""
JUDGED_MOST: Final = 64
"""Objects that are gone of which is still known whether they were enrolled."""
LOOK_AGAIN: Final = Seconds(60.0)
"""Between two looks whether a kind that was not served, or not allowed, is now."""


class Enrolled:
    """All enrolled objects. `changed` hears the key of one that changed."""

    def __init__(self, tools: PodTools, changed: Callable[[str], None]) -> None:
        self._tools = tools
        self._judged: dict[str, tuple[str, bool]] = {}
        self._absent: set[JobKind] = set()
        self._judged_kinds: set[JobKind] = set()
        self.settled = asyncio.Event()
        """Set once each kind has been listed, or is known not to be served, or not for us."""
        chosen = {"labelSelector": f"{LABEL}=true"}
        self._followed: dict[JobKind, Reflector] = {
            kind: Reflector(tools.api, kind.resource.path(tools.namespace), lambda key, _: changed(key), chosen)
            for kind in KINDS
        }
        self.sources = [
            Source(kind.resource, reflector, functools.partial(wanted_of, kind), functools.partial(self._listed, kind))
            for kind, reflector in self._followed.items()
        ]

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(len(reflector.objects) for reflector in self._followed.values())

    async def run(self) -> None:
        """Follow all kinds that are served and that we may see, until cancelled."""
        async with asyncio.TaskGroup() as following:
            for kind, reflector in self._followed.items():
                following.create_task(self._follow(kind, reflector))

    async def _follow(self, kind: JobKind, reflector: Reflector) -> None:
        while kind.optional and not await insist(functools.partial(self._served, kind)):
            self._settle(kind)
            await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + LOOK_AGAIN))
        running = asyncio.create_task(reflector.run())
        try:
            await reflector.settled.wait()
            self._settle(kind)
            await running
        finally:
            running.cancel()

    def _settle(self, kind: JobKind) -> None:
        self._judged_kinds.add(kind)
        if len(self._judged_kinds) == len(KINDS):
            self.settled.set()

    def _listed(self, kind: JobKind) -> bool:
        return kind in self._absent or self._followed[kind].synced.is_set()

    async def _served(self, kind: JobKind) -> bool:
        """Whether the API server has the kind, which anybody may ask; then, whether we may see it. Raises
        ApiUnavailable."""
        self._absent.discard(kind)
        try:
            await self._tools.api.get(f"/apis/{kind.resource.group}/{kind.resource.version}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._absent.add(kind)
            logger.debug("%s are not served: %s", kind.resource.plural, error)
            return False
        try:
            await self._tools.api.get(kind.resource.path(self._tools.namespace), {"limit": "1"})
        except ApiError as error:
            logger.info("%s are not followed: %s", kind.resource.plural, error)
            return False
        return True

    def job(self, target: Target) -> EnrolledJob:
        """The object that a declaration names."""
        for kind, reflector in self._followed.items():
            if (kind.resource.api_version, kind.resource.kind) == (target.api_version, target.kind):
                return EnrolledJob(self._tools, kind, reflector, target.name)
        raise ValueError(f"{target.kind} of {target.api_version} is no kind that can be enrolled")

    def all(self) -> Iterator[EnrolledJob]:
        """Those that are enrolled and not refused."""
        for kind, reflector in self._followed.items():
            for found in list(reflector.objects.values()):
                if self._takes(kind, found):
                    yield EnrolledJob(self._tools, kind, reflector, str(found["metadata"]["name"]))

    def has(self, pod: PodView) -> EnrolledJob | None:
        """The enrolled object whose pod it is; None: of none."""
        if pod.namespace != self._tools.namespace:
            return None
        for kind, reflector in self._followed.items():
            name = pod.labels.get(kind.pod_label, "")
            found = reflector.objects.get(f"{pod.namespace}/{name}") if name else None
            if found is not None and self._takes(kind, found):
                return EnrolledJob(self._tools, kind, reflector, name)
        return None

    def _takes(self, kind: JobKind, found: Json) -> bool:
        """Whether an object is enrolled and not refused; looked at once for each version of it."""
        metadata = found["metadata"]
        key, version = str(metadata["uid"]), str(metadata.get("resourceVersion", ""))
        known = self._judged.get(key)
        if known is None or known[0] != version:
            try:
                taken = wanted_of(kind, found) is not None
            except RefusedObject:
                taken = False
            if len(self._judged) > 2 * self.count + JUDGED_MOST:
                self._judged.clear()  # those that are gone
            known = self._judged[key] = version, taken
        return known[1]


class EnrolledJob:
    """One enrolled object, as the API server has it now."""

    def __init__(self, tools: PodTools, kind: JobKind, reflector: Reflector, name: str) -> None:
        self._tools = tools
        self._kind = kind
        self._reflector = reflector
        self.name = name

    @property
    def found(self) -> Json | None:
        """The object; None: it is gone, or enrolled no longer."""
        return self._reflector.objects.get(f"{self._tools.namespace}/{self.name}")

    @property
    def listed(self) -> asyncio.Event:
        """Set once objects of its kind are known; until then it is not known to be gone."""
        return self._reflector.synced

    @property
    def suspended(self) -> bool:
        """Whether its controller keeps it from running."""
        return self.found is not None and self._kind.suspended(self.found)

    @property
    def ours(self) -> bool:
        """Whether its suspension is ours."""
        return self.found is not None and ANNOTATION_SUSPENDED in self.found["metadata"].get("annotations", {})

    @property
    def end(self) -> str:
        """How it ended: Complete or Failed; empty: it has not."""
        return "" if self.found is None else self._kind.end(self.found)

    def owns(self, pod: PodView) -> bool:
        """Whether a pod is one of its own."""
        return pod.namespace == self._tools.namespace and pod.labels.get(self._kind.pod_label) == self.name

    def pods(self) -> list[PodView]:
        """Its pods, rank 0 first."""
        return sorted((pod for pod in self._tools.pods if self.owns(pod)), key=self._kind.order)

    async def suspend(self, why: str) -> None:
        """Let its controller end its pods. Raises ApiError, ApiUnavailable."""
        await self._write(True, why[:200])

    async def resume(self) -> None:
        """Let its controller make its pods. Raises ApiError, ApiUnavailable."""
        await self._write(False, None)

    async def _write(self, suspend: bool, note: str | None) -> None:
        await self._tools.lease.hold()
        body = self._kind.suspension(suspend) | {"metadata": {"annotations": {ANNOTATION_SUSPENDED: note}}}
        item = await self._tools.api.merge(self._kind.resource.path(self._tools.namespace, self.name), body)
        self._reflector.objects[key_of(item)] = item  # known before the watch tells it


def wanted_of(kind: JobKind, found: Json) -> Wanted | None:
    """What an enrolled object declares. Raises RefusedObject."""
    metadata = found["metadata"]
    if metadata.get("labels", {}).get(LABEL) != "true":
        return None
    if KUEUE in metadata.get("labels", {}):
        raise RefusedObject(
            f"it is in the queue {metadata['labels'][KUEUE]} of Kueue, which decides when it runs and is left to; take "
            f"the label {KUEUE} away to have relume decide"
        )
    templates = [one for one in kind.templates(found) if one.count]
    if not templates:
        raise RefusedObject("it has no pods to run; give it some")
    contract = _contract(metadata.get("annotations", {}).get(ANNOTATION_CONTRACT, ""))
    spec: dict[str, Any] = {
        "command": _command(templates[0]), "members": sum(one.count for one in templates),
        "resources": _resources(templates), **contract,
        "checkpoint": _checkpoint(templates[0], contract.get("checkpoint", {})),
    }  # fmt: skip
    about, target = metadata_of(found), f"{kind.resource.api_version}/{kind.resource.kind}/{metadata['name']}"
    for ours in (ANNOTATION_SUSPENDED, ANNOTATION_CONTRACT):
        about["annotations"].pop(ours, None)
    about["annotations"][ANNOTATION_TARGET] = target
    document = {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": about, "spec": spec}
    by_others = kind.suspended(found) and ANNOTATION_SUSPENDED not in metadata.get("annotations", {})
    return Wanted(document, paused=by_others and not kind.end(found))


def _contract(text: str) -> Mapping[str, Any]:
    try:
        said = YAML(typ="safe", pure=True).load(text) if text.strip() else {}
    except YAMLError as error:
        raise RefusedObject(f"the annotation {ANNOTATION_CONTRACT} is no YAML: {str(error)[:200]}") from None
    if not isinstance(said, dict) or any(part not in PARTS for part in said):
        raise RefusedObject(
            f"the annotation {ANNOTATION_CONTRACT} holds {', '.join(PARTS)}, as a TrainingJob does; not more"
        )
    return said


def _command(template: Template) -> list[str]:
    """For people to see: its controller runs it, not we."""
    container = template.containers[0] if template.containers else {}
    words = [str(word) for word in (*container.get("command", ()), *container.get("args", ()))]
    return words or [str(container.get("image", "enrolled"))]


def _resources(templates: list[Template]) -> dict[str, Any]:
    """What one member asks for: the same of all, as far as GPUs are concerned; of cores and memory the most."""
    asked = [_asked(one) for one in templates]
    gpus = {tuple(sorted((name, count) for name, count in one.items() if name.startswith(GPU[:11]))) for one in asked}
    if len(gpus) > 1:
        raise RefusedObject("its pods ask for different GPUs, and members of a gang are alike; enrol one kind of pods")
    made: dict[str, Any] = {"cpu": max(LEAST_CPU, *(one.get("cpu", 0.0) for one in asked))}
    made["memory"] = int(max(1.0, *(one.get("memory", 0.0) for one in asked)))
    for name, count in next(iter(gpus)):
        if name == GPU:
            made["gpus"] = int(count)
        elif mig_profile(name):
            made["migProfile"] = mig_profile(name)
    return made


def _asked(template: Template) -> dict[str, float]:
    sums: dict[str, float] = {}
    for container in template.containers:
        resources = container.get("resources", {})
        for name, text in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            sums[name] = sums.get(name, 0.0) + read_quantity(text)
    return sums


def _checkpoint(template: Template, said: object) -> dict[str, Any]:
    """The contract, with defaults by what its pods can hear."""
    made: dict[str, Any] = dict(said) if isinstance(said, Mapping) else {}
    made.setdefault("grace", f"{template.grace}s")
    if "channels" not in made:
        containers = [container_of(one) for one in template.containers]
        made["channels"] = [
            *(["http"] if port_of(containers) else []),
            *(["file"] if any(NOTES in one.variables for one in containers) else []),
        ]  # fmt: skip
    return made


def port_of(containers: Iterable[ContainerView]) -> int | None:
    """Where the SDK of a container listens: the port that is named so."""
    ports = (port for one in containers if LISTEN in one.variables for port in one.ports)
    return next((number for number, name in ports if name == PORT), None)
