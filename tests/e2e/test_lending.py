"""Training lends its GPU to a model and gets it back, on a whole relume: real processes, bad trainers, kills."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.server import Server
from tests.support.held_trainer import held_in
from tests.support.running import Running, asking, complaints, running, simulated

pytestmark = pytest.mark.slow

Json = Mapping[str, Any]
JOB = "curve"
GPU = "  resources: {gpus: 1, cpu: 0.1, memory: 64Mi}"
MODEL = simulated(extra=GPU, maxReplicas=1, keepAlive="1s", stableWindow="2s")
SMALL = Path(__file__).resolve().parent.parent / "support" / "small_trainer.py"


def job(command: list[str], **checkpoint: str) -> str:
    """A training job that takes one GPU."""
    contract = ", ".join(f"{name}: {value}" for name, value in checkpoint.items())
    return f"""---
apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {JOB}}}
spec:
  command: {json.dumps(command)}
  resources: {{gpus: 1, cpu: 0.1, memory: 64Mi}}
  checkpoint: {{{contract}}}
"""


def curve(folder: Path, name: str, pace: float) -> list[str]:
    """The demo's training run."""
    return [
        sys.executable, "-m", "deploy.demo.trainer", "--checkpoints", str(folder / name),
        "--losses", str(folder / f"{name}.json"), "--steps", "700", "--pace", str(pace),
    ]  # fmt: skip


async def training(relume: Running) -> Json:
    """The job's status."""
    async with relume.session.get(f"{relume.admin}/training/{JOB}") as answer:
        answer.raise_for_status()
        status: Json = (await answer.json())["status"]
        return status


async def reclaims(relume: Running) -> list[Json]:
    """All reclaims' statuses."""
    async with relume.session.get(f"{relume.admin}/reclaims") as answer:
        answer.raise_for_status()
        return [item["status"] for item in (await answer.json())["items"]]


async def until(relume: Running, wanted: Callable[[Json], bool], within: float = 60.0) -> Json:
    """Wait until the job is as wanted; AssertionError tells how it is otherwise."""
    status: Json = {}
    try:
        async with asyncio.timeout(within):
            while not wanted(status := await training(relume)):  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not as wanted within {within} s: {status}; {await reclaims(relume)}") from None
    return status


async def reclaimed(relume: Running, state: str, within: float = 60.0) -> Json:
    """Wait until there is a reclaim in this state."""
    seen: list[Json] = []
    try:
        async with asyncio.timeout(within):
            while True:
                seen = await reclaims(relume)
                for one in seen:
                    if one["state"] == state:
                        return one
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"none {state} within {within} s: {seen}") from None


def states(reclaim: Json) -> list[str]:
    """The states that it went through."""
    return [step["state"] for step in reclaim["history"]]


async def test_no_step_is_lost(tmp_path: Path) -> None:
    """The only GPU is taken for a request and given back: the checkpoint is that of the last step, the next run begins
    there, and the losses are those of a run that nobody interrupted."""
    whole = await asyncio.create_subprocess_exec(*curve(tmp_path, "whole", 0), stdout=asyncio.subprocess.DEVNULL)
    async with running(tmp_path, MODEL + job(curve(tmp_path, "cut", 0.03)), "--gpus", "1") as relume:
        await until(relume, lambda status: (status["step"] or 0) >= 1)
        assert (await relume.chat()).status == 200
        parked = await until(relume, lambda status: status["state"] == "Parked")
        done = await until(relume, lambda status: status["state"] == "Finished")
        (reclaim,) = await reclaims(relume)
    assert await whole.wait() == 0
    losses = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "cut")]
    assert losses[0] == losses[1]
    assert parked["checkpoint"]["verified"]
    assert (done["run"], done["resumedStep"]) == (2, parked["checkpoint"]["step"])
    assert (reclaim["state"], reclaim["ledger"]["stepsLost"]) == ("resumed", 0)
    assert states(reclaim)[-3:] == ["parked", "resuming", "resumed"]


DEAF = (
    "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGUSR1, signal.SIGTERM)]; time.sleep(600)"
)
FORKED = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize("code", [DEAF, FORKED.format(child=DEAF)], ids=["deaf", "leaves a deaf child"])
async def test_a_trainer_that_does_not_listen_is_ended(tmp_path: Path, code: str) -> None:
    """It gets its notice, SIGTERM and SIGKILL on the clock of its contract; the request is answered, and the GPU is
    handed over only when nothing of it is left. It is started again afterwards."""
    contract = {"ackTimeout": "500ms", "saveTimeout": "1s", "grace": "500ms"}
    documents = MODEL + job([sys.executable, "-c", code], **contract)
    async with running(tmp_path, documents, "--gpus", "1") as relume:
        await until(relume, lambda status: status["state"] == "Running")
        assert (await relume.chat()).status == 200
        (reclaim,) = await reclaims(relume)
        again = await until(relume, lambda status: status["run"] == 2 and status["state"] == "Running")
    assert again["resumedStep"] is None
    assert {"stopping", "draining", "claimed"} <= set(states(reclaim))


@pytest.mark.parametrize("state", ["notified", "saving", "parked"])
async def test_relume_is_killed_in_the_middle(tmp_path: Path, state: str) -> None:
    """kill -9 while a reclaim is in this state: the next relume finishes it, training loses no step, and each step is
    made once."""
    command = [sys.executable, str(SMALL), str(tmp_path), "400", "--pause", "0.03", "--save-seconds", "1"]
    (tmp_path / "models.yaml").write_text(MODEL + job(command), encoding="utf-8")
    server = Server(tmp_path, ("-f", str(tmp_path / "models.yaml"), "--gpus", "1"))
    await server.start()
    try:
        async with asking(server, tmp_path) as relume:
            await until(relume, lambda status: (status["step"] or 0) >= 1)
            with held_in(state, tmp_path):
                asked = asyncio.create_task(relume.chat())
                await reclaimed(relume, state)
                assert server._process is not None
                server._process.kill()
                await server._process.wait()
            await asyncio.gather(asked, return_exceptions=True)
        await server.start()
        async with asking(server, tmp_path) as relume:
            assert (await relume.chat()).status == 200
            await until(relume, lambda status: status["state"] == "Finished", within=120.0)
            told = await reclaims(relume)
    finally:
        code = await server.stop()
    steps = [int(line.split()[0]) for line in (tmp_path / "losses-0.txt").read_text().splitlines()]
    assert steps == list(range(400))
    assert all(one["ended"] for one in told), told
    assert complaints(server.log) == ""
    assert code == 0
