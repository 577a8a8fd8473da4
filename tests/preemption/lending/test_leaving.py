"""Jobs that wait in vain and are deleted, paused or cancelled: nothing changes for the others, so nothing is decided
anew; and those who had kept something free leave it."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from preemption.core.lending.deciding import Decider
from preemption.core.lending.lists import Lists
from tests.support.lending import LendingWorld, assert_nothing_twice
from tests.support.pool import needs, node
from tests.support.training import Trainer


def decisions(world: LendingWorld) -> int:
    """How often it is decided who starts and who yields while nothing else happens but one look."""
    with patch.object(Decider, "_decide", autospec=True, side_effect=Decider._decide) as decided:
        world.settle()
    return decided.call_count


def test_deleting_what_waits_in_vain_is_cheap() -> None:
    """Whatever else waits; and it is gone, with its grant, as any other."""
    world = LendingWorld(node(gpus=1))
    for index in range(5):
        world.train(f"t{index}")
    world.settle()
    running = next(name for name, grant in world.training.items() if grant.members)
    waiting = [name for name in world.jobs if name != running]
    for name, change in zip(waiting, ("deleted", "paused", "cancelled"), strict=False):
        world.change_job(name, **{change: True})
        assert decisions(world) == 0
        assert world.training[name].reasons == (change,)
    world.change_job(waiting[1], paused=False)
    assert decisions(world) == 1
    world.change_job(running, deleted=True)
    world.pass_time(10)
    assert world.training[waiting[1]].members or world.training[waiting[3]].members


def test_a_gang_that_was_kept_a_place_for_leaves_it() -> None:
    """It has waited so long that its node is kept free; once it is deleted a smaller job starts there at once."""
    world = LendingWorld(node(gpus=2))
    world.train("one", Trainer(), protected=True)
    world.settle()
    world.train("gang", members=2)
    world.pass_time(700, every=10.0)
    world.train("small")
    world.settle()
    assert not world.training["small"].members
    world.change_job("gang", deleted=True)
    world.settle()
    assert world.training["small"].members


def test_a_job_that_others_yield_for_is_given_up() -> None:
    """Who was told to yield for it goes on."""
    world = LendingWorld(node(gpus=1))
    world.train("low", Trainer(every=10))
    world.settle()
    world.pass_time(70)
    world.train("high", priority=10)
    world.pass_time(1)
    assert world.training["low"].notice is not None
    world.change_job("high", deleted=True)
    world.pass_time(10)
    assert world.training["low"].members
    assert world.adapter.jobs["low"].signals[-1] == (1, "withdrawn")


def test_a_gang_counts_on_its_victim_and_on_what_leaves_anyway() -> None:
    """A gang of two takes one job's card, and the other card is that of a job which a person has deleted: the victim is
    told once, not again and again in vain."""
    world = LendingWorld(node(gpus=2))
    for name in ("leaves", "yields"):
        world.train(name, Trainer(every=10))
    world.settle()
    world.pass_time(70)
    world.change_job("leaves", deleted=True)
    world.train("gang", members=2, priority=5)
    world.settle()
    world.pass_time(10)
    assert len(world.training["gang"].members) == 2
    assert world.adapter.jobs["yields"].signals == [(1, "notice")]


@pytest.mark.parametrize("seed", range(4))
def test_it_is_decided_as_if_all_were_looked_at_each_time(seed: int) -> None:
    """The same story, once with every change looked at in full: the same grants at each moment."""
    quick, whole = story(seed), None
    with patch.object(Lists, "_in_vain", lambda *_: False):
        whole = story(seed)
    assert quick == whole


def story(seed: int) -> list[list[tuple[str, int, tuple[str, ...]]]]:
    """What is granted after each change of a random story of jobs and a model."""
    rng = random.Random(seed)
    world = LendingWorld(node("a", gpus=2), node("b", gpus=1))
    world.declare("llama", resources=needs(gpus=1))
    names: list[str] = []
    told = []
    for step in range(40):
        match rng.choice(("train", "train", "delete", "pause", "wish", "time")):
            case "train":
                names.append(f"t{step}")
                members = rng.choice((1, 1, 2))
                world.train(names[-1], members=members, priority=rng.choice((0, 0, 5)))
            case "wish":
                world.wish("llama", rng.randrange(3))
            case "time":
                world.pass_time(rng.choice((5.0, 60.0, 400.0)), every=5.0)
            case what if names:
                name = rng.choice(names)
                stopped = not world.jobs[name].paused if what == "pause" else True
                world.change_job(name, **{"paused" if what == "pause" else "deleted": stopped})
            case _:
                pass
        world.settle()
        assert_nothing_twice(world)
        told.append([(name, grant.run, grant.reasons if not grant.members else ()) for name, grant in
                     sorted(world.training.items())])  # fmt: skip
    return told
