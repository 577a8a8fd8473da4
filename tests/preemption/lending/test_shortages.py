"""What is done about shortages beside having one job yield: waiting, parts, several victims, none too many."""

from __future__ import annotations

import pytest

from events.units import Seconds
from preemption.core.lending.case import VERDICTS_MOST
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.values import ReclaimPolicy
from tests.support.lending import LendingWorld, assert_nothing_twice, one_card, wish
from tests.support.pool import needs, node
from tests.support.training import Trainer


def message(world: LendingWorld, model: str) -> str:
    """What a model is told about its shortage."""
    shortage = world.grants[model].shortage
    return "" if shortage is None else shortage.message


def noticed(world: LendingWorld) -> list[str]:
    """Jobs whose grant has a notice."""
    return sorted(name for name, grant in world.training.items() if grant.notice is not None)


def two_models(gpus: int, jobs: int, **job: object) -> LendingWorld:
    """`llama` and `qwen` of one card each are at zero; each job has a card."""
    world = LendingWorld(node(gpus=gpus))
    for model in ("llama", "qwen"):
        world.declare(model, resources=needs(gpus=1))
    for index in range(jobs):
        world.train(f"job{index}", **job)  # type: ignore[arg-type]  # tests name real fields
    world.settle()
    world.pass_time(5)
    return world


def test_a_replica_that_drains_is_waited_for() -> None:
    """Nobody yields for what is free in a moment; when it is not, somebody does."""
    world = two_models(2, 0)
    world.train("tune")
    world.settle()
    wish(world, 1)
    world.pass_time(100)
    world.wish("llama", 0)
    world.wish("qwen", 1)
    world.decide()
    assert "which is cheaper" in message(world, "qwen")
    assert noticed(world) == []
    for _ in range(8):
        world.decide(after=5.0)  # (the cluster does nothing: the replica still drains)
    assert noticed(world) == ["tune"]


def test_two_shortages_have_a_victim_each() -> None:
    """They are planned together; neither counts on the other's."""
    world = two_models(2, 2)
    world.wish("llama", 1)
    world.wish("qwen", 1)
    world.settle()
    assert noticed(world) == ["job0", "job1"]
    world.pass_time(10)
    assert (world.live("llama"), world.live("qwen")) == (["llama-r1-0"], ["qwen-r1-0"])
    assert_nothing_twice(world)


def test_a_large_victim_serves_both() -> None:
    """What it frees beyond the first shortage is counted on for the second: nobody else yields."""
    world = LendingWorld(node(gpus=3))
    for model in ("llama", "qwen"):
        world.declare(model, resources=needs(gpus=1))
    world.train("big", resources=needs(gpus=2))
    world.train("kept", Trainer(every=1))
    world.settle()
    world.pass_time(5)
    wish(world, 1)
    first = noticed(world)
    wish(world, 1, "qwen")
    if first == ["big"]:
        assert noticed(world) == ["big"]
    world.pass_time(15)
    assert world.live("llama")
    assert world.live("qwen")
    assert_nothing_twice(world)


def test_a_wish_that_falls_lets_go_whom_it_does_not_need() -> None:
    """Of two victims one is told to go on; the other's card is used."""
    world = two_models(2, 2)
    wish(world, 2)
    assert noticed(world) == ["job0", "job1"]
    world.pass_time(1)
    wish(world, 1)
    world.pass_time(10)
    assert world.live("llama") == ["llama-r1-0"]
    assert sorted(one.state for one, _ in world.reclaims.values()) == ["continued", "parked"]


def test_a_replica_of_several_cards_waits_for_all_victims() -> None:
    """What the first one freed is set aside until the second has saved, though another model would like it."""
    world = LendingWorld(node(gpus=2))
    world.declare("wide", resources=needs(gpus=2))
    world.declare("llama", resources=needs(gpus=1), priority=50)
    world.train("quick", Trainer(saves=1.0))
    world.train("slow", Trainer(saves=20.0))
    world.settle()
    world.pass_time(10)
    wish(world, 1, "wide")
    world.pass_time(5)
    wish(world, 1, "llama")
    assert {one.job: one.state for one, _ in world.reclaims.values()} == {"quick": "claimed", "slow": "saving"}
    assert world.live("llama") == []
    assert message(world, "wide").endswith("waits for slow to save; due in 118 s")
    world.pass_time(20)
    assert world.live("wide") == ["wide-r1-0"]
    assert_nothing_twice(world)


