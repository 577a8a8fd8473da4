"""Policies at equal cost: each is tried with many settings of its own knobs, and compared are the best of each.

Of a policy's points those count that no other of its points beats (cheaper, and as much kept): its frontier. Between
two neighbours of it straight lines are drawn; below its cheapest point nothing is known of it, beyond its dearest it
keeps what that keeps. All policies are tried as often, and none by what the others gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from deploy.simulation.request_policies import Typed, read_typed
from deploy.simulation.request_replay import Outcome
from deploy.simulation.setting import Setting

PARTS: Final = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25)
"""Targets, as parts of the slots."""

BETWEEN: Final = ((0.3125, "61s"), (0.3125, "3m"), (0.1875, "61s"))
"""And of ours, with a keep-alive: by its utilisation of 0.7 or 0.85 Knative's is tried with as small targets, and as
closely."""

BOUNDED: Final = 0.625
"""The target where there are bounds of replicas."""

STAYS: Final = ("1m", "2m", "3m", "5m")

TRIED: Final = 50
"""Settings of each policy."""

COSTS: Final = 12
"""Costs at which policies are compared."""


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a policy: means over the seeds, and the least and most of each."""

    policy: str
    gpu_seconds: float
    within_slo: float
    gpu_seconds_range: tuple[float, float]
    within_slo_range: tuple[float, float]


@dataclass(frozen=True, slots=True)
class AtCost:
    """What each policy keeps at a cost; None: it was tried at none so low."""

    gpu_seconds: float
    within_slo: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Frontiers:
    """All of it. `points`: what was tried, by policy; `frontiers`: of these, what no other beats, cheapest first."""

    points: Mapping[str, tuple[Point, ...]]
    frontiers: Mapping[str, tuple[Point, ...]]
    at_cost: tuple[AtCost, ...]
    seeds: int


def swept(typed: Sequence[Typed], setting: Setting) -> list[Typed]:
    """Each policy that is a mere name, with all settings that are tried of it; what has settings stays as it is."""
    found: dict[str, Typed] = {}
    for one in typed:
        tried = SWEEPS.get(one.name) if one.text == one.name else None
        for each in [one] if tried is None else [read_typed(text) for text in tried(one.name, setting)]:
            found[each.text] = each
    return list(found.values())


def frontiers(typed: Sequence[Typed], runs: Sequence[Mapping[str, Outcome]]) -> Frontiers:
    """Of the outcomes of each seed."""
    points: dict[str, list[Point]] = {}
    for one in typed:
        costs = [run[one.text].figures.gpu_seconds for run in runs]
        kept = [run[one.text].figures.within_slo for run in runs]
        point = Point(one.text, fmean(costs), fmean(kept), (min(costs), max(costs)), (min(kept), max(kept)))
        points.setdefault(one.name, []).append(point)
    best = {name: frontier(every) for name, every in points.items()}
    return Frontiers({name: tuple(every) for name, every in points.items()}, best, equal_costs(best), len(runs))


def frontier(points: Sequence[Point]) -> tuple[Point, ...]:
    """What no other of them beats: dearer is each only if it keeps more."""
    found: list[Point] = []
    for one in sorted(points, key=lambda point: (point.gpu_seconds, -point.within_slo, point.policy)):
        if not found or one.within_slo > found[-1].within_slo:
            found.append(one)
    return tuple(found)


def kept_at(points: Sequence[Point], cost: float) -> float | None:
    """What a policy with this frontier keeps at a cost."""
    if not points or cost < points[0].gpu_seconds:
        return None
    for one, other in pairwise(points):
        if cost < other.gpu_seconds:
            part = (cost - one.gpu_seconds) / (other.gpu_seconds - one.gpu_seconds)
            return one.within_slo + part * (other.within_slo - one.within_slo)
    return points[-1].within_slo


def equal_costs(best: Mapping[str, Sequence[Point]]) -> tuple[AtCost, ...]:
    """Costs in equal proportions, from the lowest that two policies have to the dearest point of any."""
    begins = sorted(points[0].gpu_seconds for points in best.values() if points)
    if not begins:
        return ()
    low, high = begins[min(1, len(begins) - 1)], max(points[-1].gpu_seconds for points in best.values() if points)
    steps = COSTS - 1 if low > 0.0 and high > low else 0
    costs = [low * (high / low) ** (step / steps) for step in range(steps)] if steps else []
    return tuple(AtCost(cost, {name: kept_at(every, cost) for name, every in best.items()}) for cost in [*costs, high])


def as_json(found: Frontiers) -> dict[str, object]:
    """With the words of `relume simulate --frontier -o json`."""
    return {
        "seeds": found.seeds,
        "tried": {name: len(every) for name, every in found.points.items()},
        "frontiers": {name: [_json(one) for one in every] for name, every in found.frontiers.items()},
        "equalCost": [
            {
                "gpuSeconds": round(row.gpu_seconds, 3),
                "withinSlo": {name: None if kept is None else round(kept, 6) for name, kept in row.within_slo.items()},
            }
            for row in found.at_cost
        ],
    }


