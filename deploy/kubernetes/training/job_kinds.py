"""The kinds of Jobs of others that can be enrolled: where each keeps its suspension, its templates, its end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from deploy.kubernetes.resources import JOBS, Json, Resource
from deploy.kubernetes.views import PodView
from events.units import Instant

DEFAULT_GRACE: Final = 30
"""Seconds from SIGTERM to SIGKILL, where a template says nothing (Kubernetes' own)."""
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_ENDS: Final = {"Complete": "Complete", "Completed": "Complete", "Succeeded": "Complete", "Failed": "Failed"}
"""Conditions that a Job does not leave, in each kind's words."""


@dataclass(frozen=True, slots=True)
class Template:
    """Pods of one shape: how many of them run at the same time, and what is in them."""

    count: int
    containers: list[Json]
    grace: int = DEFAULT_GRACE


@dataclass(frozen=True)
class JobKind:
    """A kind. `where`: the path of the field that suspends it. `pod_label`: the label by which a pod says whose it is.
    `optional`: it may not be served, or not allowed."""

    resource: Resource
    where: tuple[str, ...]
    pod_label: str
    templates: Callable[[Json], list[Template]]
    order: Callable[[PodView], tuple[int, Instant, str]]
    optional: bool = True

    def suspended(self, found: Json) -> bool:
        """Whether the object is suspended."""
        part: Any = found
        for name in self.where:
            part = part.get(name) or {}
        return part is True

    def suspension(self, suspend: bool) -> dict[str, Any]:
        """The merge patch that suspends or resumes it."""
        made: Any = suspend
        for name in reversed(self.where):
            made = {name: made}
        patch: dict[str, Any] = made
        return patch

    def end(self, found: Json) -> str:
        """Complete or Failed, once it is; empty before."""
        conditions = found.get("status", {}).get("conditions", ())
        ended = (one["type"] for one in conditions if one.get("status") == "True" and one["type"] in _ENDS)
        return _ENDS.get(next(ended, ""), "")


def _template(count: object, pod: Json) -> Template:
    spec = pod.get("spec", {})
    grace = int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE))
    return Template(int(str(count)), list(spec.get("containers", ())), grace)


def _of_job(found: Json) -> list[Template]:
    spec = found["spec"]
    return [_template(spec.get("parallelism", 1), spec.get("template", {}))]


def _of_job_set(found: Json) -> list[Template]:
    made = []
    for part in found["spec"].get("replicatedJobs", ()):
        job = part.get("template", {}).get("spec", {})
        count = int(part.get("replicas", 1)) * int(job.get("parallelism", 1))
        made.append(_template(count, job.get("template", {})))
    return made


def _of_pytorch(found: Json) -> list[Template]:
    parts: Iterable[tuple[str, Json]] = sorted(found["spec"].get("pytorchReplicaSpecs", {}).items())  # Master first
    return [_template(part.get("replicas", 1), part.get("template", {})) for _, part in parts]


def _by_index(pod: PodView) -> tuple[int, Instant, str]:
    """Living ones first; of those by completion index, then the oldest."""
    index = pod.annotations.get(_INDEX, "") or pod.labels.get("training.kubeflow.org/replica-index", "")
    place = int(index) if index.isdigit() else 0
    worker = pod.labels.get("training.kubeflow.org/replica-type", "") == "worker"
    return (pod.over * 1_000_000 + worker * 100_000 + place, pod.created_at, pod.name)


KINDS: Final = (
    JobKind(JOBS, ("spec", "suspend"), "batch.kubernetes.io/job-name", _of_job, _by_index, optional=False),
    JobKind(
        Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"), ("spec", "suspend"),
        "jobset.sigs.k8s.io/jobset-name", _of_job_set, _by_index,
    ),
    JobKind(
        Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), ("spec", "runPolicy", "suspend"),
        "training.kubeflow.org/job-name", _of_pytorch, _by_index,
    ),
)  # fmt: skip
