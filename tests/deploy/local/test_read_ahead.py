"""Weights that are on the disk only: they are read ahead of the engine, and a start tells how long that took."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from coldstart.cache import warming
from coldstart.core.phases import durations, one_by_one
from deploy.local import agent as agents
from events.types.replicas import Phase, PhaseSpan
from events.units import Instant
from tests.support.flaky_origin import Origin, served
from tests.support.weights_stage import content, tells_weights, weights_stage

WITHIN = 60.0


@pytest.mark.parametrize("outlasts", [False, True])
async def test_what_is_read_ahead_is_a_phase_beside_spawn_and_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outlasts: bool
) -> None:
    """From the fetch's end (a hit) until it is read, or until the engine is ready without it; counted once."""
    spawned, ended = threading.Event(), threading.Event()

    def warm(path: Path, stop: threading.Event) -> int:
        assert (stop if outlasts else spawned).wait(WITHIN)
        ended.set()
        return path.stat().st_size

    monkeypatch.setattr(warming, "resident", lambda _: 0.0)
    monkeypatch.setattr(warming, "warm", warm)
    monkeypatch.setattr(agents, "MEASURED", 1)
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(tells_weights(origin.url))
            await stage.grant(0)
            assert Phase.READ not in phases((await stage.ready()).replicas[0].phases)  # it was fetched: it is in memory
            await stage.grant(0, 1)
            await stage.until(
                lambda state: len(state.replicas) == 2 and Phase.SPAWN in phases(state.replicas[1].phases)
            )
            spawned.set()
            second = (await stage.ready(2)).replicas[1]
            assert ended.wait(WITHIN)
            assert second.weights is not None
            assert second.weights.tier == "disk"
            spans = second.phases
            assert phases(spans) == [Phase.FETCH, Phase.READ, Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
            read, last = spans[1], spans[-1]
            assert read.ended_at is not None
            assert last.ended_at is not None
            assert (read.ended_at == last.ended_at) == outlasts
            alone = durations(one_by_one(spans), Instant(last.ended_at))
            assert sum(alone.values()) == pytest.approx(last.ended_at - spans[0].started_at, abs=0.1)
            assert alone[Phase.READ] == pytest.approx(read.ended_at - spans[2].started_at, abs=0.1)


async def test_small_weights_take_no_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read ahead all the same."""
    asked: list[Path] = []

    def warm(path: Path, _: threading.Event) -> int:
        asked.append(path)
        return 0

    monkeypatch.setattr(warming, "resident", lambda _: 0.0)
    monkeypatch.setattr(warming, "warm", warm)
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(tells_weights(origin.url))
            await stage.grant(0)
            await stage.ready()
            await stage.grant(0, 1)
            second = (await stage.ready(2)).replicas[1]
            assert phases(second.phases) == [Phase.FETCH, Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
            assert len(asked) == 1


def phases(spans: tuple[PhaseSpan, ...]) -> list[Phase]:
    return [span.phase for span in spans]
