"""Training and models on cards of every kind at once, on a whole relume: whole, MIG instances, turns of a card."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_elastic import ELASTIC
from tests.support.elastic_trainer import after
from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

CARDS = "2xA100-80GB:nvlink=0,1xA100-40GB:mig=5*1g.5gb,1xL4:memory=24Gi:turns=4"
KINDS = {"whole": "gpus: 1", "instance": "migProfile: 1g.5gb", "turn": "gpuMemory: 6Gi"}
MEMBERS = {"whole": 2, "instance": 5, "turn": 3}
"""What is asked for; of five instances one, and of four turns one, are kept from training."""
HELD = {"whole": 2, "instance": 4, "turn": 3}


def job(folder: Path, kind: str) -> str:
    (folder / kind).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ELASTIC), str(folder / kind), "100000", "0.05"]
    return f"""---
apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {kind}}}
spec:
  command: {json.dumps(command)}
  resources: {{{KINDS[kind]}, cpu: 0.05, memory: 64Mi}}
  members: {MEMBERS[kind]}
  elasticity: {{minMembers: 1}}
"""


def model(kind: str, replicas: int) -> str:
    """One that wants so many replicas at once, each a card of this kind."""
    extra = f"  resources: {{{KINDS[kind]}, cpu: 0.05, memory: 64Mi}}"
    return "---\n" + simulated(
        kind, extra=extra, minReplicas=0, maxReplicas=replicas, keepAlive="1s", stableWindow="2s"
    )


async def told(relume: Running, path: str) -> Any:
    async with relume.session.get(f"{relume.admin}/{path}") as answer:
        answer.raise_for_status()
        return await answer.json()


async def members(relume: Running, state: str) -> dict[str, int]:
    """By job that is in this state, the members that run."""
    items = (await told(relume, "training"))["items"]
    return {one["metadata"]["name"]: one["status"]["readyMembers"] for one in items if one["status"]["state"] == state}


async def until_held(relume: Running) -> None:
    """Wait until training has of each kind of card what it may have."""
    seen: dict[str, int] = {}
    try:
        async with asyncio.timeout(150):
            while (seen := await members(relume, "Running")) != HELD:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not {HELD}, but {seen}") from None


async def test_every_kind_of_card_is_lent_and_taken_back(tmp_path: Path) -> None:
    """Training leaves its reserve of each kind; three models are served at once, and only those yield who hold the kind
    that lacks; all members come back; no step is lost or made twice; parts of cards add up to cards."""
    folder = tmp_path / "runs"
    documents = "".join([*(job(folder, kind) for kind in KINDS), *(model(kind, 2) for kind in KINDS)])
    async with running(tmp_path / "relume", documents, "--gpus", CARDS) as relume:
        await until_held(relume)
        inventory, top = await told(relume, "gpus"), (await told(relume, "top"))["nodes"][0]
        assert inventory["total"] == top["gpus"] == round(2 + 5 / 7 + 1, 2)
        assert inventory["free"] == round(1 / 7 + 1 / 4, 2)
        assert top["gpusGranted"] == pytest.approx(inventory["total"] - inventory["free"], abs=0.02)
        assert inventory["fragmentation"] <= inventory["free"] / inventory["total"]
        for kind in KINDS:
            body = {"replicas": 2, "for": "20s"}
            async with relume.session.put(f"{relume.admin}/models/{kind}/scale", json=body) as answer:
                assert answer.status == 200, await answer.text()
        answers = await asyncio.gather(*(relume.chat(kind) for kind in KINDS))
        assert [answer.status for answer in answers] == [200, 200, 200]
        for kind in KINDS:
            await relume.until(lambda status: status["readyReplicas"] == 2, kind)
        reclaims = [one["status"] for one in (await told(relume, "reclaims"))["items"]]
        taken = {(one["job"], one["shortage"]) for one in reclaims if one["cause"] == "shortage"}
        assert taken == {(kind, kind) for kind in KINDS}
        await until_held(relume)
    for kind in KINDS:
        lines = [line.split() for line in (folder / kind / "made.txt").read_text().splitlines()]
        assert [int(line[0]) for line in lines] == list(range(len(lines))), kind
        state = "start"
        for line in lines:
            assert line[2] == (state := after(state, int(line[0]))), kind
