"""What must hold of every plan, whatever the pool: checked against trying every set of victims."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from preemption.core.reclaim.planning import Scene, plan_one, units_of
from preemption.core.reclaim.selecting import Unit
from preemption.core.reclaim.values import Outcome, ReclaimPlan, Shortage, Why
from tests.support.reclaim import NOW, POLICY, brute_force, feasible, plan_all, scenes


def units(scene: Scene, plan: ReclaimPlan) -> list[Unit]:
    """The units that the plan takes."""
    wanted = {(victim.job, victim.members) for victim in plan.victims}
    every = [unit for job in scene.jobs for unit in units_of(job, POLICY, NOW)]
    return [unit for unit in every if unit.key in wanted]


@settings(max_examples=100, deadline=None)
@given(scenes())
def test_a_plan_is_found_when_there_is_one_and_is_never_much_dearer(case: tuple[Scene, Shortage]) -> None:
    """Feasible exactly when some set of victims is; never below the least cost, and at most twice it."""
    scene, shortage = case
    plan, best = plan_one(scene, shortage, POLICY, NOW), brute_force(scene, shortage)
    if plan.outcome is Outcome.FITS:
        assert best.cost == 0
    elif plan.outcome is Outcome.RECLAIMS:
        assert best.cost is not None
        assert best.cost - 1e-6 <= plan.cost <= 2 * best.cost + 1e-6
    else:
        assert plan.outcome is Outcome.INFEASIBLE
        assert best.cost is None


@settings(max_examples=80, deadline=None)
@given(scenes())
def test_victims_are_lower_needed_and_enough(case: tuple[Scene, Shortage]) -> None:
    """Never an equal or higher priority; all replicas have places; without any one victim they have not."""
    scene, shortage = case
    plan = plan_one(scene, shortage, POLICY, NOW)
    jobs = {job.name: job for job in scene.jobs}
    taken = units(scene, plan)
    assert len(taken) == len(plan.victims)
    for victim in plan.victims:
        assert jobs[victim.job].priority < shortage.priority
        assert not jobs[victim.job].protected
    assert len(plan.spots) == (shortage.count if plan.outcome in (Outcome.FITS, Outcome.RECLAIMS) else 0)
    if plan.victims:
        assert feasible(scene, shortage, taken)
        for unit in taken:
            assert not feasible(scene, shortage, [one for one in taken if one is not unit])
    told = {verdict.job for verdict in plan.verdicts if verdict.why in (Why.TAKEN, Why.SHRUNK)}
    assert told == {victim.job for victim in plan.victims}
    assert [verdict.job for verdict in plan.verdicts] == [job.name for job in scene.jobs]


@settings(max_examples=50, deadline=None)
@given(scenes(), st.randoms())
def test_the_order_in_which_jobs_are_told_changes_nothing(case: tuple[Scene, Shortage], order: object) -> None:
    """The same pool gives the same victims and places."""
    scene, shortage = case
    jobs = list(scene.jobs)
    order.shuffle(jobs)  # type: ignore[attr-defined] # hypothesis' Random
    first, second = (plan_one(one, shortage, POLICY, NOW) for one in (scene, replace(scene, jobs=tuple(jobs))))
    assert (first.victims, first.spots, first.cost) == (second.victims, second.spots, second.cost)


@settings(max_examples=80, deadline=None)
@given(scenes(), st.lists(st.tuples(st.integers(1, 3), st.sampled_from((50, 100))), min_size=1, max_size=4))
def test_no_card_is_promised_twice(case: tuple[Scene, Shortage], more: list[tuple[int, int]]) -> None:
    """Plans of several shortages together: once all victims are gone, all places can be held at once; nobody is
    asked twice for the same member (giving it twice would raise, or leave an index out)."""
    scene, shortage = case
    others = [replace(shortage, name=f"s{i}", count=n, priority=p) for i, (n, p) in enumerate(more)]
    plans = plan_all(scene, [shortage, *others], POLICY, NOW)
    space, here = scene.space.copy(), {job.name: job.members for job in scene.jobs}
    for plan in plans:
        for victim in plan.victims:
            for index in victim.members:
                space.give(here[victim.job][index].task, here[victim.job][index].spot)
        for name in {victim.job for victim in plan.victims}:
            asked = {index for victim in plan.victims if victim.job == name for index in victim.members}
            here[name] = tuple(held for index, held in enumerate(here[name]) if index not in asked)
    for plan in plans:
        for spot in plan.spots:
            space.take(shortage.task, spot)
            assert min(space.free.min(), space.cpu.min(), space.memory.min()) >= 0
