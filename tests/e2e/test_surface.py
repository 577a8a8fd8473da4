"""The surface that users' scripts rely on: the documented example as it stands, shapes, streams, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.running import Running, running

pytestmark = pytest.mark.slow

EXAMPLE = """
apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {name: echo}
spec:
  engine: {type: simulated, options: {startTime: 500ms, timeToFirstToken: 20ms, interTokenLatency: 5ms}}
  weights: {uri: file:///models/echo}   # optional here; also digest, include, exclude
  resources: {gpus: 1, cpu: 1, memory: 1Gi}
  priority: 100
  slots: 4                      # concurrent requests a replica takes
  scaling: {minReplicas: 0, maxReplicas: 4, target: 4, keepAlive: 5s, policy: relume}
  coldStart: {sla: 3s, hold: {maxRequests: 1000, maxBytes: 64Mi, maxWait: 5m}, heartbeat: 5s}
  timeouts: {firstByte: 60s, idle: 120s, total: 10m}
  slo: {timeToFirstToken: {p95: 2s}, availability: 99.9}
"""
"""The declaration that the design promises to go on accepting, word for word."""


async def relume_command(*arguments: str, admin: str = "http://127.0.0.1:1") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command; `admin` goes by RELUME_ADMIN."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli.main", *arguments, env=os.environ | {"RELUME_ADMIN": admin},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def first_lines(relume: Running, count: int, *arguments: str) -> list[str]:
    """The first lines that a command which goes on for ever writes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli.main", *arguments,
        env=os.environ | {"RELUME_ADMIN": relume.server.admin_url}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            return [(await process.stdout.readline()).decode() for _ in range(count)]
    finally:
        process.terminate()
        await process.wait()


async def test_the_documented_example(tmp_path: Path) -> None:
    """It is accepted as it stands, wakes, answers, and is told in the documented shapes: on standard output alone."""
    async with running(tmp_path, EXAMPLE, "--gpus", "4") as relume:
        admin = relume.server.admin_url
        assert (await relume.status())["state"] == "Zero"
        assert (await relume.chat()).status == 200
        code, out, err = await relume_command("get", "models", "-o", "json", admin=admin)
        assert (code, err) == (0, "")
        (item,) = json.loads(out)["items"]
        assert set(item) == {"metadata", "spec", "status"}
        assert item["metadata"]["name"] == "echo"
        told = ("state", "reason", "message", "replicas", "readyReplicas", "heldRequests", "runningRequests")
        assert {key: type(item["status"][key]) for key in told} == {
            "state": str, "reason": str, "message": str, "replicas": int, "readyReplicas": int, "heldRequests": int,
            "runningRequests": int,
        }  # fmt: skip
        lines = await first_lines(
            relume, 3, "events", "tail", "--topic", "relume.decisions", "--from-beginning", "-o", "json"
        )
        events = [json.loads(line) for line in lines]
        assert {event["specversion"] for event in events} == {"1.0"}
        assert any(event["type"] == "relume.wish.decided.v1" for event in events)
        code, out, err = await relume_command("explain", "echo", "-o", "json", admin=admin)
        assert (code, err, json.loads(out)["model"]) == (0, "", "echo")
        code, out, err = await relume_command("explain", "ecko", "-o", "json", admin=admin)
        assert (code, out) == (1, "")
        assert "echo" in err
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0)


async def test_a_second_one_on_the_same_folder_names_the_first(tmp_path: Path) -> None:
    """It is refused with the pid of the first, which goes on."""
    async with running(tmp_path, EXAMPLE, "--gpus", "4") as relume:
        folder = str(tmp_path / "data")
        code, out, err = await relume_command("up", "--data-dir", folder, "--gateway-port", "0", "--admin-port", "0")
        assert (code, out) == (1, "")
        first = relume.server._process
        assert first is not None
        assert f"pid {first.pid}" in err
        assert (await relume.chat()).status == 200


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("cache", "fetch", "file:///x"), 1), (("train", "submit", "-f", "x"), 1), (("agent",), 2),
        (("get", "horses"), 2), (("explain",), 2), (("get", "models"), 1), (("validate", "-f", "/no/such/file"), 1),
        (("version",), 0), (("--version",), 0), (("schema",), 0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)  # fmt: skip
async def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    """0 done, 1 the answer is no (here: nobody is there), 2 wrong use; what is not built is absent."""
    got, out, err = await relume_command(*arguments)
    assert got == code
    assert bool(out) is (code == 0), err
