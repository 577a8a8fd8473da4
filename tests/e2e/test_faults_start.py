"""Models that cannot start, beside one that can: what those who wait are told, when it is tried again, who suffers."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from events.clock import SystemClock
from tests.support.faults import cli, recorded
from tests.support.openai_clients import command, together
from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

HEALTHY = simulated(options="startTime: 100ms, timeToFirstToken: 20ms, interTokenLatency: 1ms", keepAlive="60s")


def wrong_command(name: str, *argv: str) -> str:
    """A Model document whose engine is a command that does not do."""
    words = json.dumps(list(argv))
    return f"""apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec:
  engine: {{type: command, options: {{command: {words}}}}}
  resources: {{cpu: 0.1, memory: 64Mi}}
  slots: 2
  scaling: {{minReplicas: 0, maxReplicas: 1}}
"""


async def test_each_says_why(tmp_path: Path) -> None:
    """Requests that wait for models that cannot start get 503 with the engine's reason at the third failure, and get,
    describe and explain tell it too; a model beside them is not delayed."""
    documents = together(
        HEALTHY,
        simulated("exits", options="failStart: spawn, exitCode: 3"),
        simulated("loads", options="startTime: 100ms, failStart: load, exitCode: 5"),
        wrong_command("missing", "/no/such/engine", "{port}"),
        wrong_command("says", "sh", "-c", "echo cannot open weights.gguf >&2; exit 9 # {port}"),
        command("slots", "--max-num-seqs", "3"),
        _without_weights("weights", tmp_path / "none.gguf"),
    )
    reasons = {
        "exits": "3", "loads": "5", "missing": "/no/such/engine", "says": "9", "slots": "3",
        "weights": "none.gguf",
    }  # fmt: skip
    async with running(tmp_path, documents) as relume:
        assert (await relume.chat()).status == 200
        quiet = await _latencies(relume, 40)
        asked = {name: asyncio.create_task(relume.chat(name)) for name in reasons}
        beside = await _latencies(relume, 150)
        answers = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        assert beside[int(len(beside) * 0.95)] < max(2 * quiet[int(len(quiet) * 0.95)], 1.0)
        for name, answer in answers.items():
            assert answer.status == 503, (name, answer.status)
            error = (await answer.json())["error"]
            assert error["code"] == "model_start_failed", name
            assert "3 times" in error["message"], name
            assert reasons[name] in error["message"], (name, error["message"])
            assert int(answer.headers["Retry-After"]) >= 1
            await relume.until(lambda status: status["state"] == "Failed", name)
            status = await relume.status(name)
            assert status["failures"] >= 3
            assert status["reason"]
            assert reasons[name] in status["message"], status
        assert (await relume.status())["readyReplicas"] == 1
        listed = await cli(relume, "get", "models")
        assert listed.out.count("Failed") == len(reasons)
        described = await cli(relume, "describe", "model", "says")
        assert described.code == 0
        assert "cannot open weights.gguf" in described.out
        explained = await cli(relume, "explain", "exits")
        assert explained.code == 0
        assert "start" in explained.out
        assert "3" in explained.out


async def test_back_off_and_recovery(tmp_path: Path) -> None:
    """Tries are further and further apart; once the cause is gone the next try serves who waits, and the count is 0."""
    stop = tmp_path / "broken"
    stop.touch()
    options = f"startTime: 50ms, failStart: spawn, failStartWhile: {stop}"
    async with running(tmp_path, simulated(options=options, minReplicas=1, maxReplicas=1)) as relume:
        await relume.until(lambda status: status["failures"] >= 4, within=40)
        assert (await relume.chat()).status == 503  # at once: the next try is later than three failures
        stop.unlink()
        await relume.until(lambda status: status["state"] == "Ready", within=40)
        assert (await relume.status())["failures"] == 0
        assert (await relume.chat()).status == 200
        failures: dict[int, float] = {}
        for event in await recorded(relume, "relume.replicas", "replicas.observed"):
            data = event["data"]
            if data["failures"]:
                failures.setdefault(data["failures"], data["retryAt"])
        tries = [failures[number] for number in sorted(failures)]
        gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert len(gaps) >= 3
        for gap, doubled in zip(gaps, (2, 4, 8, 16, 32), strict=False):  # 1 s, 2 s, … after each failed start
            assert doubled * 0.95 <= gap <= doubled + 5


async def test_a_short_wait_is_not_held_for_nothing(tmp_path: Path) -> None:
    """A request whose deadline is before the next try is told at the first failure, long before its deadline passes."""
    async with running(tmp_path, simulated(options="failStart: spawn")) as relume:
        clock = SystemClock()
        url, headers = f"{relume.gateway}/v1/chat/completions", {"x-relume-timeout": "30s"}
        first = asyncio.create_task(relume.chat())
        await relume.until(lambda status: status["failures"] >= 2)
        began = clock.now()
        body = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
        async with relume.session.post(url, json=body, headers=headers | {"x-relume-timeout": "500ms"}) as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "model_start_failed"
        assert clock.now() - began < 5
        assert (await first).status == 503


async def test_a_start_that_hangs(tmp_path: Path) -> None:
    """Who waits for an engine that never becomes healthy is told at its own deadline what it waits for; describe shows
    the phase; others are served meanwhile."""
    documents = together(HEALTHY, simulated("hangs", options="failStart: hang"))
    async with running(tmp_path, documents) as relume:
        body = {"model": "hangs", "messages": [{"role": "user", "content": "x"}]}
        url, headers = f"{relume.gateway}/v1/chat/completions", {"x-relume-timeout": "4s"}
        async with asyncio.timeout(30):
            async with relume.session.post(url, json=body, headers=headers) as answer:
                assert answer.status == 504
                error = (await answer.json())["error"]
        assert error["code"] == "deadline_exceeded"
        assert "start" in error["message"]
        assert (await relume.status("hangs"))["state"] == "Starting"
        described = await cli(relume, "describe", "model", "hangs")
        assert "load" in described.out
        assert (await relume.chat()).status == 200


def _without_weights(name: str, path: Path) -> str:
    return f"""apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec:
  engine: {{type: llamacpp}}
  weights: {{uri: {json.dumps(path.as_uri())}}}
  resources: {{cpu: 0.1, memory: 64Mi}}
  slots: 1
  scaling: {{minReplicas: 0, maxReplicas: 1}}
"""


async def _latencies(relume: Running, count: int) -> list[float]:
    """Seconds of so many requests to the healthy model, one after the other, sorted."""
    clock, found = SystemClock(), []
    for _ in range(count):
        began = clock.now()
        assert (await relume.chat(max_tokens=2)).status == 200
        found.append(clock.now() - began)
    return sorted(found)
