"""Many models over many cores: where GPUs are not scarce no model knows of another, so each can be simulated apart.

What comes of it is the same as of one simulation of all: luck is drawn by model, and the windows of each are its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deploy.simulation.pool import Meterage
from deploy.simulation.requests import RequestTrace
from deploy.simulation.running import Run
from deploy.simulation.setting import Setting


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Some models of a trace. `places`: where its requests stand in the whole."""

    trace: RequestTrace
    places: NDArray[np.int64]


def apart(setting: Setting) -> bool:
    """Whether models do not meet."""
    return setting.gpus is None and not setting.nodes


def shards(trace: RequestTrace, count: int) -> list[Shard]:
    """The models in at most so many parts, with about as many requests each: the largest go first, to the emptiest."""
    sizes = np.bincount(trace.model, minlength=len(trace.names))
    loads, homes = [0] * max(1, min(count, len(trace.names))), np.zeros(len(trace.names), dtype=np.int64)
    for model in np.argsort(-sizes, kind="stable").tolist():
        home = min(range(len(loads)), key=lambda one: (loads[one], one))
        loads[home] += int(sizes[model]) + 1
        homes[model] = home
    return [_shard(trace, homes, home) for home in range(len(loads))]


def _shard(trace: RequestTrace, homes: NDArray[np.int64], home: int) -> Shard:
    models = np.flatnonzero(homes == home)
    numbers = np.full(len(trace.names), -1, dtype=np.int32)
    numbers[models] = np.arange(models.size, dtype=np.int32)
    places = np.flatnonzero(homes[trace.model] == home)
    part = RequestTrace(
        tuple(trace.names[model] for model in models.tolist()), trace.arrived[places], numbers[trace.model[places]],
        trace.tokens_in[places], trace.tokens_out[places], trace.seconds[places],
    )  # fmt: skip
    return Shard(part, places)


def joined(parts: Sequence[tuple[Shard, Run]]) -> Run:
    """What came of all of them."""
    size = sum(len(shard.trace) for shard, _ in parts)
    held, first = np.zeros(size), np.zeros(size)
    cost = Meterage()
    for shard, run in parts:
        held[shard.places], first[shard.places] = np.array(run.held), np.array(run.first)
        cost.starts, cost.failed = cost.starts + run.cost.starts, cost.failed + run.cost.failed
        cost.gpu_seconds += run.cost.gpu_seconds
        cost.idle_seconds += run.cost.idle_seconds
    runs = [run for _, run in parts]
    wishes = sorted((wish for run in runs for wish in run.wishes), key=lambda wish: wish.at)
    return Run(
        array("d", held.tobytes()), array("d", first.tobytes()), cost, sum(run.activations for run in runs),
        sum(run.decisions for run in runs), sum(run.recorded for run in runs),
        sum(run.policy_failures for run in runs), tuple(wishes), max((run.seconds for run in runs), default=0.0),
    )  # fmt: skip