def _json(one: Point) -> dict[str, object]:
    return {
        "policy": one.policy, "gpuSeconds": round(one.gpu_seconds, 3), "withinSlo": round(one.within_slo, 6),
        "gpuSecondsRange": [round(end, 3) for end in one.gpu_seconds_range],
        "withinSloRange": [round(end, 6) for end in one.within_slo_range],
    }  # fmt: skip


def _target(setting: Setting, part: float) -> str:
    return f"target={max(1.0, part * setting.slots):g}"


def _targets(setting: Setting, count: int = len(PARTS)) -> list[str]:
    return [_target(setting, part) for part in PARTS[:count]]


def _bounded(name: str, setting: Setting, *stays: str) -> list[str]:
    """Who wants to pay very little says how many there may be at most: each policy is bounded alike. `stays`: five ways
    of how long it keeps what it does not need, longest last: two replicas are tried with each."""
    bounds = [(1, stays[-1]), *[(2, stay) for stay in stays], (3, stays[1]), (3, stays[-1])]
    return [_at_most(name, setting, most, stay) for most, stay in bounds]


def _at_most(name: str, setting: Setting, most: int, options: str) -> str:
    """Never more than the setting allows."""
    return f"{name}:maxReplicas={min(most, setting.max_replicas)},{options}"


def _relume(name: str, setting: Setting) -> list[str]:
    """Where the keep-alive is not longer than the stable window nothing is kept of what was needed, and regrets set the
    pace; so both sides of it are tried. The promise is a knob too: another one than is judged by, or none."""
    slo, (full, *_) = setting.slo, _targets(setting)
    texts = [f"{name}:{target},keepAlive={stay}" for target in _targets(setting) for stay in ("61s", "3m", "5m")]
    texts += [f"{name}:{target},keepAlive=2m" for target in _targets(setting, 2)]
    texts += [f"{name}:{target},keepAlive=1m" for target in _targets(setting, 3)]
    texts += [f"{name}:{_target(setting, part)},keepAlive={stay}" for part, stay in BETWEEN]
    promises = ["slo=0,keepAlive=5m", *[f"slo=0,{target},keepAlive=1m" for target in _targets(setting, 5)[::2]]]
    promises += [f"slo={times * slo:g}s" for times in (2.0, 4.0)]
    promises += [
        f"slo={16.0 * slo:g}s,{full}{stay}" for stay in ("", ",keepAlive=3m", ",keepAlive=4m", ",keepExtra=61s")
    ]
    bounded = _bounded(
        name, setting, f"slo={4.0 * slo:g}s,{full},keepExtra=61s", "keepExtra=61s", "keepExtra=3m",
        "slo=0,keepExtra=3m", "keepAlive=5m",
    )  # fmt: skip
    bounded += [_at_most(name, setting, most, f"slo=0,{_target(setting, BOUNDED)}") for most in (2, 3)]
    return [*texts, *[f"{name}:{promise}" for promise in promises], *bounded, name]


def _kpa(name: str, setting: Setting) -> list[str]:
    """Its utilisation makes less of a target, and its last replica may stay for longer than the others."""
    options = ("stableWindow=60s", "stableWindow=2m", "stableWindow=5m", "targetUtilisation=0.85", "scaleDownDelay=2m")
    full, retention = _targets(setting)[0], "lastReplicaRetention=5m"
    texts = [f"{name}:{target},{option}" for target in _targets(setting) for option in options]
    texts += [f"{name}:{target},{retention}" for target in _targets(setting, 5)]
    texts += [f"{name}:{full},targetUtilisation=1", f"{name}:{full},{retention},scaleDownDelay=2m"]
    stays = ["", *[f",scaleDownDelay={stay}" for stay in STAYS]]
    return [*texts, *_bounded(name, setting, *[f"{full},{retention}{stay}" for stay in stays])]


def _by(ways: Sequence[str], bounded: float = BOUNDED) -> Callable[[str, Setting], list[str]]:
    """Six ways to keep what is not needed, each tried with each target, and but for the first with bounds too;
    `bounded`: with this target, as a part of the slots."""

    def tried(name: str, setting: Setting) -> list[str]:
        texts = [f"{name}:{target},{each}" for target in _targets(setting) for each in ways]
        return [*texts, *_bounded(name, setting, *[f"{_target(setting, bounded)},{each}" for each in ways[1:]])]

    return tried


SWEEPS: Final[Mapping[str, Callable[[str, Setting], list[str]]]] = {
    "relume": _relume, "kpa": _kpa,
    "keda": _by([
        "stabilisation=1m,cooldown=1m", *[f"stabilisation={stay},cooldown=5m" for stay in STAYS[:2]],
        *[f"stabilisation={stay},cooldown={stay}" for stay in STAYS[1:]],
    ]),
    "hpa": _by([f"stabilisation={stay}" for stay in (*STAYS, "4m", "10m")]),
    "keepalive": _by([f"keepAlive={stay}" for stay in (*STAYS, "4m", "10m")]),
    "concurrency": _by([f"window={stay}" for stay in (*STAYS, "4m", "10m")], bounded=0.25),
}  # fmt: skip
"""As many settings (`TRIED`) of each policy that has knobs between cost and what it keeps."""
