"""Policies over one trace of requests: over the cores, a policy each, and the figures of what came of them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deploy.simulation.foreseeing import foresee
from deploy.simulation.request_policies import ORACLE, Typed
from deploy.simulation.requests import RequestTrace
from deploy.simulation.running import BEGINS, Run, Simulation, Wished, flaps
from deploy.simulation.setting import Setting
from deploy.simulation.sharding import apart, joined, shards
from deploy.simulation.spreading import spread

WORTH_A_PROCESS: Final = 50_000
"""Requests, over all policies, below which starting processes takes longer than it saves."""

PARTS: Final = 4
"""Parts of a trace for each process: the last of them to end keeps the others waiting for a quarter at most."""

COLLECTED_EACH: Final = 50_000
"""Objects beyond those freed after which a process that only simulates looks for cycles; Python: 700. Chosen."""

Progress = Callable[[int], None]
"""Called with how many more requests have been replayed."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy did. `within_slo`: the part of requests whose first token came in time. `activations`: how often a
    model was asked for and had nothing ready."""

    requests: int
    within_slo: float
    refused: int
    held_p50: float
    held_p99: float
    first_p95: float
    gpu_seconds: float
    idle_gpu_seconds: float
    activations: int
    starts: int
    failed_starts: int
    most_replicas: int
    decisions: int
    recorded: int
    flaps: int
    policy_failures: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures, and the wishes that led there."""

    figures: Figures
    wishes: tuple[Wished, ...]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One policy over the trace, wherever it is run."""

    trace: RequestTrace
    typed: Typed
    setting: Setting
    span: float | None = None

    def run(self, progress: Progress | None = None) -> Outcome:
        """Do it."""
        return outcome(self.simulate(progress), self.setting)

    def simulate(self, progress: Progress | None = None) -> Run:
        """What came of each request."""
        priorities = dict(self.setting.priorities)
        policies = {name: self.typed.resolve(self.setting, priorities.get(name, 100)) for name in self.trace.names}
        own = {ORACLE: foresee(self.trace, self.setting, BEGINS)} if self.typed.name == ORACLE else {}
        told = 0

        def onwards(following: int) -> None:
            nonlocal told
            if progress is not None:
                progress(following - told)
                told = following

        run = Simulation(self.trace, policies, self.setting, own, onwards, span=self.span).run()
        onwards(len(self.trace))
        return run


def replay(
    trace: RequestTrace, policies: Sequence[Typed], setting: Setting, jobs: int, progress: Progress
) -> dict[str, Outcome]:
    """What each policy did, by how it was typed. `jobs`: processes; 0: one a core. Where models do not meet they are
    spread over the processes too, in parts that are small enough for progress to be seen. Raises ProcessDied."""
    processes = jobs or os.cpu_count() or 1
    if len(trace) * len(policies) < WORTH_A_PROCESS or (processes <= 1 and len(policies) <= 1):
        return {typed.text: Task(trace, typed, setting).run(progress) for typed in policies}
    parts = shards(trace, PARTS * processes) if apart(setting) else shards(trace, 1)
    done: dict[str, dict[int, Run]] = {typed.text: {} for typed in policies}
    asked = [(typed.text, number) for typed in policies for number, _ in enumerate(parts)]
    tasks = [Task(part.trace, typed, setting, trace.span) for typed in policies for part in parts]
    with spread(Task.simulate, tasks, processes, collect_seldom) as runs:
        for at, run in runs:
            text, number = asked[at]
            done[text][number] = run
            progress(len(parts[number].trace))
    return {
        text: outcome(joined([(part, runs[number]) for number, part in enumerate(parts)]), setting)
        for text, runs in done.items()
    }


def collect_seldom() -> None:
    """In a process that only simulates: what it makes is freed by counting, and has no cycles to speak of."""
    gc.freeze()
    gc.set_threshold(COLLECTED_EACH, 100, 100)


def outcome(run: Run, setting: Setting) -> Outcome:
    """Of a finished run."""
    return Outcome(figures(run, setting), run.wishes, run.seconds)


def figures(run: Run, setting: Setting) -> Figures:
    """Of a finished run. A request that was refused waited for as long as any may."""
    held, first = np.array(run.held), np.array(run.first)
    served = np.isfinite(first)
    waited = np.where(np.isfinite(held), held, setting.max_wait)
    return Figures(
        requests=int(first.size),
        within_slo=float((first <= setting.slo).mean()) if first.size else 1.0,
        refused=int((~served).sum()),
        held_p50=_quantile(waited, 0.5),
        held_p99=_quantile(waited, 0.99),
        first_p95=_quantile(first[served], 0.95),
        gpu_seconds=run.cost.gpu_seconds,
        idle_gpu_seconds=run.cost.idle_seconds,
        activations=run.activations,
        starts=run.cost.starts,
        failed_starts=run.cost.failed,
        most_replicas=_most(run.wishes),
        decisions=run.decisions,
        recorded=run.recorded,
        flaps=flaps(run.wishes),
        policy_failures=run.policy_failures,
    )


def _quantile(values: NDArray[np.float64], rank: float) -> float:
    return float(np.quantile(values, rank)) if values.size else 0.0


def _most(wishes: Sequence[Wished]) -> int:
    """The most that was wished for at once, over all models."""
    standing: dict[str, int] = {}
    total = most = 0
    for wish in wishes:
        total += wish.replicas - standing.get(wish.model, 0)
        standing[wish.model] = wish.replicas
        most = max(most, total)
    return most


def as_json(outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, object]]:
    """By policy, with the words of `relume simulate -o json`; what such a trace cannot tell is null."""
    return {name: _json(outcome.figures) for name, outcome in outcomes.items()}


def _json(one: Figures) -> dict[str, object]:
    return {
        "coldStarts": one.activations, "memoryGbSeconds": None, "gpuSeconds": round(one.gpu_seconds, 3),
        "idleGpuSeconds": round(one.idle_gpu_seconds, 3), "requests": one.requests,
        "withinSlo": round(one.within_slo, 6), "heldSecondsP99": round(one.held_p99, 3), "decisions": one.decisions,
        "flaps": one.flaps, "heldSecondsP50": round(one.held_p50, 3), "firstTokenSecondsP95": round(one.first_p95, 3),
        "refused": one.refused, "starts": one.starts, "failedStarts": one.failed_starts,
        "mostReplicas": one.most_replicas, "recorded": one.recorded, "policyFailures": one.policy_failures,
    }  # fmt: skip
