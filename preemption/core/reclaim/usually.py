"""What usually comes, as the allocator counts it: what is declared, not what happens to be held. So a plan that is only
asked for is placed as the allocator would place it."""

from __future__ import annotations

from collections.abc import Mapping

from events.types.shared import Resources
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import MILLI, Task
from preemption.core.gradient import Gradient
from preemption.core.inventory import need_of
from preemption.core.reclaim.prechecking import mix_of


class Usually:
    """`models`: what a replica of each takes; `jobs`: what a member of each takes, of those that wait."""

    def __init__(self, models: Mapping[str, Resources], jobs: Mapping[str, Resources]) -> None:
        self._models = dict(models)
        self._jobs = dict(jobs)
        self._gradient = Gradient()
        for name, resources in models.items():
            self._gradient.declare(name, need_of(resources))

    def with_model(self, name: str, resources: Resources) -> Mix:
        """For models, once this one is declared too: each once, and a whole card for what nobody has declared yet."""
        self._models[name] = resources
        self._gradient.declare(name, need_of(resources))
        kinds = self._gradient.typical()
        tasks = [
            Task(
                cpu_milli=one.cpu, gpus=one.gpus, milli=one.milli or MILLI, gpu_bytes=one.gpu_bytes, profile=one.profile
            )
            for one in kinds
        ]  # fmt: skip
        return Mix(tuple(tasks), tuple(one.weight for one in kinds))

    def with_job(self, name: str, resources: Resources) -> Mix:
        """For training, once this job waits too: what differs among models, and what each job that waits takes."""
        self._jobs[name] = resources
        return mix_of([*dict.fromkeys(self._models.values()), *self._jobs.values()])
