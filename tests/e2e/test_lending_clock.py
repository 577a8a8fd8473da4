"""The wall clock is set by an hour in the middle of a reclaim: a whole relume, a real trainer on a MIG instance."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.test_faults_clock import HOUR, stepped
from tests.e2e.test_lending import SMALL, job, reclaimed, reclaims, until
from tests.support.faults import Whole, faulty
from tests.support.held_trainer import held_in
from tests.support.running import Running, asking, simulated

pytestmark = pytest.mark.slow

INSTANCE = "  resources: {migProfile: 1g.5gb, cpu: 0.1, memory: 64Mi}"
MODEL = simulated(extra=INSTANCE, maxReplicas=1, keepAlive="1s", stableWindow="2s")
CARDS = ("--gpus", "1xA100-40GB:mig=1g.5gb")
STEPS = 300


def documents(folder: Path) -> str:
    command = [sys.executable, str(SMALL), str(folder), str(STEPS), "--pause", "0.03", "--save-seconds", "1"]
    return MODEL + job(command).replace("gpus: 1", "migProfile: 1g.5gb")


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_while_it_saves(tmp_path: Path, step: float) -> None:
    """A step moves no deadline of a reclaim: the save is waited for, the instance goes over, and the job comes back."""
    file = tmp_path / "step"
    whole = Whole(tmp_path, documents(tmp_path), *CARDS, program=stepped(step, file))
    async with faulty(whole) as relume:
        await until(relume, lambda status: (status["step"] or 0) >= 1)
        with held_in("saving", tmp_path):
            asked = asyncio.create_task(relume.chat())
            await reclaimed(relume, "saving")
            file.touch()
        assert (await asked).status == 200
        await _finished(relume, HOUR / 2)
    assert _made(tmp_path) == list(range(STEPS))


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_killed_while_it_saves_and_back_by_another_clock(tmp_path: Path, step: float) -> None:
    """kill -9 during the save; the next relume's clock is an hour off from the one before: it finishes the reclaim and
    does not wait for an hour, and no step is lost."""
    first = Whole(tmp_path, documents(tmp_path), *CARDS)
    await first.start()
    try:
        async with asking(first, tmp_path) as relume:
            await until(relume, lambda status: (status["step"] or 0) >= 1)
            with held_in("saving", tmp_path):
                asked = asyncio.create_task(relume.chat())
                await reclaimed(relume, "saving")
                await first.killed()
            await asyncio.gather(asked, return_exceptions=True)
    finally:
        await first.stop()
    async with faulty(Whole(tmp_path, "", *CARDS, program=stepped(step))) as relume:
        assert (await relume.chat()).status == 200
        await _finished(relume, HOUR / 2 if step < 0 else 2 * HOUR)  # an hour that nobody led could be a real one
    assert _made(tmp_path) == list(range(STEPS))


async def _finished(relume: Running, most: float) -> None:
    """Wait until the job has finished; all reclaims have ended, in order, and cost no less than nothing."""
    await until(relume, lambda status: status["state"] == "Finished", within=120.0)
    for one in await reclaims(relume):
        assert one["ended"], one
        times = [change["at"] for change in one["history"]]
        assert all(before <= after for before, after in pairwise(times)), one
        numbers = [*one["ledger"]["lost"].values(), *one["ledger"]["stages"].values()]
        assert all(0 <= number < most for number in numbers), one


def _made(folder: Path) -> list[int]:
    return [int(line.split()[0]) for line in (folder / "losses-0.txt").read_text().splitlines()]
