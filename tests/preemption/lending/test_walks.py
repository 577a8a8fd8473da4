"""Random walks with late, lost and repeated words, lost nodes, and an allocator that is killed between any two writes.

What is checked at each step stands in `tests.support.lending_walk`: no card is given twice; nobody is told to end
without a notice that is on record; no claim without its attempt; records go on where they were.
"""

from __future__ import annotations

import pytest

from tests.support.lending import assert_nothing_twice, one_card, wish
from tests.support.lending_walk import Walk
from tests.support.training import Trainer


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_nothing_is_given_twice_and_all_comes_to_rest(seed: int) -> None:
    """A hundred steps of anything; then calm: every attempt ends and nothing stays set aside."""
    walk = Walk(seed)
    for _ in range(100):
        walk.step()
    walk.calm()
    walk.check_rest()


@pytest.mark.parametrize(
    "trainer",
    [
        pytest.param(Trainer(), id="saves"),
        pytest.param(Trainer(hears=None, ends=None), id="must-be-killed"),
        pytest.param(Trainer(saves=None), id="hangs"),
        pytest.param(Trainer(hears=None, steps=30), id="finishes"),
        pytest.param(Trainer(empties=70.0), id="leaves-something-on-the-card"),
    ],
)
def test_a_controller_that_dies_at_any_moment_is_gone_on_from(trainer: Trainer) -> None:
    """Another leader every second: it ends as without, and the trainer is told each thing once."""
    whole = one_card(trainer)
    broken = one_card(trainer)
    for world in (whole, broken):
        wish(world, 1)
    for _ in range(200):
        for world in (whole, broken):
            world.pass_time(1, every=0.5)
        broken.restart()
        broken.settle()
        assert_nothing_twice(broken)
    assert broken.adapter.jobs["tune"].signals == whole.adapter.jobs["tune"].signals
    assert broken.live("llama") == whole.live("llama") == ["llama-r1-0"]
    for world in (whole, broken):
        wish(world, 0)
        world.pass_time(30)
    assert [one.state for one, _ in broken.reclaims.values()] == [one.state for one, _ in whole.reclaims.values()]
    assert broken.adapter.jobs["tune"].signals == whole.adapter.jobs["tune"].signals


def test_a_leader_that_dies_between_the_record_and_the_grant() -> None:
    """The attempt is on record and nothing was sent: the next leader sends the same notice."""
    world = one_card()
    world.wish("llama", 1)
    plan = world.pool.decide(world.instant)
    world.record_reclaims(plan)
    (attempt,) = world.reclaims
    assert world.adapter.jobs["tune"].signals == []
    world.restart()
    world.settle()
    world.pass_time(6)
    assert set(world.reclaims) == {attempt}
    assert world.adapter.jobs["tune"].signals == [(1, "notice")]
    assert world.live("llama") == ["llama-r1-0"]
