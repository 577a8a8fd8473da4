"""What is said of cold starts from the disk, and of weights that do not fit: through a whole relume."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coldstart.cache.warming import resident
from deploy.demo.server import PROGRAM
from tests.e2e.test_weights import MIB, cache, cold, report, until_cache
from tests.support.flaky_origin import Origin, served
from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

CONTENT = random.Random(6).randbytes(32 * MIB) * 3
"""More than the least that is told as a phase."""


async def said(relume: Running, *arguments: str) -> str:
    """What a command prints."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, "--admin", relume.server.admin_url, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def dropped(folder: Path) -> bool:
    """The node's weights leave the page cache; whether they did: in a file system in memory they stay."""
    (weights,) = folder.rglob("snapshots/*/*")
    with weights.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = resident(weights)
    return share is not None and share < 0.9


async def starts_of(relume: Running) -> list[dict[str, Any]]:
    """The cold starts as the log has them."""
    async with relume.session.get(f"{relume.admin}/events?topic=relume.phases&from=beginning") as answer:
        told = [json.loads(line)["data"] for line in (await answer.text()).splitlines()]
    return [one for one in told if "firstByteAt" in one]


async def test_what_is_read_from_the_disk_is_told(tmp_path: Path) -> None:
    """`relume explain`, `relume coldstart report` as a table and as JSON: the phases of a start add up to what its
    request waited for, with `read` among them once, and all three say the same."""
    with served(Origin(CONTENT)) as origin:
        async with cold(tmp_path, origin) as relume:
            assert (await relume.chat(max_tokens=2)).status == 200
            await report(relume, 1)
            await relume.until(lambda status: status["state"] == "Zero")
            on_disk = await asyncio.to_thread(dropped, tmp_path)
            assert (await relume.chat(max_tokens=2)).status == 200
            await report(relume, 2)
            starts = await starts_of(relume)
            for start in starts:
                waited = start["firstByteAt"] - start["arrivedAt"]
                assert sum(start["phases"].values()) == pytest.approx(waited, abs=0.02)
            last = starts[-1]
            assert last["tier"] == ("disk" if on_disk else "memory")
            assert ("read" in last["phases"]) == on_disk

            (item,) = json.loads(await said(relume, "coldstart", "report", "-o", "json"))["items"]
            assert item["starts"] == 2 == item["met"] + item["missed"] + item["impossible"]
            assert item["tiers"] == {"remote": 1, last["tier"]: 1}
            table = await said(relume, "coldstart", "report")
            header, row = table.splitlines()[:2]
            assert header.split()[:4] == ["MODEL", "PROMISE", "STARTS", "MET"]
            for phase in item["phases"]:
                assert f"{phase['phase']} {phase['p50']:.2f}s" in row
            told = (await said(relume, "explain", "echo")).splitlines()[-1]
            for phase, seconds in last["phases"].items():
                assert f"{phase} {seconds:.2f} s" in told
            assert f"took {last['firstByteAt'] - last['arrivedAt']:.2f} s of the promised 3 s" in told


async def test_two_models_at_once_where_one_fits(tmp_path: Path) -> None:
    """Both are asked for at the same time: one starts at once; the other has its turn when that one is idle, is told
    what it waits for until then, and the cache never holds more than it may."""
    with served(Origin(CONTENT[: 8 * MIB])) as one, served(Origin(CONTENT[8 * MIB : 16 * MIB])) as two:
        one.rate = two.rate = 8.0 * MIB
        models = "---\n".join(
            simulated(name, extra=f"  weights: {{uri: {origin.url}}}\n") for name, origin in (("a", one), ("b", two))
        )
        held: list[int] = []
        async with running(tmp_path, models, "--cache-capacity", "12Mi") as relume:

            async def answered(name: str) -> None:
                while (answer := await relume.chat(name, max_tokens=1)).status != 200:
                    assert "8Mi are needed and 4Mi of 12Mi can be freed" in (await relume.status(name))["message"]
                    await asyncio.sleep(min(1, int(answer.headers["Retry-After"])))

            async def watched() -> None:
                while True:
                    held.append((await cache(relume)).get("usedBytes", 0))
                    await asyncio.sleep(0.05)

            watcher = asyncio.create_task(watched())
            async with asyncio.timeout(60):
                await asyncio.gather(answered("a"), answered("b"))
            watcher.cancel()
            assert max(held) <= 12 * MIB
            await until_cache(relume, lambda state: len(state["contents"]) == 1)
            assert one.sent + two.sent == 16 * MIB
