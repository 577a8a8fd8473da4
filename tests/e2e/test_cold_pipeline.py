"""The embedded model cold from HTTP and from an S3-compatible store: one pipeline, not one thing after the other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deploy.demo.model import cached_path
from tests.support.limited_origins import Start, limited, newest_start
from tests.support.openai_clients import llamacpp, together
from tests.support.running import Running, running
from tests.support.s3_store import CREDENTIALS

pytestmark = [pytest.mark.slow, pytest.mark.needs("model"), pytest.mark.needs("nginx"), pytest.mark.needs("versitygw")]

ENGINE = ("load", "warmup", "answer")


async def started(relume: Running, model: str) -> Start:
    """Its first cold start, answered by the real model."""
    answer = await relume.chat(model, max_tokens=2)
    assert answer.status == 200
    assert (await answer.json())["choices"][0]["message"]["content"]
    async with asyncio.timeout(30):
        while True:  # it is told after the answer
            try:
                return await newest_start(relume.session, relume.admin, model)
            except LookupError:
                await asyncio.sleep(0.05)


def is_one_pipeline(start: Start) -> None:
    """All shares are of the same start, so that they hold on a machine of any speed.

    Of what could go on beside the slowest of network, disk and digest (the other two, and the spawn), most did.
    """
    times, (fetching, fetched), (spawning, spawned) = start.times, start.span("fetch"), start.span("spawn")
    stages = [times["network"], times["disk"], times["digest"]]
    assert fetching <= spawning < fetched, "the engine is spawned while bytes come"
    after = start.parts["hold"] + times["prepare"] + sum(start.parts.get(phase, 0.0) for phase in ENGINE)
    least = max(stages) + after
    one_by_one = sum(stages) + spawned - spawning + after
    assert least < start.seconds + 0.01, "it cannot be quicker than its slowest part"
    assert start.seconds - least < 0.5 * (one_by_one - least), (start, least, one_by_one)
    assert times["publish"] < 0.5 * (times["digest"] + times["disk"]), "nothing is read, copied or digested once more"


async def test_a_cold_start_takes_its_slowest_part_and_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From both sources, with 8 MiB/s a connection so that the network is slowest here: recorded stages overlap, the
    spawn is hidden, and the first byte comes after the slowest of them and the engine's load."""
    monkeypatch.setenv("RELUME_TEST_S3", CREDENTIALS)
    with limited(tmp_path / "origins", cached_path(), "8m") as weights:
        own = json.dumps(str(cached_path()))
        documents = together(
            *(llamacpp(name).replace(f"{{uri: {own}}}", json.dumps(where)) for name, where in
              (("http", weights.http), ("store", weights.s3)))
        )  # fmt: skip
        async with running(tmp_path / "relume", documents) as relume:
            for name in ("http", "store"):
                start = await started(relume, name)
                is_one_pipeline(start)
