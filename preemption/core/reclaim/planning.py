"""What to do about a shortage: place, wait, or have the cheapest sufficient victims yield. All or none, simulated
first.

The order of the questions: is there room now? Will there be, from those who were told to yield already? Who may be
asked, and who of them is cheapest and enough? Would waiting for what comes anyway be cheaper still? Nothing is
signalled here: the plan is tried on a copy of the pool with real cards and MIG starts, and says of each job why it was
taken or not.

There is no deadlock: one planner decides for the whole pool in one go, each shortage sees the claims of those before
it, only strictly lower priorities yield, and parked jobs take nothing from anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from events.units import Instant
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import place_gang
from preemption.core.gpus.mig import family
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import Spot
from preemption.core.gpus.space import Space
from preemption.core.reclaim.pricing import HOUR, elastic_cost, recent, refusal, whole_cost
from preemption.core.reclaim.selecting import Chosen, Selection, Unit
from preemption.core.reclaim.values import (
    Coming,
    Job,
    Outcome,
    ReclaimPlan,
    ReclaimPolicy,
    Shortage,
    Verdict,
    Victim,
    Why,
)

MOST_SIZES: Final = 16
"""Numbers of members that are weighed one by one. (Chosen: each is a unit of the selection.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a plan is made from: what is free (claims of others taken out of it), who runs, what is coming, and the
    typical work, by which places are chosen."""

    space: Space
    jobs: tuple[Job, ...]
    coming: tuple[Coming, ...] = ()
    mix: Mix | None = None


def plan_one(scene: Scene, shortage: Shortage, policy: ReclaimPolicy, now: Instant) -> ReclaimPlan:
    """The plan for one shortage."""
    if spots := _spots(scene, scene.space, shortage):
        verdicts = tuple(Verdict(job.name, Why.NOT_ASKED) for job in scene.jobs)
        return ReclaimPlan(shortage=shortage.name, outcome=Outcome.FITS, spots=spots, verdicts=verdicts)
    pending = _when(scene, shortage, [one for one in scene.coming if one.yielding])
    if pending is not None:
        verdicts = tuple(Verdict(job.name, Why.YIELDING if job.yielding else Why.NOT_ASKED) for job in scene.jobs)
        return ReclaimPlan(shortage=shortage.name, outcome=Outcome.PENDING, wait_until=pending, verdicts=verdicts)
    return _reclaim(scene, shortage, policy, now)


def _reclaim(scene: Scene, shortage: Shortage, policy: ReclaimPolicy, now: Instant) -> ReclaimPlan:
    refused = {job.name: no for job in scene.jobs if (no := refusal(job, shortage, policy, now)) is not None}
    able = [job for job in scene.jobs if job.name not in refused]
    left = policy.pool_budget - sum(recent(job, HOUR, now) for job in scene.jobs)
    if able and left <= 0:
        spent = {"preemptions": policy.pool_budget - left, "perHour": policy.pool_budget}
        refused |= {job.name: Verdict(job.name, Why.BUDGET, spent) for job in able}
        able = []
    counted = _with(scene.space, [one for one in scene.coming if one.yielding])
    units = [unit for job in able for unit in units_of(job, policy, now)]
    chosen = Selection(counted, shortage, units).choose()
    verdicts = _verdicts(scene.jobs, units, chosen, refused)
    plan = ReclaimPlan(shortage=shortage.name, outcome=Outcome.INFEASIBLE, verdicts=verdicts)
    if chosen.enough:
        victims = tuple(Victim(unit.job, unit.members, unit.whole, unit.cost) for unit in chosen.taken)
        spots = _spots(scene, _without(counted, chosen.taken), shortage)
        cost = sum(victim.cost for victim in victims)
        plan = replace(plan, outcome=Outcome.RECLAIMS, victims=victims, spots=spots, cost=cost)
    return _or_wait(scene, shortage, plan, policy, now)


def _or_wait(scene: Scene, shortage: Shortage, plan: ReclaimPlan, policy: ReclaimPolicy, now: Instant) -> ReclaimPlan:
    """Wait for what comes anyway, where that is in time and cheaper than the plan, or the only way."""
    free_at = _when(scene, shortage, scene.coming)
    if free_at is None or (shortage.deadline is not None and free_at > shortage.deadline):
        return plan
    worth = shortage.worth * shortage.count * policy.waiting
    waits = max(0.0, free_at - now) * worth
    saves = max((job.save for job in scene.jobs if any(one.job == job.name for one in plan.victims)), default=0.0)
    if plan.outcome is Outcome.RECLAIMS and plan.cost + (saves + policy.yield_time) * worth < waits:
        return plan
    verdicts = tuple(
        replace(one, why=Why.NOT_ASKED) if one.why in (Why.TAKEN, Why.SHRUNK) else one for one in plan.verdicts
    )
    return ReclaimPlan(
        shortage=shortage.name, outcome=Outcome.COMING, cost=waits, wait_until=free_at, verdicts=verdicts
    )


def units_of(job: Job, policy: ReclaimPolicy, now: Instant) -> list[Unit]:
    """What can be taken of a job: the whole of it, and the last few members, down to those that it needs."""
    count = len(job.members)
    elastic = job.needs < count
    cost = elastic_cost(job, count, policy, now) if elastic else whole_cost(job, policy, now)
    units = [Unit(job.name, tuple(range(count)), job.members, cost, whole=True)]
    for taken in _sizes(count - job.needs):
        last = tuple(range(count - taken, count))
        cost = elastic_cost(job, taken, policy, now)
        units.append(Unit(job.name, last, job.members[-taken:], cost, whole=False))
    return units


def _sizes(most: int) -> list[int]:
    """How many members may be taken: one to `most`; of many, powers of two."""
    if most <= MOST_SIZES:
        return list(range(1, most + 1))
    powers = (1 << exponent for exponent in range(most.bit_length()))
    return sorted({*powers, most})


def _spots(scene: Scene, space: Space, shortage: Shortage) -> tuple[Spot, ...]:
    """Where all replicas go; empty when they do not."""
    if int(space.room(shortage.task).sum()) < shortage.count:
        return ()
    mix = scene.mix or Mix((shortage.task,), (1,))
    chooser = Chooser(space.copy(), Policy.RELUME, mix)
    return place_gang(chooser, [shortage.task] * shortage.count) or ()


def _when(scene: Scene, shortage: Shortage, coming: Sequence[Coming]) -> Instant | None:
    """When enough will be free; None: never, by what is known."""
    space = scene.space.copy()
    for one in sorted(coming, key=lambda one: one.at):
        for held in one.freed:
            space.give(held.task, held.spot)
        if int(space.room(shortage.task).sum()) >= shortage.count:
            return one.at
    return None


def _with(space: Space, coming: Sequence[Coming]) -> Space:
    later = space.copy()
    for one in coming:
        for held in one.freed:
            later.give(held.task, held.spot)
    return later


def _without(space: Space, units: Sequence[Unit]) -> Space:
    """The space once these units are gone; a member that two units name leaves once."""
    later = space.copy()
    gone = {(unit.job, member): held for unit in units for member, held in zip(unit.members, unit.held, strict=True)}
    for held in gone.values():
        later.give(held.task, held.spot)
    return later


def _verdicts(
    jobs: Sequence[Job], units: Sequence[Unit], chosen: Chosen, refused: dict[str, Verdict]
) -> tuple[Verdict, ...]:
    """One for each job, in the order of the jobs."""
    taken = {unit.job: unit for unit in sorted(chosen.taken, key=lambda unit: unit.whole)}
    put_back = {unit.job for unit in chosen.put_back}
    whole = {unit.job: unit.cost for unit in units if unit.whole}
    gone = Counter(unit.job for unit in chosen.taken for _ in unit.members)
    verdicts = []
    for job in jobs:
        if job.name in refused:
            verdicts.append(refused[job.name])
            continue
        cost = {"cost": whole[job.name]}
        if job.name in taken:
            why = Why.TAKEN if taken[job.name].whole else Why.SHRUNK
            cost = {"cost": sum(unit.cost for unit in chosen.taken if unit.job == job.name)}
            if why is Why.SHRUNK:  # what that comes to: all of its members save, and come back
                cost |= {"members": gone[job.name], "of": len(job.members), "save": job.save, "restore": job.restore}
        elif job.name in chosen.useless:
            why = Why.NO_USE
        else:
            why = Why.NOT_NEEDED if job.name in put_back else Why.DEARER if chosen.enough else Why.NOT_ASKED
        verdicts.append(Verdict(job.name, why, cost))
    return tuple(verdicts)


def after(scene: Scene, shortage: Shortage, plan: ReclaimPlan, policy: ReclaimPolicy, now: Instant) -> Scene:
    """The scene as the next shortage sees it: this one's places are taken, its victims are yielding.

    A place that is not free yet is taken all the same: what is free falls below zero until its holder has gone, so the
    next shortage finds no room there, and counts on what is left over of it only once it comes.
    """
    coming = (*scene.coming, *_yielded(scene.jobs, plan, policy, now))
    jobs = tuple(_left_of(job, plan) for job in scene.jobs)
    spots = plan.spots
    if plan.wait_until is not None:
        until = plan.wait_until
        spots = _spots(scene, _with(scene.space, [one for one in coming if one.at <= until]), shortage)
    space = scene.space.copy()
    for spot in spots:
        if _free_or_plain(space, shortage, spot):
            space.take(shortage.task, spot)
        else:
            coming = tuple(one for one in coming if not _touches(one, spot))
    return replace(scene, space=space, jobs=jobs, coming=coming)


def _yielded(jobs: Sequence[Job], plan: ReclaimPlan, policy: ReclaimPolicy, now: Instant) -> list[Coming]:
    by_name = {job.name: job for job in jobs}
    coming = []
    for victim in plan.victims:
        job = by_name[victim.job]
        freed = tuple(job.members[index] for index in victim.members)
        coming.append(Coming(Instant(now + job.save + policy.yield_time), freed, yielding=True))
    return coming


def _left_of(job: Job, plan: ReclaimPlan) -> Job:
    """A job after the plan: it yields, or is as it was. (One that gives up some members saves with all, so it is asked
    again only when it has come back.)"""
    return replace(job, yielding=True) if any(one.job == job.name for one in plan.victims) else job


def _free_or_plain(space: Space, shortage: Shortage, spot: Spot) -> bool:
    """Whether the place can be taken now. Memory slices of a MIG card cannot be taken twice, not even on paper: then
    what comes there is left out of what the next shortage counts on."""
    if not shortage.task.profile:
        return True
    tables = family(space.nodes[spot.node].cards[spot.cards[0]].family)
    return not int(space.state[spot.node, spot.cards[0]]) & tables.profiles[shortage.task.profile].bits(spot.start)


def _touches(coming: Coming, spot: Spot) -> bool:
    return any(held.spot.node == spot.node and set(held.spot.cards) & set(spot.cards) for held in coming.freed)
