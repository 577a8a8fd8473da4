"""The demo's second act: training has the only GPU, a model needs it, gets it, and gives it back; no step is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from deploy.demo.scenario import MODEL, QUESTIONS, StoryFailed
from deploy.demo.summary import Lent, seconds
from deploy.demo.traffic import ChatClient
from events.clock import SystemClock
from events.units import Instant

JOB = "curve"
STEPS = 600
PACE = 0.05
"""Least seconds a step: half a minute in all, so that there is something to take the GPU from."""
TAKEN_AT = 150
"""Steps after which the request comes."""
KEEP_ALIVE = 4.0
LOOK_EVERY = 0.2
PATIENCE = 120.0
"""Seconds for each thing that is waited for."""

Json = Mapping[str, Any]


class Teller(Protocol):
    """How the act is told while it happens."""

    def chapter(self, title: str, text: str) -> None:
        """A new part begins."""

    def text(self, piece: str) -> None:
        """A piece of an answer came."""

    def note(self, text: str) -> None:
        """Something worth a line."""


def declarations(weights: Path, folder: Path) -> str:
    """The model and the training job as a user would write them: each needs one GPU, and there is one."""
    command = json.dumps([*trainer(folder / "checkpoints", folder / "losses.json"), "--pace", str(PACE)])
    return f"""\
apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {MODEL}}}
spec:
  engine: {{type: llamacpp}}
  weights: {{uri: {weights.as_uri()!r}}}
  resources: {{gpus: 1, cpu: 0.5, memory: 512Mi}}
  slots: 2
  scaling: {{minReplicas: 0, maxReplicas: 1, keepAlive: {KEEP_ALIVE:.0f}s, stableWindow: 4s, panicWindow: 1s}}
---
apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {JOB}}}
spec:
  command: {command}
  resources: {{gpus: 1, cpu: 0.5, memory: 256Mi}}
  checkpoint: {{ackTimeout: 10s, saveTimeout: 30s}}
"""


def trainer(checkpoints: Path, losses: Path) -> list[str]:
    """The command of the training run."""
    module = [sys.executable, "-m", "deploy.demo.trainer"]
    return [*module, "--checkpoints", str(checkpoints), "--losses", str(losses), "--steps", str(STEPS)]


class Lending:
    """The act; `tell` plays it and returns what came of it."""

    def __init__(self, client: ChatClient, session: aiohttp.ClientSession, admin_url: str, teller: Teller) -> None:
        self._clock = SystemClock()
        self._session = session
        self._client = client
        self._admin = f"{admin_url}/v1alpha1"
        self._teller = teller

    async def tell(self, folder: Path) -> Lent:
        """Play it. StoryFailed when something that must come does not come."""
        self._teller.chapter("Lend", f"There is one GPU, and a training job has it: {STEPS} steps, one batch each.")
        status = await self._until(lambda job: (job["step"] or 0) >= TAKEN_AT, "the training run goes on")
        self._teller.note(f"It is at step {status['step']}.")
        first_token = await self._reclaim()
        resumed = await self._give_back()
        done = await self._until(lambda job: job["state"] == "Finished", "the training run is done")
        (reclaim,) = [item for item in await self._reclaims() if item["spec"]["job"] == JOB]
        spent = reclaim["status"]
        whole = await self._uninterrupted(folder)
        losses = json.loads((folder / "losses.json").read_text(encoding="utf-8"))
        self._teller.note(
            f"Its {len(losses)} losses are {'those' if losses == whole else 'NOT those'} of a run that nobody "
            "interrupted, bit for bit."
        )
        return Lent(
            first_token=first_token,
            saved_step=spent["checkpointStep"] if spent["checkpointStep"] is not None else -1,
            resumed_step=resumed,
            steps_lost=spent["ledger"]["stepsLost"],
            runs=done["run"],
            stages=spent["ledger"]["stages"],
            lost=spent["ledger"]["lost"],
            losses=losses,
            same_curve=losses == whole,
            sentences=await self._explain(reclaim["metadata"]["name"]),
        )

    async def _reclaim(self) -> float:
        """One request; what happens to the training run meanwhile is told."""
        self._teller.chapter("Reclaim", "A request comes for a model that needs that GPU. Training saves and yields.")
        watching = asyncio.create_task(self._tell_reclaim())
        try:
            answer = await self._client.ask(QUESTIONS[1], 24, self._teller.text)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not answer.ok or answer.first_token is None:
            raise StoryFailed(f"the request was not answered: {answer.status} {answer.error}")
        self._teller.note(f"First token after {seconds(answer.first_token)}: notice, save, exit, start of the model.")
        return answer.first_token

    async def _tell_reclaim(self) -> None:
        """Each change of the reclaim's state, once."""
        told = 0
        while True:
            for item in await self._reclaims():
                steps = item["status"]["history"]
                for step in steps[told:]:
                    self._teller.note(f"{item['spec']['job']}: {step['state'].replace('_', ' ')}")
                told = max(told, len(steps))
            await asyncio.sleep(LOOK_EVERY)

    async def _give_back(self) -> int:
        """Nobody asks; the step at which training went on."""
        self._teller.chapter("Give back", f"Nobody asks. After {KEEP_ALIVE:.0f} s of quiet the model yields the GPU.")
        job = await self._until(
            lambda job: job["run"] >= 2 and job["resumedStep"] is not None, "the training run is resumed"
        )
        self._teller.note(f"Training goes on at step {job['resumedStep']}.")
        return int(job["resumedStep"])

    async def _uninterrupted(self, folder: Path) -> list[float]:
        """The losses of the same run, from beginning to end."""
        losses = folder / "uninterrupted.json"
        process = await asyncio.create_subprocess_exec(
            *trainer(folder / "uninterrupted", losses), "--pace", "0",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        if await process.wait():
            raise StoryFailed(f"the uninterrupted run ended with {process.returncode}")
        return list(json.loads(losses.read_text(encoding="utf-8")))

    async def _until(self, true: Callable[[Json], bool], what: str) -> Json:
        """Look at the job until it is so. StoryFailed after PATIENCE seconds."""
        until = Instant(self._clock.now() + PATIENCE)
        while True:
            seen: Json = (await self._get(f"training/{JOB}"))["status"]
            if true(seen):
                return seen
            if self._clock.now() > until:
                raise StoryFailed(f"waited {PATIENCE:.0f} s until {what}; it is {seen}")
            await asyncio.sleep(LOOK_EVERY)

    async def _reclaims(self) -> Sequence[Json]:
        items: Sequence[Json] = (await self._get("reclaims"))["items"]
        return items

    async def _explain(self, reclaim: str) -> list[str]:
        return list((await self._get(f"reclaims/{reclaim}/explain"))["sentences"])

    async def _get(self, path: str) -> Any:
        async with self._session.get(f"{self._admin}/{path}") as response:
            response.raise_for_status()
            return await response.json()
