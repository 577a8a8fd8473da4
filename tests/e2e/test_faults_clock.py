"""The wall clock is set by an hour, while a whole relume runs and between two runs."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import tests.support.stepped_clock
from tests.support.faults import Whole, faulty, recorded
from tests.support.running import Running, simulated

pytestmark = pytest.mark.slow

PROGRAM = str(Path(tests.support.stepped_clock.__file__))
HOUR = 3600.0

KEPT = 3.0
"""Seconds of keep-alive of the model of these tests."""

MODEL = simulated(keepAlive=f"{KEPT:g}s", stableWindow="2s", options="startTime: 200ms, timeToFirstToken: 10ms")


def stepped(seconds: float, file: Path | str = "") -> tuple[str, ...]:
    """The command line, by a clock that is off by so much once the file exists."""
    return (sys.executable, PROGRAM, f"{seconds:g}", str(file))


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_while_it_runs(tmp_path: Path, step: float) -> None:
    """A step moves no deadline: the replica stays for its keep-alive and no longer, held requests are answered, nothing
    wakes or sleeps by it, and no duration is negative."""
    file = tmp_path / "step"
    async with faulty(Whole(tmp_path, MODEL, program=stepped(step, file))) as relume:
        assert (await relume.chat()).status == 200
        file.touch()
        await asyncio.sleep(KEPT / 2)
        assert (await relume.status())["readyReplicas"] == 1  # the keep-alive has neither run out nor begun anew
        answer = await relume.chat()
        assert answer.status == 200
        assert answer.headers["x-relume-cold-start"] == "false"
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0, within=KEPT * 4)
        answer = await relume.chat()
        assert answer.headers["x-relume-cold-start"] == "true"
        assert 0 <= int(answer.headers["x-relume-held-ms"]) < 30_000
        assert await _wishes(relume) in ([0, 1, 0, 1], [1, 0, 1])
        await _nothing_negative(relume)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_between_two_runs(tmp_path: Path, step: float) -> None:
    """A run whose clock is an hour off from the one before: the model answers, is kept, goes to zero, and wakes again;
    time does not go back in the log."""
    async with faulty(Whole(tmp_path, MODEL)) as relume:
        assert (await relume.chat()).status == 200
        before = await _wishes(relume)
    async with faulty(Whole(tmp_path, "", program=stepped(step))) as relume:
        assert (await relume.chat()).status == 200
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0, within=KEPT * 6)
        assert (await relume.chat()).headers["x-relume-cold-start"] == "true"
        after = (await _wishes(relume))[len(before) :]
        changes = [one for one, _ in itertools.groupby(after)]
        assert len(changes) <= 4, f"it flaps: {changes}"
        assert changes[-1] == 1
        await _nothing_negative(relume)
    async with faulty(Whole(tmp_path, "")) as relume:  # and the clock is set right again
        assert (await relume.chat()).status == 200
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0, within=KEPT * 6)
        assert (await relume.chat()).status == 200
        await _nothing_negative(relume)


async def _wishes(relume: Running) -> list[int]:
    """The wishes in the log, in order, without repetitions of a number."""
    wishes = [event["data"]["replicas"] for event in await recorded(relume, "relume.decisions", "wish.decided")]
    return [wish for wish, _ in itertools.groupby(wishes)]


async def _nothing_negative(relume: Running) -> None:
    """No duration that the log, the metrics or the status tell is below zero."""
    for topic, kind in (
        ("relume.requests", "request.window"), ("relume.phases", "coldstart.finished"),
        ("relume.replicas", "replicas.observed"),
    ):  # fmt: skip
        for event in await recorded(relume, topic, kind):
            _check(event["data"], kind)
    async with relume.session.get(f"{relume.server.admin_url}/metrics") as answer:
        for line in (await answer.text()).splitlines():
            assert line.startswith("#") or not line.rpartition(" ")[2].startswith("-"), line


def _check(value: Any, where: str) -> None:
    """Spans end at or after their beginning, and no number but an offset is below zero."""
    if isinstance(value, dict):
        for begin, end in (("startedAt", "endedAt"), ("createdAt", "readyAt"), ("started_at", "ended_at")):
            if value.get(begin) is not None and value.get(end) is not None:
                assert value[end] >= value[begin], f"{where}: {value}"
        for key, one in value.items():
            if key != "buckets":  # of a sketch: logarithms of seconds
                _check(one, f"{where}.{key}")
    elif isinstance(value, list):
        for one in value:
            _check(one, where)
    elif isinstance(value, int | float):
        assert value >= 0, where
