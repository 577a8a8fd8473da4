"""What to do about all shortages at once: what those that were promised cards already may count on, then who else must
yield.

A shortage comes first to what its own victims free: nobody else may count on that. What they free beyond it is coming
for everybody. Models are planned before training jobs, since training cannot take what is reserved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from events.units import Instant
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import place_gang
from preemption.core.gpus.mig import family
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import Spot, Task
from preemption.core.gpus.space import Space
from preemption.core.reclaim.planning import Scene, after, plan_one
from preemption.core.reclaim.pricing import HOUR, in_turn, refusal
from preemption.core.reclaim.values import Coming, Job, Outcome, ReclaimPlan, ReclaimPolicy, Shortage, Why


@dataclass(frozen=True, slots=True)
class Promised:
    """What a victim that was told frees, by which attempt, and for which shortage (``""``: nobody in particular)."""

    attempt: str
    shortage: str
    coming: Coming


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What a plan is made from. `gangs`: shortages of training jobs, all or none. `blocked`: shortages that keep what
    they were promised, and for which nobody else is asked now. `for_training`: what training may see of a space."""

    space: Space
    jobs: tuple[Job, ...]
    promised: tuple[Promised, ...]
    coming: tuple[Coming, ...]
    mix: Mix
    gangs: frozenset[str]
    blocked: frozenset[str]
    for_training: Callable[[Space], Space]


@dataclass(frozen=True, slots=True)
class Planned:
    """What was planned for one shortage. `promised`: replicas for which its own victims free enough; `plan`: for the
    others, None when there are none; `idle`: its victims free nothing that it could use, and nothing more can be got.
    """

    shortage: Shortage
    promised: int
    plan: ReclaimPlan | None
    idle: bool = False


def plan_shortages(board: Board, shortages: Sequence[Shortage], policy: ReclaimPolicy, now: Instant) -> list[Planned]:
    """Plans for all shortages; models first, each in turn."""
    space, promised, kept = board.space.copy(), dict[str, int](), dict[str, list[Spot]]()
    for shortage in in_turn(shortages):
        mine = [one.coming for one in board.promised if one.shortage == shortage.name]
        promised[shortage.name], kept[shortage.name] = _keep(space, mine, shortage, board.mix) if mine else (0, [])
    coming = (*(one.coming for one in board.promised), *board.coming)
    scene = Scene(space=space, jobs=board.jobs, coming=coming, mix=board.mix)
    planned = []
    models = [one for one in in_turn(shortages) if one.name not in board.gangs | board.blocked]
    gangs = [one for one in in_turn(shortages) if one.name in board.gangs]
    for shortage in models:
        one, scene = _plan(scene, shortage, promised[shortage.name], policy, now)
        planned.append(one)
    if gangs:
        scene = replace(scene, space=board.for_training(scene.space))
    for shortage in gangs:
        if promised[shortage.name] < shortage.count:  # it is planned as a whole, with what its victims free
            scene = replace(scene, space=_without(scene.space, shortage.task, kept[shortage.name]))
        one, scene = _plan_gang(scene, shortage, promised[shortage.name], policy, now)
        planned.append(one)
    return planned


def needless(board: Board, shortages: Sequence[Shortage]) -> list[str]:
    """Attempts without which what the others free is enough for their shortage, now that it is smaller; those that
    would be done last."""
    found = []
    for shortage in shortages:
        mine = sorted((one for one in board.promised if one.shortage == shortage.name),
                      key=lambda one: (one.coming.at, one.attempt))  # fmt: skip
        space = board.space.copy()
        for one in mine if len(mine) > 1 else ():
            if int(space.room(shortage.task).sum()) >= shortage.count:
                found.append(one.attempt)
            for held in one.coming.freed:
                space.give(held.task, held.spot)
    return found


def retry_at(planned: Sequence[Planned], now: Instant) -> Instant | None:
    """When a plan may come out otherwise though nothing happens: who is left alone now may be asked then, or what was
    waited for should have come. None: never."""
    moments: list[float] = []
    for plan in (one.plan for one in planned if one.plan is not None):
        if plan.outcome is Outcome.RECLAIMS:
            continue
        moments += [] if plan.wait_until is None else [plan.wait_until]
        moments += [now + _left_alone(verdict.why, verdict.numbers) for verdict in plan.verdicts]
    later = [moment for moment in moments if math.isfinite(moment)]
    return Instant(max(now + 0.5, min(later))) if later else None


