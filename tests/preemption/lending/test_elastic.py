"""Elastic jobs give up some of their members and go on with the others; they grow back when that pays."""

from __future__ import annotations

import pytest

from preemption.core.lending.case import Cause
from tests.support.lending import LendingWorld, assert_nothing_twice, change, check, wish
from tests.support.pool import needs, node
from tests.support.training import Trainer


def elastic(gpus: int = 2, *, least: int = 1, model: int = 1, trainer: Trainer | None = None) -> LendingWorld:
    """A job with a member on each of the cards, which could go on with `least`, runs; the model is at zero."""
    world = LendingWorld(node(gpus=gpus))
    world.train("tune", trainer or Trainer(every=10), members=gpus, min_members=least)
    world.declare("llama", resources=needs(gpus=model))
    world.settle()
    world.pass_time(20)
    world.story.clear()
    return world


def members(world: LendingWorld) -> int:
    """How many members really run."""
    run = world.adapter.jobs["tune"].run
    return 0 if run is None or run.ended_at is not None else len(run.grant.members)


def test_it_shrinks_and_grows_back() -> None:
    """All save, one card goes to the model, and the job goes on at once with the other. When the model has gone, it
    waits until what lies idle has cost as much as another restart, which it has shown to take 7 s, and then is started
    again with both."""
    world = elastic()
    wish(world, 1)
    world.pass_time(20)
    wish(world, 0)
    world.pass_time(50)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0 n1-gpu-1; save_and_exit (shrinks)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0 n1-gpu-1; save_and_exit (waits_until_empty)
          25.0 tune: claimed (cards_empty)
          25.0 llama has llama-r1-0
          25.0 tune run 2 has n1-gpu-0 (runs)
          25.0 tune: parked (bound)
          25.0 tune: resuming (capacity_back)
          28.0 tune: resumed (step_seen)
          40.0 llama has llama-r1-0 drains
          40.0 llama has nothing
          47.0 tune: selected for nobody
          47.0 tune run 2 has n1-gpu-0; save_and_exit (grows)
          47.0 tune: notified (sent)
          47.2 tune: saving (ack)
          51.2 tune: saved (checkpointed)
          51.5 tune: draining (exit_saved)
          51.5 tune run 2 has n1-gpu-0; save_and_exit (waits_until_empty)
          52.0 tune: claimed (cards_empty)
          52.0 tune run 3 has n1-gpu-0 n1-gpu-1 (runs)
          52.0 tune: parked (shortage_gone)
          52.0 tune: resuming (capacity_back)
          55.0 tune: resumed (step_seen)
        """,
    )
    (shrunk, grown) = (one for one, _ in world.reclaims.values())
    assert (shrunk.cause, grown.cause) == (Cause.SHORTAGE, Cause.GROWS)
    assert (shrunk.cards, grown.cards) == (("n1/n1-gpu-1",), ())
    assert shrunk.message == "model llama needs 1 of its 2 members' cards"
    assert shrunk.ledger.lost["save"] == pytest.approx(8.0)  # both stood still
    assert shrunk.ledger.steps_lost == 0
    verdict = shrunk.verdicts[0]
    assert (verdict.why, verdict.numbers["members"], verdict.numbers["of"]) == ("shrunk", 1, 2)


def test_who_comes_back_slowly_grows_late() -> None:
    """One that needs half a minute to load waits for longer than one that needs 2 s; and it is known to be slow from
    what was seen of it, not assumed: also by the next leader, to whom the log alone tells it."""
    grown = {}
    for load in (2.0, 30.0):
        world = elastic(trainer=Trainer(every=10, load=load))
        wish(world, 1)
        world.pass_time(60)
        wish(world, 0)
        began = world.now
        world.restart()
        while world.adapter.jobs["tune"].signals[-1] != (2, "notice"):
            world.pass_time(1, every=0.5)
        grown[load] = world.now - began
    assert grown[2.0] == pytest.approx(7.0, abs=1.0)
    assert grown[30.0] == pytest.approx(35.0, abs=1.0)


def test_the_number_that_is_needed() -> None:
    """Of four cards the model takes one, then another: each time all but those go on. Never fewer than declared."""
    world = elastic(4, least=2)
    for replicas, left in ((1, 3), (2, 2), (3, 0)):
        wish(world, replicas)
        world.pass_time(100)  # also beyond the cool-down
        assert (len(world.live("llama")), members(world)) == (replicas, left)
        assert_nothing_twice(world)


def test_a_model_that_needs_more_than_it_can_spare() -> None:
    """It yields whole."""
    world = elastic(2, model=2)
    wish(world, 1)
    world.pass_time(10)
    (one,) = (one for one, _ in world.reclaims.values())
    assert len(one.members) == 2
    assert (members(world), world.live("llama")) == (0, ["llama-r1-0"])
    assert one.verdicts[0].why == "taken"


def test_it_starts_with_what_there_is() -> None:
    """Two of three members have room: it runs with those, and with the third as soon as that pays."""
    world = LendingWorld(node(gpus=3))
    world.train("other", Trainer(steps=30))
    world.settle()
    world.train("tune", Trainer(every=10), members=3, min_members=2)
    world.settle()
    world.pass_time(20)
    assert members(world) == 2
    world.pass_time(120)
    assert (members(world), world.training["tune"].run) == (3, 2)
    assert world.adapter.jobs["tune"].signals == [(1, "notice")]
    assert not world.pool.lender.seats["tune"].yielded


def test_fewer_than_it_needs_do_not_start() -> None:
    """One card is not two."""
    world = LendingWorld(node(gpus=1))
    world.train("tune", members=3, min_members=2)
    world.settle()
    assert not world.training["tune"].members


def test_the_model_is_gone_before_it_has_left() -> None:
    """The notice is withdrawn from all, and all go on."""
    world = elastic()
    wish(world, 1)
    world.pass_time(1)
    wish(world, 0)
    world.pass_time(5)
    assert (members(world), world.training["tune"].run) == (2, 1)
    assert world.adapter.jobs["tune"].signals == [(1, "notice"), (1, "withdrawn")]


def test_the_model_is_gone_when_it_has_left() -> None:
    """Nothing is set aside any more, and it comes back with all members."""
    world = elastic()
    wish(world, 1)
    world.pass_time(4.6)
    wish(world, 0)
    world.pass_time(10)
    assert (members(world), world.training["tune"].run) == (2, 2)


@pytest.mark.parametrize("what", ["paused", "cancelled", "deleted"])
def test_a_person_ends_it_while_it_shrinks(what: str) -> None:
    """It does not go on with the rest; its cards are free."""
    world = elastic()
    wish(world, 1)
    world.pass_time(2)
    change(world, **{what: True})
    world.pass_time(10)
    assert (members(world), world.live("llama")) == (0, ["llama-r1-0"])
    assert not any(name.startswith(("training/", "claim/")) for name in world.pool.ledger.holdings)


def test_paused_while_the_claim_stands() -> None:
    """The next run is told, although what the last one gave up is still set aside."""
    world = LendingWorld(node(gpus=3))
    world.train("tune", Trainer(every=10), members=2, min_members=1)
    world.train("slow", Trainer(every=2, saves=1.0))
    world.declare("llama", resources=needs(gpus=2))
    world.settle()
    world.pass_time(20)
    world.adapter.change("slow", saves=40.0)
    wish(world, 1)
    world.pass_time(10)
    assert (world.states("tune")[-1], members(world)) == ("claimed", 1)
    change(world, paused=True)
    world.pass_time(10)
    assert (world.states("tune")[-1], members(world)) == ("parked", 0)
    world.pass_time(40)
    assert world.live("llama") == ["llama-r1-0"]
    assert not any(name.startswith("claim/") for name in world.pool.ledger.holdings)


def test_growing_is_called_off_when_the_room_is_gone() -> None:
    """A model takes the free card while the job saves in order to grow: it is told to go on."""
    world = elastic(trainer=Trainer(every=10, saves=10.0))
    wish(world, 1)
    world.pass_time(30)
    wish(world, 0)
    for _ in range(200):
        world.pass_time(0.5)
        if world.adapter.jobs["tune"].signals[-1] == (2, "notice"):
            break
    world.pass_time(2)
    wish(world, 1)
    world.pass_time(5)
    assert world.live("llama") == ["llama-r1-0"]
    assert world.adapter.jobs["tune"].signals[-1] == (2, "withdrawn")
    assert (members(world), world.training["tune"].run) == (1, 2)


def test_who_never_saved_does_not_grow() -> None:
    """All its work since the start would be lost."""
    world = elastic(trainer=Trainer(sdk=False))
    wish(world, 1)
    world.pass_time(30)
    wish(world, 0)
    world.pass_time(600, every=1.0)
    assert members(world) == 1


def test_who_waits_goes_before_who_could_grow() -> None:
    """A job without any card comes before one that has some."""
    world = elastic()
    wish(world, 1)
    world.pass_time(20)
    world.train("late")
    world.settle()
    wish(world, 0)
    world.pass_time(100)
    assert (members(world), len(world.training["late"].members)) == (1, 1)


def test_a_sawtooth_does_not_make_it_restart_all_the_time() -> None:
    """A model that comes each minute for a quarter of it: the job stays small, and is seldom interrupted."""
    world = elastic()
    for _ in range(60):
        wish(world, 1)
        world.pass_time(15, every=1.0)
        wish(world, 0)
        world.pass_time(45, every=1.0)
    assert world.training["tune"].run <= 8
    assert members(world) >= 1


def test_another_leader_at_any_time() -> None:
    """It shrinks and grows back as without, and the trainer is told each thing once."""
    whole, broken = elastic(), elastic()
    for world in (whole, broken):
        wish(world, 1)
    for second in range(90):
        for world in (whole, broken):
            if second == 20:
                wish(world, 0)
            world.pass_time(1, every=0.5)
        broken.restart()
        broken.settle()
        assert_nothing_twice(broken)
    assert members(whole) == 2
    assert broken.training["tune"].members in (whole.training["tune"].members, whole.training["tune"].members[:1])
    assert broken.adapter.jobs["tune"].signals[:1] == whole.adapter.jobs["tune"].signals[:1] == [(1, "notice")]
