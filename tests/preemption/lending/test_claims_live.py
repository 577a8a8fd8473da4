"""Claims live as long as their wish: not less, however long that takes; and not a moment longer."""

from __future__ import annotations

import pytest

from events.types.replicas import ReplicaState
from events.types.training import NoticeMode
from events.units import Seconds
from preemption.core.training import CheckpointPolicy
from tests.support.lending import LendingWorld, assert_nothing_twice, wish
from tests.support.pool import needs, node
from tests.support.training import Trainer

PATIENT = CheckpointPolicy(ack=Seconds(10.0), save=Seconds(300.0))


@pytest.fixture
def world() -> LendingWorld:
    """A model of two cards needs those of two jobs: one has gone, and its card is set aside; the other saves for long.
    A third job waits for a card, and a model of lower priority too."""
    made = LendingWorld(node(gpus=2))
    made.declare("wide", resources=needs(gpus=2), priority=100)
    made.declare("small", resources=needs(gpus=1), priority=50)
    made.train("quick", Trainer(saves=1.0))
    made.train("slow", Trainer(saves=250.0), checkpoint=PATIENT)
    made.settle()
    made.pass_time(10)
    wish(made, 1, "wide")
    made.train("waits")
    made.pass_time(8)
    wish(made, 1, "small")
    assert claimed(made) == ["quick"]
    return made


def claimed(world: LendingWorld) -> list[str]:
    """Whose cards are set aside."""
    return sorted(case.attempt.job for seat in world.pool.lender.seats.values() for case in seat.open.values()
                  if case.id in world.pool.lender.claims.all())  # fmt: skip


def test_it_outlives_its_own_bound_while_the_wish_stands(world: LendingWorld) -> None:
    """Four minutes, where a minute without a word would end it; nobody else gets the card, also under a new leader."""
    for _ in range(24):
        world.pass_time(10, every=5.0)
        world.restart()
        world.settle()
        assert claimed(world) == ["quick"]
        assert not world.live("small")
        assert not any(world.training[name].members for name in ("waits", "quick"))
    world.pass_time(30, every=1.0)
    assert len(world.live("wide")) == 1
    assert_nothing_twice(world)


@pytest.mark.parametrize("what", ["nobody wishes", "declared anew", "deleted", "asks for what is not there"])
def test_it_ends_with_its_wish_at_once(world: LendingWorld, what: str) -> None:
    """Then others have the card, and who saves for it is told to go on."""
    match what:
        case "nobody wishes":
            world.wish("wide", 0)
        case "declared anew":
            world.declare("wide", uid="wide-2")
        case "deleted":
            world.declare("wide", deleted=True)
        case _:
            world.declare("wide", resources=needs(gpus=4), revision=2)
    for _ in range(3):  # (what ends is free in the next decision)
        world.decide()
    assert claimed(world) == []
    assert len(world.live("small")) == 1
    notice = world.training["slow"].notice
    assert notice is not None
    assert notice.mode is NoticeMode.WITHDRAWN
    assert_nothing_twice(world)


def test_it_ends_while_starts_back_off() -> None:
    """One replica of two fails to start: nothing is kept for the other meanwhile."""
    world = LendingWorld(node(gpus=4))
    world.declare("wide", resources=needs(gpus=2), priority=100)
    world.train("quick", Trainer(saves=1.0))
    world.train("slow", Trainer(saves=250.0), checkpoint=PATIENT)
    world.settle()
    world.pass_time(10)
    wish(world, 2, "wide")
    world.pass_time(8)
    assert claimed(world) == ["quick"]
    world.see("wide", (world.live("wide")[0], ReplicaState.STARTING), failures=3, retry_in=600.0)
    world.decide()
    assert claimed(world) == []
    assert_nothing_twice(world)
