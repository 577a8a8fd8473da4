"""Weights from a real HTTP server, limited to 20 MiB/s a connection, through a whole relume."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.server import PROGRAM
from tests.support.faults import Whole, faulty
from tests.support.flaky_origin import Origin, served
from tests.support.running import Running, asking, running, simulated
from tests.support.waiting import until

pytestmark = pytest.mark.slow

MIB = 1 << 20
LIMIT = 20.0 * MIB
"""Bytes a second of each connection."""


def weights(size: int, seed: int = 6) -> Origin:
    """A limited origin of so many random bytes."""
    origin = Origin(random.Random(seed).randbytes(size))
    origin.rate = LIMIT
    return origin


def model(origin: Origin, extra: str = "", least: int = 0) -> str:
    """A simulated model with its weights there."""
    return simulated("echo", extra=f"  weights: {{uri: {origin.url}}}\n{extra}", minReplicas=least)


async def asked(relume: Running, path: str) -> Any:
    """One answer of the admin API."""
    async with relume.session.get(f"{relume.admin}/{path}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def cache(relume: Running) -> dict[str, Any]:
    """What the node tells of its weights; empty before it does."""
    items = (await asked(relume, "caches"))["items"]
    return dict(items[0]["status"]) if items else {}


async def until_cache(relume: Running, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The first state of the node's weights that is as wanted."""
    async with asyncio.timeout(30):
        while not ((state := await cache(relume)) and holds(state)):  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.1)
    return state


async def report(relume: Running, starts: int) -> dict[str, Any]:
    """The report of the only model, once so many cold starts are told: that follows the answer."""
    async with asyncio.timeout(20):
        while not (items := (await asked(relume, "coldstarts"))["items"]) or items[0]["starts"] < starts:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    return dict(items[0])


@asynccontextmanager
async def cold(folder: Path, origin: Origin) -> AsyncIterator[Running]:
    """A relume with one model whose weights are far away."""
    async with running(folder, model(origin)) as relume:
        yield relume


async def test_cold_from_http_says_where_time_went(tmp_path: Path) -> None:
    """A first request waits for the fetch and the engine; each phase and the verdict are in the report and the
    explanation. The next cold start finds the weights in memory, and asks the origin for nothing."""
    with served(weights(32 * MIB)) as origin:
        async with cold(tmp_path, origin) as relume:
            assert (await relume.chat(max_tokens=2)).status == 200
            first = await report(relume, 1)
            phases = {one["phase"]: one["p50"] for one in first["phases"]}
            assert {"fetch", "spawn", "load", "answer"} <= set(phases)
            assert first["tiers"] == {"remote": 1}
            assert first["met"] + first["missed"] + first["impossible"] == 1
            assert first["leastSeconds"] is not None
            assert first["leastSeconds"] <= first["p50"] + 0.01
            told = (await asked(relume, "models/echo/explain"))["sentences"][-1]
            assert told.startswith("The last cold start took")
            state = await until_cache(relume, lambda state: state["contents"])
            assert state["contents"][0]["models"] == ["echo"]
            assert state["network"] > 0
            await relume.until(lambda status: status["state"] == "Zero")
            assert (await relume.chat(max_tokens=2)).status == 200
            again = await report(relume, 2)
            assert again["tiers"] == {"memory": 1, "remote": 1}
            assert origin.sent == 32 * MIB


async def test_a_hundred_held_requests_are_one_fetch(tmp_path: Path) -> None:
    """A hundred requests for a model that is not here wait for one fetch; those that leave do not stop it."""
    with served(weights(8 * MIB)) as origin:
        origin.open_gate.clear()
        async with cold(tmp_path, origin) as relume:
            waiting = [asyncio.create_task(relume.chat(max_tokens=1)) for _ in range(100)]
            await relume.until(lambda status: status["heldRequests"] == 100)
            for task in waiting[:50]:
                task.cancel()
            await asyncio.gather(*waiting[:50], return_exceptions=True)
            await relume.until(lambda status: status["heldRequests"] == 50)
            origin.open_gate.set()
            answers = await asyncio.gather(*waiting[50:])
            assert {answer.status for answer in answers} == {200}
            assert origin.sent == 8 * MIB


async def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    """kill -9 of relume in the middle of a fetch: the next one fetches what is missing, few chunks twice."""
    with served(weights(96 * MIB)) as origin:
        whole = Whole(tmp_path, model(origin))
        await whole.start()
        async with asking(whole, tmp_path) as relume:
            held = asyncio.create_task(relume.chat())
            await until(lambda: origin.sent > 48 * MIB, 30, lambda: f"{origin.sent} bytes were sent")
            await whole.killed()
            await asyncio.gather(held, return_exceptions=True)
        async with faulty(Whole(tmp_path, "")) as relume:
            assert (await relume.chat(max_tokens=1)).status == 200
        assert origin.sent < 96 * MIB + 16 * 8 * MIB / 2


