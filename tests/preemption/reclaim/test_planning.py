"""The planner, one story a row: who yields, who does not and why, when it waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.units import Instant, Seconds
from preemption.core.gpus.shapes import CardSpec, Mode, Spot
from preemption.core.reclaim.planning import Scene, plan_one
from preemption.core.reclaim.pricing import aged_priority, in_turn, whole_cost
from preemption.core.reclaim.values import Coming, Job, Outcome, ReclaimPlan, ReclaimPolicy, Why
from tests.support.gpus import GI, mig_node, node, task, with_cards
from tests.support.reclaim import NOW, POLICY, cards, job, plan_all, scene, shortage


def whys(plan: ReclaimPlan) -> dict[str, Why]:
    return {verdict.job: verdict.why for verdict in plan.verdicts}


def victims(plan: ReclaimPlan) -> list[str]:
    return sorted({victim.job for victim in plan.victims})


def test_free_cards_come_before_victims() -> None:
    """An empty node is used though a job could yield (volcano#3291)."""
    plan = plan_one(scene([node("a"), node("b")], job("t", cards(0, 0, 1, 2, 3))), shortage(2), POLICY, NOW)
    assert (plan.outcome, plan.victims, len(plan.spots)) == (Outcome.FITS, (), 2)
    assert whys(plan) == {"t": Why.NOT_ASKED}


def test_the_one_that_saved_last_yields() -> None:
    """Cost is the work since the last committed checkpoint; the plan names the place that becomes free."""
    jobs = (job("old", cards(0, 0), since=3000), job("fresh", cards(0, 1), since=30))
    plan = plan_one(scene([node("a", 2)], *jobs), shortage(), POLICY, NOW)
    assert (plan.outcome, victims(plan), plan.cost) == (Outcome.RECLAIMS, ["fresh"], 50.0)
    assert plan.spots == (cards(0, 1),)
    assert whys(plan) == {"old": Why.DEARER, "fresh": Why.TAKEN}
    assert {verdict.job: verdict.numbers["cost"] for verdict in plan.verdicts} == {"old": 3020.0, "fresh": 50.0}


def test_who_never_reports_does_not_win() -> None:
    """A job without a committed checkpoint has all since its start at stake (kueue#477)."""
    silent = job("silent", cards(0, 0), last_commit_at=None, started_at=Instant(NOW - 4000))
    assert whole_cost(silent, POLICY, NOW) == 4020
    plan = plan_one(scene([node("a", 2)], silent, job("fair", cards(0, 1), since=3000)), shortage(), POLICY, NOW)
    assert victims(plan) == ["fair"]


def test_ten_are_not_evicted_where_one_is_enough() -> None:
    """Many cheap small jobs on other nodes free nothing of use for four cards together (volcano#5984)."""
    small = [job(f"s{index}", cards(index, 0), since=1) for index in range(8)]
    big = job("big", cards(8, 0, 1, 2, 3), since=2000)
    base = scene([*(node(f"n{i}", 2) for i in range(8)), node("n8")], *small, big)
    plan = plan_one(base, shortage(1, 4), POLICY, NOW)
    assert victims(plan) == ["big"]
    assert {whys(plan)[one.name] for one in small} == {Why.NO_USE}


def test_a_gang_yields_as_a_whole_and_frees_everywhere() -> None:
    """Two replicas on two nodes cost one gang that spans both, not two jobs."""
    gang = job("gang", cards(0, 0), cards(1, 0), since=100)
    singles = (job("a", cards(0, 1), since=120), job("b", cards(1, 1), since=120))
    plan = plan_one(scene([node("x", 2), node("y", 2)], gang, *singles), shortage(2, 1), POLICY, NOW)
    assert victims(plan) == ["gang"]
    assert plan.victims[0].members == (0, 1)
    assert plan.cost == 2 * 120


def test_who_is_not_needed_after_all_is_put_back() -> None:
    """Two cheap ones are taken first; then a gang that is needed anyway frees enough alone."""
    jobs = (
        job("cheap", cards(0, 0), since=0), job("gang", cards(0, 1, 2, 3), cards(1, 0, 1, 2, 3), since=50),
    )  # fmt: skip
    plan = plan_one(scene([node("a"), node("b")], *jobs), shortage(5), POLICY, NOW)
    assert victims(plan) == ["gang"]
    assert whys(plan)["cheap"] is Why.NOT_NEEDED


SHORT = {"whole": task(1), "instance": task(profile="1g.5gb"), "part": task(1, 400), "bytes": task(gpu_bytes=30 * GI)}


@pytest.mark.parametrize(
    ("short", "of_use"),
    [
        ("whole", {"card"}), ("instance", {"one"}), ("part", {"card"}), ("bytes", {"card"}),
    ],
)  # fmt: skip
def test_who_holds_another_kind_of_card_is_no_dearer_one(short: str, of_use: set[str]) -> None:
    """On one node with a card, instances and turns: who could free nothing that it could use is told so, however
    cheap."""
    specs = (
        CardSpec(id="whole", usable_bytes=40 * GI),
        CardSpec(id="m0", mode=Mode.MIG, family="instance:1g.5gb"),
        CardSpec(id="m1", mode=Mode.MIG, family="instance:3g.20gb"),
        CardSpec(id="t0", mode=Mode.SLICED, turns=4, usable_bytes=40 * GI),
    )
    jobs = (
        job("card", cards(0, 0), since=9000), job("one", Spot(0, (1,), 0, 0), takes=task(profile="1g.5gb"), since=8000),
        job("three", Spot(0, (2,), 0, 0), takes=task(profile="3g.20gb")), job("cores", Spot(0), takes=task(0)),
        job("turn", Spot(0, (3,), 250), takes=task(1, 250)),
    )  # fmt: skip
    plan = plan_one(scene([with_cards("a", *specs)], *jobs), shortage(task=SHORT[short]), POLICY, NOW)
    assert set(victims(plan)) == of_use
    assert {name for name, why in whys(plan).items() if why is not Why.NO_USE} == of_use


def test_where_cores_lack_too_whoever_has_some_is_of_use() -> None:
    """A model of 40 cores: the card's holder and the one without a card go."""
    jobs = (job("card", cards(0, 0)), job("cores", Spot(0), takes=task(0, cores=30)))
    plan = plan_one(scene([node("a", 1)], *jobs), shortage(task=task(1, cores=40)), POLICY, NOW)
    assert victims(plan) == ["card", "cores"]


def test_all_or_none() -> None:
    """Where not even everybody is enough, nobody yields."""
    plan = plan_one(scene([node("a", 2)], job("t", cards(0, 0, 1))), shortage(3), POLICY, NOW)
    assert (plan.outcome, plan.victims, plan.spots) == (Outcome.INFEASIBLE, (), ())
    assert whys(plan) == {"t": Why.NOT_ASKED}


@pytest.mark.parametrize(
    ("more", "why", "numbers"),
    [
        ({"priority": 100}, Why.PRIORITY, {"priority": 100, "below": 100}),
        ({"priority": 200}, Why.PRIORITY, {"priority": 200, "below": 100}),
        ({"protected": True}, Why.PROTECTED, {}),
        ({"min_run": Seconds(20_000.0)}, Why.TOO_YOUNG, {"ran": 10_000, "minimum": 20_000}),
        ({"preempted_at": (Instant(NOW - 60),)}, Why.COOLS_DOWN, {"since": 60, "coolDown": 600}),
        ({"preempted_at": (Instant(NOW - 700),) * 6}, Why.BUDGET, {"preemptions": 6, "perHour": 6}),
        ({"yielding": True}, Why.YIELDING, {}),
        ({"priority": 60, "parked": Seconds(24_000.0)}, Why.PRIORITY, {"priority": 100, "below": 100}),
    ],
)
def test_who_must_not_be_asked(more: dict[str, object], why: Why, numbers: dict[str, float]) -> None:
    """Each rule, with its numbers; the plan is then infeasible, and says so."""
    plan = plan_one(scene([node("a", 1)], job("t", cards(0, 0), **more)), shortage(), POLICY, NOW)
    assert plan.outcome is Outcome.INFEASIBLE
    assert (plan.verdicts[0].why, plan.verdicts[0].numbers) == (why, numbers)


def test_the_pool_has_a_budget() -> None:
    """When the pool has had its victims of the hour, there are no more, whoever they were."""
    often = job("often", cards(0, 0), preempted_at=(Instant(NOW - 1000),) * 3, budget_per_hour=10)
    base = scene([node("a", 2)], often, job("other", cards(0, 1)))
    assert plan_one(base, shortage(), replace(POLICY, pool_budget=4), NOW).outcome is Outcome.RECLAIMS
    spent = plan_one(base, shortage(), replace(POLICY, pool_budget=3), NOW)
    assert (spent.outcome, set(whys(spent).values())) == (Outcome.INFEASIBLE, {Why.BUDGET})


def test_who_yielded_lately_is_dearer() -> None:
    """The thrash penalty: of two alike the one that yielded an hour ago less is taken second."""
    jobs = (job("again", cards(0, 0), preempted_at=(Instant(NOW - 1200),)), job("first", cards(0, 1)))
    assert victims(plan_one(scene([node("a", 2)], *jobs), shortage(), POLICY, NOW)) == ["first"]


def test_an_elastic_job_gives_a_surplus_member() -> None:
    """It needs one of its three members: for one card the last goes, for two the last two, and it goes on, at the price
    of a restart of all; for three, or where that is cheaper, somebody yields whole. The verdict says what it comes
    to."""
    elastic = job("e", cards(0, 0), cards(0, 1), cards(0, 2), min_members=1, since=50)
    dear = job("dear", cards(0, 3), since=90_000, worth=9.0)
    base = scene([node("a")], elastic, dear)
    for count, members, whole in ((1, (2,), False), (2, (1, 2), False), (3, (0, 1, 2), True)):
        plan = plan_one(base, shortage(count), POLICY, NOW)
        assert [(one.job, one.members, one.whole) for one in plan.victims] == [("e", members, whole)]
        assert plan.cost == 3 * (50 + elastic.save + elastic.restore) + count * POLICY.shrink
    one = plan_one(base, shortage(), POLICY, NOW)
    assert whys(one) == {"e": Why.SHRUNK, "dear": Why.DEARER}
    told = next(verdict.numbers for verdict in one.verdicts if verdict.job == "e")
    assert (told["members"], told["of"], told["restore"]) == (1, 3, elastic.restore)
    cheap = scene([node("a")], elastic, job("cheap", cards(0, 3), since=0))
    assert victims(plan_one(cheap, shortage(), POLICY, NOW)) == ["cheap"]


def test_an_elastic_job_that_yields_is_asked_no_second_time() -> None:
    """It saves with all its members: who comes next waits until it is back, or takes another."""
    elastic = job("e", cards(0, 0), cards(0, 1), cards(0, 2), min_members=1)
    base = scene([node("a", 3)], elastic)
    first, second = plan_all(base, [shortage(), replace(shortage(), name="y")], POLICY, NOW)
    assert [one.members for one in first.victims] == [(2,)]
    assert (second.outcome, whys(second)) == (Outcome.INFEASIBLE, {"e": Why.YIELDING})


def test_who_yields_already_is_counted() -> None:
    """No second victim while the first is on its way."""
    going = job("going", cards(0, 0), yielding=True)
    coming = Coming(Instant(NOW + 9), going.members, yielding=True)
    base = scene([node("a", 2)], going, job("other", cards(0, 1)), coming=(coming,))
    plan = plan_one(base, shortage(), POLICY, NOW)
    assert (plan.outcome, plan.wait_until, plan.victims) == (Outcome.PENDING, NOW + 9, ())
    both = plan_one(base, shortage(2), POLICY, NOW)
    assert (both.outcome, victims(both), len(both.spots)) == (Outcome.RECLAIMS, ["other"], 2)


def ending(ends: Job, at: float, since: float) -> Scene:
    """Two cards: one job that ends by itself, one that may yield and saved `since` seconds ago."""
    coming = Coming(Instant(at), ends.members)
    return scene([node("a", 2)], ends, job("t", cards(0, 1), since=since), coming=(coming,))


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [(10, Outcome.COMING), (100, Outcome.RECLAIMS)],
)
def test_what_comes_anyway_is_waited_for_when_that_is_cheaper(seconds: float, outcome: Outcome) -> None:
    """A job that ends by itself soon is not interrupted, nor is another for it (KAI#1832)."""
    ends = job("ends", cards(0, 0), priority=100)
    base = ending(ends, NOW + seconds, 100)
    plan = plan_one(base, shortage(), POLICY, NOW)
    assert plan.outcome is outcome
    assert Why.TAKEN in whys(plan).values() or plan.wait_until == NOW + seconds


