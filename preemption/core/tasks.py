"""What the ledger calls a need, as the planner's arrays call it."""

from __future__ import annotations

from preemption.core.gpus.shapes import MILLI, Task
from preemption.core.inventory import Need


def task_of_need(need: Need) -> Task:
    """What one replica or member takes, as a task."""
    return Task(
        cpu_milli=need.cpu_milli, memory_bytes=need.memory_bytes,
        gpus=1 if need.shares or need.mig_profile else need.gpus, milli=need.gpu_milli or MILLI,
        gpu_bytes=need.gpu_bytes, profile=need.mig_profile,
    )  # fmt: skip
