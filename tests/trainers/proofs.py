"""What is shown of each framework: told and killed at random moments, its curve is that of a run that nobody disturbed,
bit for bit.

How many moments: RELUME_TRAINER_SEEDS (default 3; the figures in docs/how-to/trainers.md are of 20).
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from dataclasses import dataclass

import pytest

from tests.support.trainer_runs import wait_until
from tests.trainers.runs import BOUND, Run

LOG = logging.getLogger(__name__)
EX_TEMPFAIL = 75
SEEDS = int(os.environ.get("RELUME_TRAINER_SEEDS", "3"))
PER_EPOCH = 12


@dataclass(frozen=True)
class Case:
    """A framework as it is tested."""

    module: str
    world: int = 1
    variant: str = ""
    environment: tuple[tuple[str, str], ...] = ()


def total_steps() -> int:
    """Enough for all seeds: a notice by file takes up to 0.2 s to be seen."""
    return (72 + 40 * SEEDS) // PER_EPOCH * PER_EPOCH


def tell(run: Run, seed: int) -> str:
    """One of the ways, to one of the ranks."""
    how = ("file", "SIGUSR1", "SIGTERM")[seed % 3]
    if how == "file":
        run.tell(id=f"n{seed}", epoch=seed)
    else:
        run.signal(getattr(signal, how), rank=seed % run.job.world)
    return how


def start_again(run: Run) -> int:
    """Start, and see that it goes on from the newest marked checkpoint; returns its step."""
    committed = run.committed()
    run.start(every=5)
    if committed:
        wait_until(lambda: bool(run.heard("resumed")) or run.ended(), BOUND)
        assert [report["step"] for report in run.heard("resumed")] == [committed], run.log()
    return committed


def finish(run: Run, calm: Run) -> None:
    """To the end, in peace: the same curve."""
    run.start(pause=0.0)
    assert run.wait() == [0] * run.job.world, run.log()
    assert run.curves() == calm.curves()


class Proofs:
    """What is shown of each framework: a class each below, so that each is run by one process."""

    case: Case

    def test_told_at_random_steps_and_during_saves_no_step_is_lost(self, run: Run, calm: Run) -> None:
        """Exit code 75 with the last step committed, the next start goes on right after it, and all is bit-equal."""
        for seed in range(SEEDS):
            draw = random.Random(seed)
            during_a_save = seed % 2 == 1
            run.start(every=5)
            run.wait_for_step(run.trained() + draw.randrange(1, 8))
            if during_a_save:
                run.wait_for_save()
            how = tell(run, seed)
            assert run.wait() == [EX_TEMPFAIL] * run.job.world, run.log()
            assert run.committed() == run.trained() + 1 == run.heard("leaving")[0]["step"]
            LOG.info("seed %d: told by %s%s, left at %d", seed, how, " in a save" * during_a_save, run.committed())
        finish(run, calm)
        assert [len(run.lines(rank)) for rank in range(run.job.world)] == [run.job.total] * run.job.world

    def test_killed_at_random_moments_of_saves_what_was_committed_is_not_lost(self, run: Run, calm: Run) -> None:
        """The next start goes on at the newest marked checkpoint; steps since then are done again, to the same bits."""
        again = 0
        for seed in range(SEEDS):
            draw = random.Random(1000 + seed)
            committed = start_again(run)
            run.wait_for_step(committed + draw.randrange(0, 9))
            run.wait_for_save()
            time.sleep(draw.random() * 0.15)  # a save takes 0.06 s and what the framework needs
            run.kill()
            again += run.trained() + 1 - run.committed()
            LOG.info(
                "seed %d: began at %d, killed in step %d, newest mark %d",
                seed,
                committed,
                run.trained() + 1,
                run.committed(),
            )
        LOG.info("%d uncommitted steps are done again", again)
        start_again(run)
        run.kill()
        finish(run, calm)

    def test_a_full_disk_ends_no_training(self, run: Run, case: Case) -> None:
        """Planned saves and one that is told fail on all ranks alike; what was committed stands; with room it saves."""
        if case.module == "hf_trainer":
            pytest.skip(
                "the Trainer writes by itself, and ends with an OSError; the next start goes on from what is marked"
            )
        run.start(every=5)
        wait_until(lambda: bool(run.heard("saved")) or run.ended(), BOUND)
        run.signal(signal.SIGUSR1)
        assert run.wait() == [EX_TEMPFAIL] * run.job.world, run.log()
        committed = run.committed()
        run.start(every=5, most_bytes=100, variant="")
        wait_until(lambda: bool(run.heard("save_failed")) or run.ended(), BOUND)
        run.tell(id="full", epoch=1)
        wait_until(lambda: any(report.get("id") == "full" for report in run.heard("save_failed")) or run.ended(), BOUND)
        run.wait_for_step(run.trained() + 2)
        run.kill()
        assert (run.heard("saved"), run.committed()) == ([], committed), run.log()
        start_again(run)
        wait_until(lambda: bool(run.heard("saved")) or run.ended(), BOUND)
        assert not run.ended(), run.log()
        run.kill()