def _left_alone(why: Why, numbers: Mapping[str, float]) -> float:
    """For how long the reason why a job is not asked stands; a spent budget is looked at again each minute."""
    match why:
        case Why.COOLS_DOWN:
            return numbers["coolDown"] - numbers["since"]
        case Why.TOO_YOUNG:
            return numbers["minimum"] - numbers["ran"]
        case Why.BUDGET:
            return HOUR / 60
    return math.inf


def _plan(
    scene: Scene, shortage: Shortage, promised: int, policy: ReclaimPolicy, now: Instant
) -> tuple[Planned, Scene]:
    """For a model: as many of its replicas as can be had, if not all."""
    missing = shortage.count - promised
    if not missing:
        return Planned(shortage, promised, None), scene
    rest = replace(shortage, count=missing)
    plan = plan_one(scene, rest, policy, now)
    if plan.outcome is Outcome.INFEASIBLE:
        most = min(missing - 1, _most(scene, rest, policy, now))
        fewer = replace(rest, count=most)
        if most > 0 and (less := plan_one(scene, fewer, policy, now)).outcome is not Outcome.INFEASIBLE:
            rest, plan = fewer, less
    idle = plan.outcome is Outcome.INFEASIBLE and not promised
    return Planned(shortage, promised, plan, idle), after(scene, rest, plan, policy, now)


def _plan_gang(
    scene: Scene, shortage: Shortage, promised: int, policy: ReclaimPolicy, now: Instant
) -> tuple[Planned, Scene]:
    if promised == shortage.count:
        return Planned(shortage, promised, None), scene
    plan = plan_one(scene, shortage, policy, now)
    idle = plan.outcome is Outcome.INFEASIBLE
    return Planned(shortage, 0, plan, idle), after(scene, shortage, plan, policy, now)


def _most(scene: Scene, shortage: Shortage, policy: ReclaimPolicy, now: Instant) -> int:
    """How many replicas would have room, were all gone who may be asked."""
    space = _with(scene.space, [one for one in scene.coming if one.yielding])
    for job in scene.jobs:
        if refusal(job, shortage, policy, now) is None:
            for held in job.members:
                space.give(held.task, held.spot)
    return int(space.room(shortage.task).sum())


def _keep(space: Space, coming: Sequence[Coming], shortage: Shortage, mix: Mix) -> tuple[int, list[Spot]]:
    """Take places for the shortage out of `space`, as many as what its own victims free has room for; how many, and
    which were taken."""
    later = _with(space, coming)
    count = min(shortage.count, int(later.room(shortage.task).sum()))
    spots, taken = _spots(later, shortage.task, count, mix), list[Spot]()
    for spot in spots:
        if _can_take(space, shortage.task, spot):
            space.take(shortage.task, spot)
            taken.append(spot)
    return len(spots), taken


def _without(space: Space, task: Task, spots: Sequence[Spot]) -> Space:
    """The space in which these places are not taken."""
    later = space.copy()
    for spot in spots:
        later.give(task, spot)
    return later


def _with(space: Space, coming: Sequence[Coming]) -> Space:
    later = space.copy()
    for one in coming:
        for held in one.freed:
            later.give(held.task, held.spot)
    return later


def _spots(space: Space, task: Task, count: int, mix: Mix) -> tuple[Spot, ...]:
    if not count:
        return ()
    return place_gang(Chooser(space.copy(), Policy.RELUME, mix), [task] * count) or ()


def _can_take(space: Space, task: Task, spot: Spot) -> bool:
    """Whether memory slices of a MIG card can be taken, which not even a plan may take twice."""
    if not task.profile:
        return True
    tables = family(space.nodes[spot.node].cards[spot.cards[0]].family)
    return not int(space.state[spot.node, spot.cards[0]]) & tables.profiles[task.profile].bits(spot.start)
