"""Training comes back when there is really room: a load that comes and goes does not start and stop it for ever."""

from __future__ import annotations

from itertools import pairwise

import pytest

from events.units import Instant, Seconds
from preemption.core.lending.policy import LendingPolicy
from tests.support.lending import LendingWorld, assert_nothing_twice, wish
from tests.support.pool import needs, node
from tests.support.training import Trainer

HOUR = 3600.0


def sawtooth(world: LendingWorld, period: float, busy: float, seconds: float) -> float:
    """The model is wished for `busy` seconds of each period; how long it had to wait in all."""
    waited, until = 0.0, world.now + seconds
    while world.now < until:
        for replicas, lasts in ((1, busy), (0, period - busy)):
            world.wish("llama", replicas)
            world.settle()
            end = world.now + lasts
            while world.now < end:
                world.pass_time(min(1.0, end - world.now), every=1.0)
                waited += bool(replicas and not world.live("llama"))
        assert_nothing_twice(world)
    return waited


def one_of_each(budget: int = 6, lending: LendingPolicy | None = None) -> LendingWorld:
    world = LendingWorld(node(gpus=1), lending=lending)
    world.train("tune", Trainer(), budget_per_hour=budget)
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(60, every=1.0)
    return world


def preemptions(world: LendingWorld) -> list[float]:
    """When the job had to yield."""
    return sorted(world.pool.lender.seats["tune"].yielded)


@pytest.mark.parametrize(("period", "most", "steps"), [(20.0, 4, 100), (70.0, 5, 150), (300.0, 6, 1000)])
def test_a_sawtooth_does_not_thrash(period: float, most: int, steps: int) -> None:
    """However long the period is, an hour of it has few preemptions. Where what the model leaves is long enough to be
    worth a restart, it is used, as often as the job's budget allows."""
    world = one_of_each()
    waited = sawtooth(world, period, period / 4, HOUR)
    times = preemptions(world)
    assert 1 <= len(times) <= most
    assert waited <= 10 * len(times)
    checkpoint = world.adapter.jobs["tune"].checkpoint
    assert checkpoint is not None
    assert checkpoint.step >= steps
    gaps = [after - before for before, after in pairwise(times)]
    assert all(gap >= world.policy.lending.reclaim.cool_down for gap in gaps)
    starts = world.adapter.jobs["tune"].run
    assert starts is not None
    assert starts.grant.run <= len(times) + 2  # (a yield of more than an hour ago is forgotten)


def test_without_hysteresis_it_would() -> None:
    """The same load on a policy that gives back at once, and that only the budget holds: what the rule is for."""
    eager = LendingPolicy(patience=0.0)
    world = one_of_each(budget=30, lending=eager)
    sawtooth(world, 70.0, 20.0, HOUR)
    calm = one_of_each(budget=30)
    sawtooth(calm, 70.0, 20.0, HOUR)
    assert len(preemptions(world)) >= 3 * len(preemptions(calm))


def test_a_budget_is_never_exceeded() -> None:
    """Not within any hour, whatever the load does; and the card is not held by who could not give it back, so the model
    does not wait for the hour to end."""
    world = one_of_each(budget=2, lending=LendingPolicy(patience=0.0))
    waited = sawtooth(world, 130.0, 20.0, HOUR - 300.0)
    assert len(preemptions(world)) == 2
    assert world.pool.counts.thrash == 1
    assert waited < 20


def test_a_single_visit_costs_one_preemption_and_training_is_soon_back() -> None:
    """After the first time in an hour it is waited only shortly."""
    world = one_of_each()
    sawtooth(world, 120.0, 20.0, 120.0)
    job = world.adapter.jobs["tune"]
    assert job.run is not None
    assert job.run.grant.run == 2
    assert job.run.begins_at > 0
    assert world.pool.counts.reclaims_resumed == 1


