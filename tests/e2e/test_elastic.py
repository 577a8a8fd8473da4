"""Elastic jobs, jobs that are declared anew, and jobs whose card is gone, on a whole relume with real trainers."""

from __future__ import annotations

import asyncio
import sys
from itertools import groupby
from pathlib import Path

import pytest

from deploy.demo.server import Server
from tests.e2e.test_lending import GPU, job, reclaimed, reclaims, states, training, until
from tests.support.elastic_trainer import after
from tests.support.running import asking, running, simulated

pytestmark = pytest.mark.slow

ELASTIC = Path(__file__).resolve().parent.parent / "support" / "elastic_trainer.py"
MODEL = simulated(extra=GPU, maxReplicas=1, keepAlive="1s", stableWindow="2s")


def trainer(folder: Path, steps: int = 100_000) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [sys.executable, str(ELASTIC), str(folder), str(steps), "0.02"]


def own_folder(data: Path) -> Path:
    """What relume has made for the one job of this name."""
    (found,) = data.glob("**/training/jobs/curve/*")
    return found


def made(folder: Path) -> list[list[str]]:
    """Steps that rank 0 made: number, ranks, state."""
    return [line.split() for line in (folder / "made.txt").read_text().splitlines()]


async def test_a_member_is_lent_and_comes_back(tmp_path: Path) -> None:
    """Of two GPUs the model takes one: both ranks save, one goes on; when the model is gone for long enough, one saves,
    and two go on. No step is lost or made twice, and the state is that of a run that nobody interrupted."""
    folder = tmp_path / "run"
    document = job(trainer(folder)) + "  members: 2\n  elasticity: {minMembers: 1}\n"
    async with running(tmp_path, MODEL + document, "--gpus", "2") as relume:
        await until(relume, lambda status: (status["step"] or 0) >= 1)
        assert (await relume.chat()).status == 200
        smaller = await until(relume, lambda status: status["state"] == "Running" and status["run"] == 2)
        assert smaller["readyMembers"] == 1
        await until(relume, lambda status: status["run"] == 3 and (status["step"] or 0) > 0, within=120.0)
        told = await reclaims(relume)
        assert (await relume.chat()).status == 200  # and once more, from the other side
        await until(relume, lambda status: status["run"] == 4 and status["state"] == "Running", within=120.0)
    lines = made(folder)
    assert [int(line[0]) for line in lines] == list(range(len(lines)))
    assert [world for world, _ in groupby(line[1] for line in lines)][:3] == ["2", "1", "2"]
    state = "start"
    for line in lines:
        assert line[2] == (state := after(state, int(line[0])))
    shrunk, grown = sorted(told, key=lambda one: str(one["since"]))[:2]
    assert (shrunk["cause"], shrunk["ledger"]["stepsLost"], len(shrunk["cards"])) == ("shortage", 0, 1)
    assert (grown["cause"], grown["ledger"]["stepsLost"], grown["cards"]) == ("grows", 0, [])


async def test_declared_anew_while_it_runs(tmp_path: Path) -> None:
    """Deleted and submitted again at once: what runs is told, saves, and leaves by itself; then the new one starts."""
    old, new = tmp_path / "old", tmp_path / "new"
    async with running(tmp_path, MODEL + job(trainer(old)), "--gpus", "1") as relume:
        await until(relume, lambda status: (status["step"] or 0) >= 1)
        async with relume.session.delete(f"{relume.admin}/training/curve") as answer:
            answer.raise_for_status()
        code, _ = await relume.apply(job(trainer(new)))
        assert code in (200, 201)
        await until(relume, lambda status: status["state"] == "Running" and (status["step"] or 0) >= 1)
        (ended,) = await reclaims(relume)
    assert ended["cause"] == "person"
    assert ended["state"] == "finished"
    assert {"saving", "saved"} & set(states(ended))
    assert "stopping" not in states(ended)
    assert ended["ledger"]["stepsLost"] == 0
    kept = sorted((old / "checkpoints").iterdir())
    assert kept
    assert int(made(old)[-1][0]) + 1 == ended["checkpointStep"]
    assert made(new)[0][0] == "0"


async def test_the_card_is_gone_after_a_restart(tmp_path: Path) -> None:
    """relume is killed, and the next one finds the trainer alive on a card that the machine does not have any more: the
    trainer is told, saves, and leaves."""
    folder = tmp_path / "run"
    (tmp_path / "models.yaml").write_text(job(trainer(folder)), encoding="utf-8")
    files = ("-f", str(tmp_path / "models.yaml"))
    first = Server(tmp_path, (*files, "--gpus", "1"))
    await first.start()
    async with asking(first, tmp_path) as relume:
        await until(relume, lambda status: (status["step"] or 0) >= 1)
        assert first._process is not None
        first._process.kill()
        await first._process.wait()
    second = Server(tmp_path, (*files, "--gpus", "0"))
    await second.start()
    try:
        async with asking(second, tmp_path) as relume:
            told = await reclaimed(relume, "parked")
            status = await training(relume)
    finally:
        await second.stop()
    assert (told["cause"], told["ledger"]["stepsLost"]) == ("cards_gone", 0)
    assert status["checkpoint"]["step"] == int(made(folder)[-1][0]) + 1


async def test_tried_again_resumed_and_purged(tmp_path: Path) -> None:
    """A job that failed as often as it may is tried again when a person says so; cancelled, it goes on where it saved;
    deleted for good, its own folder goes."""
    broken = tmp_path / "broken"
    broken.touch()
    shell = f"test ! -e {broken} && mkdir -p run && exec {sys.executable} {ELASTIC} run 100000 0.02"
    document = job(["/bin/sh", "-c", shell]) + "  maxFailures: 1\n"
    async with running(tmp_path, MODEL + document, "--gpus", "1") as relume:
        failed = await until(relume, lambda status: status["state"] == "Failed")
        assert "relume train resume curve" in failed["message"]
        broken.unlink()
        url = f"{relume.admin}/training/curve"
        (await relume.session.delete(f"{url}/pause")).raise_for_status()
        await until(relume, lambda status: status["state"] == "Running" and (status["step"] or 0) >= 1)
        (await relume.session.put(f"{url}/cancel", json={})).raise_for_status()
        ended = await until(relume, lambda status: status["state"] == "Cancelled" and status["emptyAt"] is not None)
        (await relume.session.delete(f"{url}/pause")).raise_for_status()
        again = await until(relume, lambda status: status["state"] == "Running" and status["resumedStep"] is not None)
        assert again["resumedStep"] == ended["checkpoint"]["step"] > 0
        own = own_folder(tmp_path)
        (await relume.session.delete(f"{url}?purge=true")).raise_for_status()
        async with asyncio.timeout(60):
            while own.exists():  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.1)