async def test_who_cannot_make_it_is_told_at_once(tmp_path: Path) -> None:
    """While weights come, a request that may not wait until then gets 503 at once, and when to come back."""
    with served(weights(240 * MIB)) as origin:
        origin.rate = 3.0 * MIB  # a connection: sixteen of them still need several seconds
        brief = "  coldStart: {hold: {maxWait: 2s}}"
        async with running(tmp_path, model(origin, extra=brief)) as relume:
            first = asyncio.create_task(relume.chat())

            async def coming() -> bool:
                replicas = await relume.replicas()
                return bool(replicas) and replicas[0]["status"]["phase"] == "fetch"

            async with asyncio.timeout(20):
                while not await coming() or origin.sent < 8 * MIB:  # noqa: ASYNC110 - it happens in another process
                    await asyncio.sleep(0.05)
            assert (await first).status in (503, 504)
            async with asyncio.timeout(20):
                while (answer := await relume.chat()).status != 503:
                    assert answer.status == 504
            assert int(answer.headers["Retry-After"]) >= 1
            origin.rate = None


async def test_commands_ask_the_relume_that_runs(tmp_path: Path) -> None:
    """`relume cache` on the folder of a running relume: fetch, pin and evict work, and it is the agent that does it."""
    with served(weights(4 * MIB)) as used, served(weights(2 * MIB, seed=7)) as other:
        async with cold(tmp_path, used) as relume:
            assert (await relume.chat(max_tokens=1)).status == 200

            async def cli(*arguments: str) -> tuple[int, str, str]:
                data = ("--data-dir", str(tmp_path / "data"))
                process = await asyncio.create_subprocess_exec(
                    *PROGRAM, "cache", *arguments, *data, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                out, err = await process.communicate()
                return process.returncode or 0, out.decode(), err.decode()

            code, out, err = await cli("fetch", other.url, "-o", "json")
            assert code == 0, err
            told = json.loads(out)
            assert await asyncio.to_thread(Path(told["path"]).read_bytes) == other.content
            assert (told["hit"], told["bytes"]) == (False, 2 * MIB)
            assert (await cli("pin", other.url))[0] == 0
            code, _, err = await cli("evict", other.url)
            assert (code, "pinned" in err) == (1, True)
            await until_cache(relume, lambda state: {one["source"]: one["pinned"] for one in state["contents"]} == {
                used.url: False, other.url: True,
            })  # fmt: skip
            async with relume.session.get(f"{relume.admin}/events?topic=relume.phases&from=beginning") as answer:
                types = [json.loads(line)["type"] for line in (await answer.text()).splitlines()]
            assert "relume.weights.fetched.v1" in types


async def test_prewarmed_is_warm(tmp_path: Path) -> None:
    """`relume prewarm MODEL`: the weights come without a replica; the first request then finds them in memory."""
    with served(weights(8 * MIB)) as origin:
        async with cold(tmp_path, origin) as relume:
            prewarm = await asyncio.create_subprocess_exec(
                *PROGRAM, "prewarm", "echo", "--admin", relume.server.admin_url, env=dict(os.environ)
            )
            assert await prewarm.wait() == 0
            state = await until_cache(relume, lambda state: state["contents"])
            assert state["models"][0]["tier"] == "memory"
            assert await relume.replicas() == []
            assert (await relume.chat(max_tokens=1)).status == 200
            assert (await report(relume, 1))["tiers"] == {"memory": 1}


async def test_other_weights_without_an_error(tmp_path: Path) -> None:
    """A declaration with other weights: the old replica answers until the new one has its own; no request fails."""
    with served(weights(4 * MIB)) as old, served(weights(48 * MIB, seed=7)) as new:
        extra = "  resources: {cpu: 0.1, memory: 64Mi}\n"
        async with running(tmp_path, model(old, extra=extra, least=1)) as relume:
            await relume.until(lambda status: status["readyReplicas"] == 1)
            status, _ = await relume.apply(model(new, extra=extra, least=1))
            assert status == 200
            answers = []
            while not any(name.endswith("-r2-0") for name in await _ready(relume)):
                answers.append((await relume.chat(max_tokens=1)).status)
            assert set(answers) == {200}
            assert len(answers) > 3


async def _ready(relume: Running) -> list[str]:
    replicas = await relume.replicas()
    return [one["metadata"]["name"] for one in replicas if one["status"]["state"] == "Ready"]