def test_what_comes_too_late_is_not_waited_for() -> None:
    """After the deadline it is worth nothing, however cheap."""
    ends = job("ends", cards(0, 0), priority=100)
    base = ending(ends, NOW + 20, 9000)
    assert plan_one(base, shortage(deadline=Instant(NOW + 15)), POLICY, NOW).outcome is Outcome.RECLAIMS
    assert plan_one(base, shortage(deadline=Instant(NOW + 25)), POLICY, NOW).outcome is Outcome.COMING


def test_coming_capacity_is_the_only_way() -> None:
    """Where nobody may be asked, it is waited for, in time or not at all."""
    high = job("high", cards(0, 0), priority=200)
    base = scene([node("a", 1)], high, coming=(Coming(Instant(NOW + 500), high.members),))
    assert plan_one(base, shortage(), POLICY, NOW).outcome is Outcome.COMING


def test_a_mig_instance_is_reclaimed_at_a_legal_start() -> None:
    """The one whose going opens a start for the half yields, though another small one is cheaper."""
    small = task(profile="1g.5gb")
    blocks = job("blocks", Spot(0, (0,), 0, 4), takes=small, since=500, worth=0.1)
    beside = job("beside", Spot(0, (0,), 0, 0), takes=small, since=500, worth=0.1)
    cheap = job("cheap", Spot(0, (0,), 0, 1), takes=small, since=1, worth=0.1)
    plan = plan_one(scene([mig_node()], blocks, beside, cheap), shortage(task=task(profile="3g.20gb")), POLICY, NOW)
    assert victims(plan) == ["blocks"]
    assert plan.spots == (Spot(0, (0,), 0, 4),)