@pytest.mark.parametrize(
    ("yielded", "waited", "usual", "settles"),
    [
        (0, 0.0, None, 0.0), (1, 0.0, None, 5.0), (2, 0.0, None, 20.0), (3, 0.0, None, 80.0), (4, 0.0, None, 136.0),
        (9, 0.0, None, 136.0), (4, 600.0, None, 68.0), (4, 1200.0, None, 34.0), (3, 0.0, 40.0, 60.0),
        (3, 0.0, 100.0, 136.0), (3, 0.0, 137.0, 5.0), (3, 600.0, 100.0, 5.0), (3, 0.0, 1.0, 1.5),
    ],
)  # fmt: skip
def test_how_long_room_must_last(yielded: int, waited: float, usual: float | None, settles: float) -> None:
    """A job whose save and restore take 34 s: it is never waited longer than four times that; what is known of such
    room goes before counting yields; who has waited long waits less."""
    known = None if usual is None else Seconds(usual)
    assert LendingPolicy().settles(yielded, Seconds(waited), Seconds(34.0), known) == settles


@pytest.mark.parametrize("visits", [2, 3, 4, 5])
def test_after_a_burst_a_card_is_not_idle_for_long(visits: int) -> None:
    """A model that comes a few times in short order, and then no more: training is back after a few times what it has
    shown that giving the card back costs (7 s of standing still, and 9 s that the model waits), not after 20 min."""
    world = one_of_each()
    sawtooth(world, 70.0, 20.0, 70.0 * visits)
    gone = world.now - 50.0  # the model's last second
    while not world.training["tune"].members:
        world.pass_time(1.0, every=1.0)
    assert world.now - gone <= world.policy.lending.patience * (7.0 + 9.0) + 5.0


def test_who_has_spent_its_budget_leaves_the_card_to_another() -> None:
    """Of two jobs the one that could not give the card back gets it last, though it has waited longer; and alone it
    gets it only when the room has lasted longer than any did lately."""
    world = one_of_each(budget=1)
    wish(world, 1)
    world.pass_time(20, every=1.0)
    world.train("other")
    world.settle()
    wish(world, 0)
    world.pass_time(300, every=1.0)
    assert world.training["other"].members
    assert not world.training["tune"].members
    wish(world, 1)
    world.pass_time(20, every=1.0)
    assert world.live("llama")
    world.change_job("other", paused=True)
    wish(world, 0)
    world.pass_time(60, every=1.0)
    assert world.training["tune"].reasons == ("budget_spent",)
    world.pass_time(80, every=1.0)
    assert world.training["tune"].members


def test_who_has_waited_longest_comes_back_first() -> None:
    """Of two jobs that yielded, the older one gets the first card that is free."""
    world = LendingWorld(node(gpus=2))
    world.train("first")
    world.train("second")
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(10)
    for replicas in (1, 2):
        world.wish("llama", replicas)
        world.settle()
        world.pass_time(20)
    yielded = {name: seat.yielded[0] for name, seat in world.pool.lender.seats.items()}
    earlier = min(yielded, key=lambda name: yielded[name])
    world.wish("llama", 1)
    world.settle()
    world.pass_time(10)
    running = [name for name, grant in world.training.items() if grant.members]
    assert running == [earlier]


def test_age_goes_before_equal_priority_and_keeps_its_place_free() -> None:
    """A gang that waits for two cards gets them although single jobs keep coming: after ten minutes they are kept."""
    world = LendingWorld(node(gpus=2))
    world.train("one", Trainer(steps=30))
    world.settle()
    world.train("gang", members=2)
    world.settle()
    for index in range(60):
        world.train(f"small{index}", Trainer(steps=30))
        world.pass_time(20, every=1.0)
        if world.training["gang"].members:
            break
    assert 600 <= world.now - world.began <= 1000
    assert world.instant >= Instant(0.0)


def test_nothing_is_lent_while_a_model_waits() -> None:
    """A free card that a model of two cards waits for is not lent to a job of one."""
    world = LendingWorld(node(gpus=2))
    world.train("kept", protected=True)
    world.settle()
    world.declare("llama", resources=needs(gpus=2))
    world.wish("llama", 1)
    world.settle()
    world.train("late")
    world.settle()
    assert not world.training["late"].members
    assert world.training["late"].reasons == ("waits_for_higher_priority",)
    world.wish("llama", 0)
    world.settle()
    assert world.training["late"].members


def test_training_never_takes_the_reserve() -> None:
    """Two of ten cards stay free for models; a node of one card has no reserve."""
    world = LendingWorld(node("big", gpus=10), node("small", gpus=1))
    for index in range(11):
        world.train(f"job{index:02}")
    world.settle()
    lent = [one.placement.node for grant in world.training.values() for one in grant.members]
    assert (lent.count("big"), lent.count("small")) == (8, 1)
