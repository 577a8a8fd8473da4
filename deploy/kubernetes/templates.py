"""What one replica of an enrolled object is made of, as its pod templates say. Pure.

Most objects have one template and one pod a replica. A LeaderWorkerSet makes a group of pods for each: the leader,
which serves, and workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.kubernetes.nodes import GPU
from deploy.kubernetes.quantities import read_quantity
from deploy.kubernetes.resources import Json


@dataclass(frozen=True, slots=True)
class Template:
    """The spec of a pod, and how many such pods there are for one replica."""

    spec: Json
    count: int = 1


def templates_of(item: Json) -> tuple[Template, ...]:
    """Those of an object, the pod that serves first; empty for kinds that have none that is known here."""
    spec = item.get("spec", {})
    group = spec.get("leaderWorkerTemplate")
    if not isinstance(group, Mapping):
        pod = spec.get("template", {}).get("spec")
        return (Template(pod),) if isinstance(pod, Mapping) else ()
    worker = group.get("workerTemplate", {}).get("spec", {})
    leader = group.get("leaderTemplate", {}).get("spec", {}) or worker
    workers = int(group.get("size") or 1) - 1
    return (Template(leader), *((Template(worker, workers),) if workers > 0 else ()))


def resources_of(pod: Json) -> dict[str, Any]:
    """What one pod takes, in the words of a Model: the sums over its containers; what none of them names is left
    out, but for GPUs."""
    sums: dict[str, float] = {}
    for one in pod.get("containers", ()):
        resources = one.get("resources", {})
        for name, text in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            sums[name] = sums.get(name, 0.0) + read_quantity(text)
    made: dict[str, Any] = {"gpus": int(sums.get(GPU, 0))}
    if "cpu" in sums:
        made["cpu"] = sums["cpu"]
    if "memory" in sums:
        made["memory"] = int(sums["memory"])
    return made