def test_cores_are_reclaimed_too() -> None:
    """A free card without free cores is of no use; who holds the cores yields."""
    base = scene([node("a", 2, cores=8)], job("hog", cards(0, 0), takes=task(cores=7)))
    assert plan_one(base, shortage(task=task(cores=4)), POLICY, NOW).outcome is Outcome.RECLAIMS


def test_shortages_are_planned_together() -> None:
    """The higher priority first; the second sees what the first took, and no card is promised twice."""
    jobs = (job("cheap", cards(0, 0), since=10), job("dear", cards(0, 1), since=1000))
    low, high = replace(shortage(), name="low", priority=50), replace(shortage(), name="high", priority=100)
    plans = plan_all(scene([node("a", 2)], *jobs), [low, high], POLICY, NOW)
    assert [(plan.shortage, victims(plan)) for plan in plans] == [("high", ["cheap"]), ("low", ["dear"])]
    assert {spot.cards for plan in plans for spot in plan.spots} == {(0,), (1,)}
    third = plan_all(scene([node("a", 2)], *jobs), [low, high, replace(low, name="z")], POLICY, NOW)[2]
    assert third.outcome is Outcome.INFEASIBLE


def test_what_is_left_of_a_victim_is_waited_for() -> None:
    """A job of two cards yields for one shortage; the next takes what is left of it, when it has gone."""
    base = scene([node("a", 2)], job("two", cards(0, 0, 1), since=10))
    first, second = plan_all(base, [shortage(), replace(shortage(), name="next")], POLICY, NOW)
    assert first.outcome is Outcome.RECLAIMS
    assert (second.outcome, second.wait_until) == (Outcome.PENDING, NOW + 10 + POLICY.yield_time)


