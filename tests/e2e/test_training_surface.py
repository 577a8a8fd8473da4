"""Training jobs in one real process: what a trainer's owner types and sees, from submit to finished."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

TRAIN = """
import json, sys, time
from preemption.trainer import CheckpointGuard, GuardSettings
seen = []
guard = CheckpointGuard(
    "checkpoints",
    lambda folder: (folder / "seen.json").write_text(json.dumps(seen)),
    lambda folder: seen.extend(json.loads((folder / "seen.json").read_text())),
    settings=GuardSettings(every_steps=1000),
)
for step in guard.steps(int(sys.argv[1])):
    seen.append(step)
    print("step", step, flush=True)
    time.sleep(0.02)
print("seen", seen == list(range(int(sys.argv[1]))), flush=True)
"""
"""Says at the end whether it made each step once, in order, over all its runs."""


def tune(steps: int = 200) -> str:
    """A job on the only GPU."""
    command = json.dumps([sys.executable, "-c", TRAIN, str(steps)])
    return f"""apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tune}}
spec:
  command: {command}
  resources: {{gpus: 1, cpu: 0.1, memory: 64Mi}}
  checkpoint: {{ackTimeout: 20s, saveTimeout: 1m}}
"""


async def command(relume: Running, *arguments: str) -> tuple[int, str, str]:
    """A command line against it: code, output, words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli.main", *arguments, "--admin", relume.server.admin_url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def until(relume: Running, wanted: Callable[[dict[str, Any]], bool], within: float = 60.0) -> dict[str, Any]:
    """Wait until the job's status is as wanted."""
    status: dict[str, Any] = {}
    try:
        async with asyncio.timeout(within):
            while True:
                async with relume.session.get(f"{relume.admin}/training/tune") as answer:
                    status = (await answer.json())["status"]
                if wanted(status):
                    return status
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not as wanted within {within} s: {status}") from None


async def test_a_job_lends_its_gpu_and_finishes_with_every_step_made_once(tmp_path: Path) -> None:
    """Submitted, interrupted by a model, resumed, finished: no step is lost and none is made twice."""
    file = tmp_path / "tune.yaml"
    file.write_text(tune())
    model = simulated(extra="  resources: {gpus: 1, cpu: 0.1, memory: 64Mi}", maxReplicas=1, keepAlive="1s")
    async with running(tmp_path / "relume", model, "--gpus", "1") as relume:
        code, out, err = await command(relume, "train", "submit", "-f", str(file))
        assert (code, out) == (0, ""), err
        assert "follow it: relume train logs tune -f" in err
        await until(relume, lambda status: (status["step"] or 0) >= 0 and status["state"] == "Running")
        assert (await relume.chat()).status == 200
        parked = await until(relume, lambda status: status["state"] == "Parked")
        assert parked["checkpoint"]["step"] == parked["step"]
        back = await until(relume, lambda status: status["state"] == "Running" and status["run"] == 2)
        assert (back["preemptions"], back["failures"]) == (1, 0)
        await _explained(relume)

        done = await until(relume, lambda status: status["state"] == "Finished")
        assert (done["step"], done["failures"]) == (200, 0)
        _, lines, _ = await command(relume, "train", "logs", "tune", "--tail", "10000")
        steps = [int(line.split()[1]) for line in lines.splitlines() if line.startswith("step ")]
        assert steps == list(range(200))
        assert lines.splitlines()[-1] == "seen True"

        assert (await command(relume, "delete", "training", "tune"))[0] == 0
        assert (await command(relume, "train", "ls"))[2] == "no training\n"


async def _explained(relume: Running) -> None:
    """The reclaim is listed and told."""
    _, out, _ = await command(relume, "get", "reclaims", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert item["status"]["shortage"] == "echo"
    assert "claimed" in [step["state"] for step in item["status"]["history"]]
    _, story, _ = await command(relume, "reclaims", "explain", item["metadata"]["name"])
    assert "Model echo lacked GPUs since" in story
    assert "No step was lost." in story
