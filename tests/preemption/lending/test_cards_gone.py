"""A job whose node or cards vanish: it is told where it still lives, and what it lost is accounted for."""

from __future__ import annotations

import pytest

from preemption.core.lending.case import Cause
from tests.support.lending import LendingWorld, change, check, one_card, wish
from tests.support.pool import node
from tests.support.training import Trainer


def test_it_saves_and_comes_back() -> None:
    """The card is gone, its process is not: it has its notice and its times; nothing waits for its cards."""
    world = one_card()
    world.set_node(node(gpus=0))
    world.settle()
    world.pass_time(20)
    world.set_node(node(gpus=1))
    world.settle()
    world.pass_time(5)
    check(
        world,
        """
          20.0 tune: selected for want of its cards
          20.0 tune run 1 has n1-gpu-0; save_and_exit (cards_gone)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: parked (shortage_gone)
          25.0 tune run 1 has nothing (lacks_room)
          40.0 tune: resuming (capacity_back)
          40.0 tune run 2 has n1-gpu-0 (runs)
          43.0 tune: resumed (step_seen)
        """,
    )
    ((one, _),) = world.reclaims.values()
    assert one.cause == Cause.CARDS_GONE
    assert one.ledger.steps_lost == 0
    assert not world.pool.lender.seats["tune"].yielded


def test_they_are_back_before_it_has_saved() -> None:
    """It is told to go on."""
    world = one_card()
    world.set_node(node(gpus=0))
    world.settle()
    world.pass_time(1)
    world.set_node(node(gpus=1))
    world.settle()
    world.pass_time(5)
    assert world.adapter.jobs["tune"].signals == [(1, "notice"), (1, "withdrawn")]
    assert world.training["tune"].run == 1
    assert world.training["tune"].members


@pytest.mark.parametrize("sdk", [True, False], ids=["told in vain", "without the SDK"])
def test_nothing_is_heard_of_it(sdk: bool) -> None:
    """The whole machine is gone: everything that it can be told is told, nobody waits for ever, and what was trained
    since the last checkpoint is accounted for under that cause."""
    world = one_card(Trainer(sdk=sdk, every=17, hears=None, ends=None, dies=None))
    world.set_node(node(gpus=0))
    world.settle()
    world.pass_time(200, every=1.0)
    ((one, _),) = world.reclaims.values()
    assert [step.state for step in one.history] == ["notified", "stopping", "killing", "lost", "parked"]
    assert one.ledger.lost[Cause.CARDS_GONE] > 0
    assert "since_commit" not in one.ledger.lost
    assert not world.training["tune"].members


def test_a_pause_meanwhile() -> None:
    """It is told once, and stays paused."""
    world = one_card()
    world.set_node(node(gpus=0))
    world.settle()
    change(world, paused=True)
    world.pass_time(10)
    world.set_node(node(gpus=1))
    world.settle()
    world.pass_time(10)
    assert world.adapter.jobs["tune"].signals == [(1, "notice")]
    assert not world.training["tune"].members


def test_a_member_of_several() -> None:
    """A gang that loses one card saves with all members, and is started again elsewhere."""
    world = LendingWorld(node("n1", gpus=1), node("n2", gpus=1), node("n3", gpus=1))
    world.train("tune", members=2)
    world.settle()
    world.pass_time(10)
    lost = world.training["tune"].members[1].placement.node
    world.set_node(node(lost, gpus=0))
    world.settle()
    world.pass_time(10)
    assert world.adapter.jobs["tune"].signals == [(1, "notice")]
    nodes = {one.placement.node for one in world.training["tune"].members}
    assert nodes == {"n1", "n2", "n3"} - {lost}


def test_lost_while_it_yields() -> None:
    """An attempt that goes on already stays what it is."""
    world = one_card()
    wish(world, 1)
    world.set_node(node(gpus=0))
    world.settle()
    world.pass_time(10)
    assert [one.cause for one, _ in world.reclaims.values()] == [Cause.SHORTAGE]