def test_turns() -> None:
    """Shortages by priority, age, name; age raises a job's priority up to a bound."""
    order = in_turn([replace(shortage(), name=n, priority=p, since=Instant(s)) for n, p, s in
                     (("c", 1, 1.0), ("b", 2, 5.0), ("a", 2, 5.0), ("d", 2, 4.0))])  # fmt: skip
    assert [one.name for one in order] == ["d", "a", "b", "c"]
    waited = replace(job("waits", cards(0, 0)), parked=Seconds(3000.0))
    assert aged_priority(waited, POLICY) == 5
    assert aged_priority(replace(waited, parked=Seconds(1e9)), POLICY) == POLICY.most_boost


def test_policies_are_plain_numbers() -> None:
    """Without a price on waiting everything that comes is waited for."""
    ends = job("ends", cards(0, 0), priority=100)
    base = ending(ends, NOW + 1e6, 1)
    assert plan_one(base, shortage(), ReclaimPolicy(waiting=0.0), NOW).outcome is Outcome.COMING


def test_a_job_whose_priority_equals_another_job_s_is_no_victim_of_it() -> None:
    """Training of one priority never takes from its like: no endless mutual preemption (kueue#3779)."""
    base: list[Job] = [job("t", cards(0, 0), priority=5)]
    assert plan_one(scene([node("a", 1)], *base), shortage(priority=5), POLICY, NOW).outcome is Outcome.INFEASIBLE
