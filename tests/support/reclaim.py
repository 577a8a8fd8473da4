"""Pools with training jobs for tests of the planner."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from events.units import Instant, Seconds
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import place_gang
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import NodeSpec, Spot, Task
from preemption.core.gpus.space import Space
from preemption.core.reclaim.planning import Scene, after, plan_one, units_of
from preemption.core.reclaim.pricing import in_turn, refusal
from preemption.core.reclaim.selecting import Unit
from preemption.core.reclaim.values import Held, Job, ReclaimPlan, ReclaimPolicy, Shortage
from tests.support.gpus import mig_node, node, task

NOW = Instant(100_000.0)
POLICY = ReclaimPolicy()


def job(name: str, *spots: Spot, since: float = 1000.0, takes: Task | None = None, **more: object) -> Job:
    """A job on these spots, whose last checkpoint was committed `since` seconds ago."""
    members = tuple(Held(takes or task(len(spot.cards)), spot) for spot in spots)
    given: dict[str, object] = {
        "started_at": Instant(NOW - 10_000), "last_commit_at": Instant(NOW - since), "save": Seconds(10.0),
        "restore": Seconds(10.0), "worth": float(sum(len(spot.cards) for spot in spots)), **more,
    }  # fmt: skip
    return Job(name=name, members=members, **given)  # type: ignore[arg-type] # any field


def cards(row: int, *columns: int) -> Spot:
    """Whole cards of a node."""
    return Spot(row, columns, 1000)


def shortage(count: int = 1, gpus: int = 1, **more: object) -> Shortage:
    """Replicas of a model of priority 100 that lack so many cards each."""
    given: dict[str, object] = {"task": task(gpus), "priority": 100, "since": NOW, "worth": float(gpus), **more}
    return Shortage(name="llama", count=count, **given)  # type: ignore[arg-type] # any field


def scene(nodes: Sequence[NodeSpec], *jobs: Job, **more: object) -> Scene:
    """A pool on which these jobs hold their places."""
    space = Space(nodes)
    for one in jobs:
        for held in one.members:
            space.take(held.task, held.spot)
    return Scene(space=space, jobs=jobs, **more)  # type: ignore[arg-type] # any field


def plan_all(scene: Scene, shortages: Sequence[Shortage], policy: ReclaimPolicy, now: Instant) -> list[ReclaimPlan]:
    """Plans for all shortages, in the order in which they are served; each sees what the ones before it took."""
    plans = []
    for shortage in in_turn(shortages):
        plan = plan_one(scene, shortage, policy, now)
        plans.append(plan)
        scene = after(scene, shortage, plan, policy, now)
    return plans


def feasible(base: Scene, short: Shortage, units: Iterable[Unit]) -> bool:
    """Whether the replicas have room once these units are gone, by the arrays."""
    space = base.space.copy()
    places = {(unit.job, m): held for unit in units for m, held in zip(unit.members, unit.held, strict=True)}
    for held in places.values():
        space.give(held.task, held.spot)
    return int(space.room(short.task).sum()) >= short.count


@dataclass(frozen=True)
class Best:
    """What trying every set of units finds: the least cost, None where no set is enough."""

    cost: float | None


def brute_force(base: Scene, short: Shortage) -> Best:
    """Try every set of units of all jobs that may be asked."""
    able = [one for one in base.jobs if refusal(one, short, POLICY, NOW) is None]
    units = [unit for one in able for unit in units_of(one, POLICY, NOW)]
    costs = [
        sum(unit.cost for unit in chosen)
        for size in range(len(units) + 1)
        for chosen in itertools.combinations(units, size)
        if feasible(base, short, chosen)
    ]
    return Best(min(costs, default=None))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Scene, Shortage]:
    """A small pool, full of random jobs with some elastic or refused ones, and a shortage."""
    kind = draw(st.sampled_from(("whole", "whole", "parts", "mig")))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    nodes = [mig_node(f"n{i}", cards=min(2, n)) if kind == "mig" else node(f"n{i}", n) for i, n in enumerate(sizes)]
    takes: st.SearchStrategy[Task] = {
        "whole": st.builds(task, st.integers(1, 3)),
        "parts": st.builds(task, st.just(1), st.sampled_from((300, 500, 700, 1000))),
        "mig": st.builds(task, profile=st.sampled_from(("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"))),
    }[kind]
    space, jobs = Space(nodes), list[Job]()
    for index in range(draw(st.integers(1, 6))):
        one, members = draw(takes), draw(st.integers(1, 3))
        chooser = Chooser(space, Policy.BESTFIT, Mix((one,), (1,)))
        spots = place_gang(chooser, [one] * members)
        if spots is not None:
            jobs.append(_random_job(draw, f"j{index}", one, spots))
    short = shortage(draw(st.integers(1, 4)), task=draw(takes), priority=draw(st.sampled_from((100, 100, 5))))
    return Scene(space=space, jobs=tuple(jobs)), short


def _random_job(draw: st.DrawFn, name: str, takes: Task, spots: tuple[Spot, ...]) -> Job:
    return job(
        name, *spots, takes=takes, since=draw(st.sampled_from((0.0, 60.0, 600.0, 5000.0))),
        priority=draw(st.sampled_from((0, 0, 0, 5, 10))), min_members=draw(st.sampled_from((0, 0, 1))),
        protected=draw(st.sampled_from((False, False, False, True))),
    )  # fmt: skip