def test_claims_that_are_of_no_use_end() -> None:
    """The second victim is lost with its node: the first one's card is given back, for two can never be had."""
    world = LendingWorld(node("n1", gpus=1), node("n2", gpus=1))
    world.declare("llama", resources=needs(gpus=1))
    world.train("tune", members=2)
    world.settle()
    world.pass_time(5)
    wish(world, 1)
    world.pass_time(1)
    world.declare("llama", resources=needs(gpus=4), revision=2)
    world.settle()
    world.pass_time(20)
    assert [one.state for one, _ in world.reclaims.values()] in (["continued"], ["resumed"])
    assert world.training["tune"].members
    assert not world.pool.lender.claims.all()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        pytest.param({"protected": True}, "job0 is protected", id="protected"),
        pytest.param({"priority": 100}, "job0 has a priority that is not lower", id="priority"),
        pytest.param(
            {"min_run": Seconds(60.0)}, "job0 has just been started and is left alone for 55 s more", id="young"
        ),
    ],
)
def test_a_model_is_told_why_nobody_yields(job: dict[str, object], words: str) -> None:
    """In a sentence, with the numbers."""
    world = two_models(1, 1, **job)
    wish(world, 1)
    assert noticed(world) == []
    assert message(world, "llama").endswith(f"no training may yield: {words}")


def test_whoever_may_yield_later_is_asked_then() -> None:
    """The clock alone brings it about."""
    world = two_models(1, 1, min_run=Seconds(60.0))
    wish(world, 1)
    world.pass_time(50)
    assert noticed(world) == []
    world.pass_time(6)
    assert noticed(world) == ["job0"]


def test_the_pool_has_a_budget_too() -> None:
    """So many victims an hour in all."""
    lending = LendingPolicy(reclaim=ReclaimPolicy(cool_down=Seconds(0.0), pool_budget=1), settle=Seconds(0.0))
    world = LendingWorld(node(gpus=2), lending=lending)
    world.declare("llama", resources=needs(gpus=1))
    for name in ("one", "two"):
        world.train(name)
    world.settle()
    world.pass_time(5)
    wish(world, 1)
    world.pass_time(10)
    wish(world, 2)
    assert noticed(world) == []
    assert "has spent its budget" in message(world, "llama")


def test_verdicts_are_bounded_and_name_who_was_taken() -> None:
    """A record of a pool with many jobs stays small."""
    world = LendingWorld(node(gpus=60, cpu=128.0))
    world.declare("llama", resources=needs(gpus=20))
    for index in range(48):
        world.train(f"job{index:02}")
    world.settle()
    wish(world, 1)
    ((case, *_),) = [[one for one, _ in world.reclaims.values()]]
    assert len(case.verdicts) == VERDICTS_MOST
    assert case.verdicts[0].why == "taken"
    assert case.verdicts[0].numbers["cost"] > 0


def test_the_ledger_tells_what_a_victim_without_a_save_lost() -> None:
    """It made twenty steps since its last checkpoint at the beginning: they are done again."""
    world = one_card(Trainer(hears=None))
    wish(world, 1)
    world.pass_time(15)
    wish(world, 0)
    world.pass_time(20)
    ((one, _),) = world.reclaims.values()
    assert one.state == "resumed"
    assert one.ledger.steps_lost == 28
    assert one.ledger.lost["since_commit"] == pytest.approx(30.0, abs=0.2)
    assert one.ledger.stages["stop"] == pytest.approx(1.0, abs=0.2)
    assert world.pool.counts.gpu_seconds_lost == pytest.approx(sum(one.ledger.lost.values()))


def test_a_job_that_waits_is_told_anew_when_what_it_waits_for_changes() -> None:
    """Before any node has said what it has, a job waits for that; later for something else, and the grant says so."""
    world = LendingWorld()
    world.train("tune", resources=needs(gpus=4))
    world.settle()
    assert world.training["tune"].message == "no node has reported what it has yet"
    world.set_node(node(gpus=1))
    world.settle()
    assert "no node has reported" not in world.training["tune"].message
    told = world.training["tune"]
    world.set_node(node(gpus=2))  # only a number is another now, which is no news
    world.settle()
    assert world.training["tune"] is told


def test_a_budget_that_forbids_is_respected_until_it_does_not() -> None:
    """A trainer that says nothing and may not be ended by force is told to go on, and not asked again; the model is
    short, and gets the card as soon as the budget allows it."""
    world = one_card(Trainer(sdk=False, hears=None, saves=None))
    tune = world.adapter.jobs["tune"]
    tune.budget = "its budget forbids it"
    wish(world, 1)
    world.pass_time(600)
    assert world.states("tune")[-2:] == ["cancelling", "continued"]
    assert [words for _, words in tune.signals] == ["notice"]
    assert noticed(world) == []
    assert world.grants["llama"].shortage is not None
    assert len(world.reclaims) == 1
    tune.budget = tune.blocked = ""
    world.pass_time(200)
    assert world.grants["llama"].replicas
    assert_nothing_twice(world)
