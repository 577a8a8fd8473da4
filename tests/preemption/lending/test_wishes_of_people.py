"""Stories of what people want of their jobs, as texts: see `test_stories`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.lending import LendingWorld, change, check, one_card, wish
from tests.support.pool import node
from tests.support.training import Trainer


def test_a_person_pauses_and_resumes() -> None:
    """The same handshake without a shortage, and no waiting when it is resumed."""
    world = one_card()
    change(world, paused=True)
    world.pass_time(10)
    change(world, paused=False)
    world.pass_time(5)
    check(
        world,
        """
          20.0 tune: selected for a person
          20.0 tune run 1 has n1-gpu-0; save_and_exit (ends)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: parked (shortage_gone)
          25.0 tune run 1 has nothing (paused)
          30.0 tune: resuming (capacity_back)
          30.0 tune run 2 has n1-gpu-0 (runs)
          33.0 tune: resumed (step_seen)
        """,
    )


def test_resumed_before_it_has_saved() -> None:
    """The notice is withdrawn."""
    world = one_card()
    change(world, paused=True)
    world.pass_time(1)
    change(world, paused=False)
    world.pass_time(5)
    check(
        world,
        """
          20.0 tune: selected for a person
          20.0 tune run 1 has n1-gpu-0; save_and_exit (ends)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          21.0 tune: cancelling (shortage_gone)
          21.0 tune run 1 has n1-gpu-0; withdrawn (goes_on)
          21.0 tune: continued (step_seen)
          21.0 tune run 1 has n1-gpu-0 (runs)
        """,
    )


def test_cancelled_while_it_waits() -> None:
    """It has nothing to save any more, and does not come back."""
    world = one_card()
    wish(world, 1)
    world.pass_time(10)
    change(world, cancelled=True)
    wish(world, 0)
    world.pass_time(10)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: claimed (cards_empty)
          25.0 llama has llama-r1-0
          25.0 tune run 1 has nothing (yields)
          25.0 tune: parked (bound)
          25.0 tune run 1 has nothing (lacks_room)
          30.0 tune: finished (exit_done)
          30.0 tune run 1 has nothing (cancelled)
          30.0 llama has llama-r1-0 drains
          30.0 llama has nothing
        """,
    )


