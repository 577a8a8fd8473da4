"""Runs that are told, killed and started again: the curve is that of a run that nobody disturbed, step for step."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.trainer_runs import Run, uninterrupted, wait_until

EX_TEMPFAIL = 75


def stop_with(run: Run, how: str, number: int) -> None:
    """Tell the run to save and leave."""
    if how == "file":
        run.tell(id=f"n{number}", epoch=number)
    else:
        run.processes[0].send_signal(getattr(signal, how))


def test_told_twenty_times_no_step_is_lost_and_none_done_twice(tmp_path: Path) -> None:
    """At random steps, in turns by each of three ways, every other time while a save is written: exit code 75 at the
    step reported, and the curve of an undisturbed run at the end."""
    rng = random.Random(7)
    run = Run(tmp_path, total=4000, every=15, save_seconds=0.05)
    for number in range(20):
        run.start()
        run.wait_step(max(run.trained(), 0) + rng.randrange(1, 25))
        if number % 2:
            run.wait_save()
        stop_with(run, ("file", "SIGUSR1", "SIGTERM")[number % 3], number)
        assert run.wait() == [EX_TEMPFAIL]
        assert run.heard("leaving")[0]["step"] == run.trained() + 1
    run.pause, run.every = 0.0, 1000
    run.start()
    assert run.wait() == [0]
    assert run.losses() == uninterrupted(4000)
    assert run.times_trained() == 4000


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_several_ranks_stop_at_one_step_whichever_is_told(tmp_path: Path, world: int) -> None:
    """Ranks of uneven speed, each told in its turn; they have no collective that would keep them together."""
    rng = random.Random(world)
    run = Run(tmp_path, total=200, world=world, pause=0.01)
    for number in range(world + 1):
        run.start()
        run.wait_step(max(run.trained(), 0) + rng.randrange(5, 15))
        run.processes[number % world].send_signal(signal.SIGUSR1)
        assert run.wait() == [EX_TEMPFAIL] * world
        assert len({run.trained(rank) for rank in range(world)}) == 1
    run.pause = 0.0
    run.start()
    assert run.wait() == [0] * world
    for rank in range(world):
        assert run.losses(rank) == uninterrupted(200)
        assert run.times_trained(rank) == 200


@pytest.mark.slow
def test_killed_at_random_moments_of_saves_it_goes_on_from_a_whole_checkpoint(tmp_path: Path) -> None:
    """SIGKILL, mostly while it saves: steps since the last commit are done again, to the same values."""
    rng = random.Random(3)
    run = Run(tmp_path, total=400, every=10, save_seconds=0.04, pause=0.001)
    for _ in range(20):
        run.start()
        run.wait_step(run.trained() + rng.randrange(0, 15))
        time.sleep(rng.random() * 0.04)  # somewhere in a save, or between two
        run.kill()
    run.start()
    assert run.wait() == [0]
    assert run.losses() == uninterrupted(400)


def test_a_notice_withdrawn_before_the_save_is_an_ordinary_checkpoint(tmp_path: Path) -> None:
    """The save ends, and training goes on."""
    run = Run(tmp_path, total=1500, save_seconds=0.4)
    run.start()
    run.wait_step(5)
    run.tell(id="a", epoch=1)
    wait_until(lambda: bool(run.heard("ack")))
    run.tell(id="a", epoch=1, mode="withdrawn")
    wait_until(lambda: bool(run.heard("continued")))
    assert run.heard("saved")[0]["id"] == "a"
    assert run.wait() == [0]
    assert run.times_trained() == 1500


def test_a_notice_before_the_first_step_is_obeyed_after_it(tmp_path: Path) -> None:
    """The loop need not have begun."""
    run = Run(tmp_path, total=50, pause=0.5)
    run.start()
    run.tell(id="a", epoch=1)
    assert run.wait() == [EX_TEMPFAIL]
    assert run.trained() in (0, 1)  # told while the interpreter started, it may have come to the second


def test_save_and_continue_goes_on(tmp_path: Path) -> None:
    """A checkpoint is asked for without leaving; a later notice is obeyed too."""
    run = Run(tmp_path, total=3000)
    run.start()
    run.wait_step(5)
    run.tell(id="a", epoch=1, mode="save_and_continue")
    wait_until(lambda: bool(run.heard("continued")))
    run.tell(id="b", epoch=1, mode="save_and_exit")
    assert run.wait() == [EX_TEMPFAIL]
    assert [saved["id"] for saved in run.heard("saved")] == ["a", "b"]


def test_a_dead_rank_ends_the_others_within_their_patience(tmp_path: Path) -> None:
    """The run is started again by its controller; it goes on from the last commit."""
    run = Run(tmp_path, total=10_000, world=2, pause=0.01, patience=2.0)
    run.start()
    run.wait_step(3)
    run.processes[1].kill()
    run.tell(id="a", epoch=1)
    codes = run.wait()
    assert codes[1] == -signal.SIGKILL
    assert codes[0] not in (0, EX_TEMPFAIL)
    assert run.heard("aborted")
