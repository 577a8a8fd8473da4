"""Search for the settings of `relume` that keep a goal with the fewest GPU-seconds, by simulating each.

A coarse grid over `target` and over how long what is idle stays (`keepAlive`, or a price of a cold start instead), then
finer targets around the best. What is best for a trace is best for its past: nothing says that tomorrow is alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deploy.simulation.request_policies import Typed
from deploy.simulation.request_replay import Outcome, replay
from deploy.simulation.requests import RequestTrace
from deploy.simulation.setting import Setting

TARGETS: Final = (0.5, 0.75, 1.0)
"""Parts of the slots."""

FINER: Final = (-0.125, 0.125)

KEPT: Final = ("keepAlive", "5m")
"""The default."""

STAYS: Final[tuple[tuple[str, str], ...]] = (
    ("keepAlive", "1m"), ("keepAlive", "61s"), ("keepAlive", "2m"), ("keepAlive", "3m"), ("keepAlive", "5m"),
    ("keepAlive", "15m"),
    ("coldStartCost", "2m"), ("coldStartCost", "10m"), ("coldStartCost", "40m"),
)  # fmt: skip
"""A minute is the stable window: up to there regrets set the pace of a descent, beyond it what was needed is kept."""

OURS: Final = "relume"
SEARCHED: Final = ("target", "keepAlive", "coldStartCost")

Scaling = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Tuned:
    """`before`: what there is now. `best`: the change and what it gives; `reached`: whether the goal is kept by it.
    `tried`: all that was simulated."""

    before: Outcome
    scaling: Scaling
    best: Outcome
    reached: bool
    tried: int


@dataclass(frozen=True, slots=True)
class Goal:
    """At least this part of the requests within the objective."""

    within_slo: float


def tune(now: Scaling, setting: Setting, goal: Goal, run: Callable[[Sequence[Typed]], dict[str, Outcome]]) -> Tuned:
    """The best of what was tried: the cheapest that keeps the goal, else what keeps most. `now`: the model's scaling as
    it is declared, by whatever policy; what the search does not set stays. `run` simulates; `simulate` is one."""
    policy = str(now.get("policy", OURS))
    fixed: dict[str, object] = {key: value for key, value in now.items() if key not in SEARCHED}
    if policy != OURS:  # its options are none of ours, and a change to ours must be said
        fixed = {**fixed, "policy": OURS}
        fixed.pop("policyOptions", None)
    standing = Typed("now", policy, dict(now))
    outcomes: dict[str, tuple[Scaling, Outcome]] = {}

    def attempt(parts: Sequence[tuple[float, tuple[str, str]]]) -> None:
        typed = [_typed(fixed, setting.slots, part, stays) for part, stays in parts]
        fresh = [one for one in typed if one.text not in outcomes]
        for text, outcome in run(fresh).items():
            outcomes[text] = (next(one.scaling for one in fresh if one.text == text), outcome)

    before = run([standing])["now"]
    attempt([(part, stays) for part in TARGETS for stays in STAYS])
    best, outcome = _best([(dict(now), before), *outcomes.values()], goal)
    stays = next(((key, str(best[key])) for key in ("keepAlive", "coldStartCost") if key in best), KEPT)
    around = float(str(best.get("target", setting.slots))) / setting.slots
    attempt([(part, stays) for step in FINER if 0.0 < (part := around + step) <= 1.0])
    best, outcome = _best([(dict(now), before), *outcomes.values()], goal)
    return Tuned(before, best, outcome, outcome.figures.within_slo >= goal.within_slo, len(outcomes) + 1)


def simulate(
    trace: RequestTrace, setting: Setting, jobs: int, progress: Callable[[int], None]
) -> Callable[[Sequence[Typed]], dict[str, Outcome]]:
    """How `tune` runs what it tries."""
    return lambda policies: replay(trace, policies, setting, jobs, progress) if policies else {}


def _typed(fixed: Scaling, slots: int, part: float, stays: tuple[str, str]) -> Typed:
    target = max(1.0, round(part * slots, 2))
    scaling: dict[str, object] = {**fixed, "target": int(target) if target.is_integer() else target, stays[0]: stays[1]}
    if stays[0] == "coldStartCost":
        scaling.pop("policyOptions", None)  # how long replicas beyond the first are kept: the forecast says it
    return Typed(f"relume:target={target:g},{stays[0]}={stays[1]}", "relume", scaling)


def _best(tried: Sequence[tuple[Scaling, Outcome]], goal: Goal) -> tuple[Scaling, Outcome]:
    kept = [one for one in tried if one[1].figures.within_slo >= goal.within_slo]
    if kept:
        return min(kept, key=lambda one: one[1].figures.gpu_seconds)
    return max(tried, key=lambda one: (one[1].figures.within_slo, -one[1].figures.gpu_seconds))
