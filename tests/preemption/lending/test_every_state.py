"""A controller that is killed in each state that an attempt can be in; who waits longest is served in the end."""

from __future__ import annotations

import pytest

from preemption.core.attempts.states import ENDS, State
from tests.support.lending import LendingWorld, assert_nothing_twice
from tests.support.pool import needs, node
from tests.support.training import Trainer

STORIES: tuple[tuple[Trainer, float], ...] = (
    (Trainer(every=10, exits=3.0), 20.0),
    (Trainer(every=10), 700.0),  # the model stays so long that the job has waited for an age
    (Trainer(every=10, saves=10.0), 2.0),  # gone while it saves
    (Trainer(hears=None, ends=None), 200.0),
    (Trainer(hears=None, steps=25), 60.0),  # finishes by itself
    (Trainer(empties=90.0), 250.0),  # something is left on the card
    (Trainer(hears=None, ends=None, dies=None), 250.0),  # cannot be killed
    (Trainer(every=10, spoils=True), 30.0),  # cannot load its newest checkpoint
)
"""A trainer, and for how long the model is wished for."""


def told(trainer: Trainer, busy: float, *, dies: bool) -> tuple[LendingWorld, set[str]]:
    """The story; if the controller `dies`, then right after each record of a state that is new: in which states."""
    world, died = LendingWorld(node(gpus=1)), set[str]()
    world.train("tune", trainer)
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(20, every=1.0)
    for replicas, lasts in ((1, busy), (0, 100.0)):
        world.wish("llama", replicas)
        end = world.now + lasts
        while world.now < end - 1e-9:
            died |= decided(world, died, dies=dies)
            world.now = round(world.now + (1.0 if end - world.now > lasts - 30.0 else 10.0), 6)
            world.obey_all()
    return world, died


def decided(world: LendingWorld, known: set[str], *, dies: bool) -> set[str]:
    """Decide until nothing more happens; the states in which the controller died."""
    died = set[str]()
    for _ in range(60):
        plan = world.decide()
        world.obey_all()
        assert_nothing_twice(world)
        news = {one.state for one in plan.lent.reclaims} - ENDS - known - died if dies else set()
        if news:
            died |= news
            world.restart()
            continue
        rests = not (plan.grants or plan.lent.grants or plan.lent.reclaims)
        if rests and (plan.again_at is None or plan.again_at > world.now):
            return died
    raise AssertionError("the pool does not come to rest")


def test_the_next_leader_finishes_what_it_finds_in_any_state() -> None:
    """In each state of the table. It comes to the same end, and nobody is told anything twice."""
    everywhere = set[str]()
    for trainer, busy in STORIES:
        whole, _ = told(trainer, busy, dies=False)
        broken, died = told(trainer, busy, dies=True)
        everywhere |= died
        ends = [[one.state for one, _ in world.reclaims.values()] for world in (whole, broken)]
        assert ends[0] == ends[1], trainer
        assert whole.adapter.jobs["tune"].signals == broken.adapter.jobs["tune"].signals, trainer
        assert whole.live("llama") == broken.live("llama")
    assert everywhere == set(State) - ENDS


def test_who_waits_long_enough_is_served_before_higher_priorities() -> None:
    """Jobs of a higher priority come without end; each ten minutes count as one more for who waits."""
    world = LendingWorld(node(gpus=1))
    world.train("first", Trainer(steps=30), priority=2)
    world.settle()
    world.train("low")
    for index in range(80):
        world.train(f"high{index}", Trainer(steps=30), priority=2)
        world.pass_time(25, every=5.0)
        if world.training["low"].members:
            break
    assert 1200 <= world.now - world.began <= 1500


def test_however_often_it_yields_before_it_is_back_one_attempt_stays_open() -> None:
    """A job takes longer to load than the cards are its own: attempts do not pile up, nor is time to come back counted
    in each of them."""
    world = LendingWorld(node(gpus=1))
    world.train("tune", Trainer(every=10))
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(60, every=1.0)
    world.adapter.change("tune", load=1e9)
    for _ in range(8):
        world.wish("llama", 1)
        world.pass_time(100, every=5.0)
        world.wish("llama", 0)
        world.pass_time(1000, every=20.0)
    every = [one for one, _ in world.reclaims.values()]
    assert len(every) == 8
    assert [one.state for one in every if one.ended] == [State.FAILED] * 7
    restores = sum(one.ledger.stages.get("restore", 0.0) for one in every)
    assert restores <= world.now - world.began


@pytest.mark.parametrize(
    ("trainer", "told", "state"),
    [
        (Trainer(hears=None, ends=None), 3.0, State.NOTIFIED),
        (Trainer(saves=None, ends=None), 20.0, State.SAVING),
        (Trainer(hears=None, ends=None), 15.0, State.STOPPING),
    ],
)
def test_the_next_leaders_clock_may_be_behind(trainer: Trainer, told: float, state: State) -> None:
    """By two hours: deadlines that were set by the other clock are not waited for, and no story goes back in time."""
    world = LendingWorld(node(gpus=1))
    world.train("tune", trainer)
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(60, every=1.0)
    world.wish("llama", 1)
    world.pass_time(told, every=0.5)
    assert world.states("tune")[-1] == state
    world.now -= 7200
    world.restart()
    world.pass_time(200, every=1.0)
    assert world.live("llama") == ["llama-r1-0"]
    for one, _ in world.reclaims.values():
        times = [one.shortage_since, *(change.at for change in one.history), one.since]
        assert times == sorted(times), "what was before is before"