def test_deleted_while_it_saves() -> None:
    """It finishes its save and ends; its card goes where it was to go."""
    world = one_card()
    wish(world, 1)
    world.pass_time(1)
    change(world, deleted=True)
    world.pass_time(10)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: claimed (cards_empty)
          25.0 llama has llama-r1-0
          25.0 tune run 1 has nothing (yields)
          25.0 tune: parked (bound)
          25.0 tune run 1 has nothing (deleted)
          25.0 tune: finished (exit_done)
        """,
    )


def test_declared_anew_while_it_runs() -> None:
    """What runs ends with its checkpoint; then the new one starts."""
    world = one_card()
    change(world, uid="tune-2")
    world.pass_time(10)
    check(
        world,
        """
          20.0 tune: selected for a person
          20.0 tune run 1 has n1-gpu-0; save_and_exit (ends)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: parked (shortage_gone)
          25.0 tune run 1 has nothing (declared_anew)
          25.0 tune: finished (exit_done)
          25.0 tune run 2 has n1-gpu-0 (runs)
        """,
    )


def test_a_spent_budget_is_told() -> None:
    """The job had to yield as often as its owner allows within an hour."""
    world = one_card(budget_per_hour=1)
    wish(world, 1)
    world.pass_time(10)
    wish(world, 0)
    world.pass_time(100)
    world.story.clear()
    wish(world, 1)
    world.pass_time(10)
    check(
        world,
        """
         130.0 llama has nothing; short of 1: no training may yield: tune has spent its budget of 1 an hour
        """,
        messages=True,
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_is_submitted_anew_has_spent_nothing(restarts: bool) -> None:
    """Whoever had its name, and yielded, was deleted: the new one has its own budget, also with the next leader."""
    world = one_card(budget_per_hour=1)
    wish(world, 1)
    world.pass_time(10)
    wish(world, 0)
    world.pass_time(100)
    first = world.jobs["tune"]
    world.change_job("tune", deleted=True)
    world.decide()
    world.tell_job(replace(first, uid="tune-2", at=world.instant))
    world.pass_time(100)
    assert world.training["tune"].uid == "tune-2"
    if restarts:
        world.restart()
    wish(world, 1)
    world.pass_time(10)
    assert world.live("llama") == ["llama-r1-0"]


def test_a_protected_job_is_told() -> None:
    """Nobody yields, and the model says why."""
    world = one_card(protected=True)
    wish(world, 1)
    world.pass_time(10)
    check(
        world,
        """
          20.0 llama has nothing; short of 1: no training may yield: tune is protected
        """,
        messages=True,
    )


def test_a_job_of_higher_priority_takes_from_a_lower_one() -> None:
    """By the same handshake."""
    world = LendingWorld(node(gpus=1))
    world.train("tune")
    world.settle()
    world.pass_time(10)
    world.train("urgent", priority=10)
    world.settle()
    world.pass_time(10)
    check(
        world,
        """
           0.0 tune run 1 has n1-gpu-0 (runs)
          10.0 tune: selected for training/urgent
          10.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          10.0 urgent run 0 has nothing (lacks_room)
          10.0 tune: notified (sent)
          10.2 tune: saving (ack)
          14.2 tune: saved (checkpointed)
          14.5 tune: draining (exit_saved)
          14.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          15.0 tune: claimed (cards_empty)
          15.0 urgent run 1 has n1-gpu-0 (runs)
          15.0 tune run 1 has nothing (yields)
          15.0 tune: parked (bound)
          15.0 tune run 1 has nothing (lacks_room)
        """,
    )


def test_a_run_that_fails_is_tried_again_after_a_while() -> None:
    """Its place is free meanwhile; after too many failures it rests."""
    world = one_card(max_failures=2)
    world.adapter.jobs["tune"].crash(world.now)
    world.pass_time(5)
    world.adapter.jobs["tune"].crash(world.now)
    world.pass_time(60)
    check(
        world,
        """
          20.1 tune run 1 has n1-gpu-0 (waits_until_empty)
          20.5 tune run 1 has nothing (starts_back_off)
          22.0 tune run 2 has n1-gpu-0 (runs)
          25.1 tune run 2 has n1-gpu-0 (waits_until_empty)
          25.5 tune run 2 has nothing (failed_too_often)
        """,
    )


def test_a_failed_job_is_tried_again() -> None:
    """A person forgives the failures of its runs so far: it runs at once, and rests again after as many new ones."""
    world = one_card(max_failures=2)
    for _ in range(2):
        world.adapter.jobs["tune"].crash(world.now)
        world.pass_time(5)
    assert world.training["tune"].reasons == ("failed_too_often",)
    change(world, forgiven=2)
    assert world.training["tune"].run == 3
    assert world.training["tune"].members
    world.adapter.jobs["tune"].failures = 0
    for _ in range(2):
        world.adapter.jobs["tune"].crash(world.now)
        world.pass_time(5)
    assert world.training["tune"].reasons == ("failed_too_often",)


def test_a_cancelled_job_is_resumed() -> None:
    """It goes on from the checkpoint that it made when it was cancelled."""
    world = one_card()
    change(world, cancelled=True)
    world.pass_time(10)
    assert not world.training["tune"].members
    change(world, cancelled=False)
    world.pass_time(5)
    run = world.adapter.jobs["tune"].run
    assert run is not None
    assert run.begins_at > 0
    assert world.training["tune"].run == 2


def test_the_first_run_of_a_declaration_is_known() -> None:
    """Runs are counted by name; a job that is declared anew begins with the next one, also after the old one has been
    forgotten, and a new leader knows it from the grant."""
    world = LendingWorld(node(gpus=1))
    world.train("tune", Trainer(every=10))
    world.settle()
    world.pass_time(20)
    assert (world.training["tune"].run, world.training["tune"].first_run) == (1, 1)
    change(world, paused=True)
    world.pass_time(10)
    change(world, paused=False)
    world.pass_time(10)
    assert (world.training["tune"].run, world.training["tune"].first_run) == (2, 1)
    change(world, uid="tune-2")  # deleted, and declared anew at once
    world.pass_time(20)
    world.restart()
    world.settle()
    assert (world.training["tune"].run, world.training["tune"].first_run) == (3, 3)
    change(world, uid="tune-2", deleted=True)
    world.pass_time(20)
    assert "tune" not in world.pool.lender.seats
    world.change_job("tune", uid="tune-3", deleted=False)
    world.pass_time(5)
    assert (world.training["tune"].run, world.training["tune"].first_run) == (4, 4)
