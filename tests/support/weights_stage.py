"""A local cluster with an agent over an HTTP origin of weights."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from deploy.local.agent import Agent, AgentSettings
from events.units import Seconds
from tests.support.flaky_origin import Origin, served
from tests.support.local_cluster import FAST, Stage, engine

CHUNK = 64 << 10
QUICK = FetchPolicy(chunk_bytes=CHUNK, backoff_first=Seconds(0.01), backoff_most=Seconds(0.05))


def content(chunks: int = 10, seed: int = 6) -> bytes:
    """So many chunks and a piece, incompressible and always the same."""
    return random.Random(seed).randbytes(chunks * CHUNK + 1234)


def tells_weights(uri: str, *flags: object, **weights: object) -> dict[str, object]:
    """A model on the fake engine that is given its weights' path in RELUME_WEIGHTS."""
    env = {"RELUME_WEIGHTS": "{weights}"}
    return engine(*flags, env=env) | {"weights": {"uri": uri, **weights}}


@asynccontextmanager
async def weights_stage(folder: Path, room: RoomPolicy | None = None) -> AsyncIterator[tuple[Stage, Agent]]:
    """A started cluster whose keeper is an agent on a folder of its own."""
    stage = Stage(folder / "data", replace(FAST, grace=Seconds(2.0)))
    settings = AgentSettings(fetching=QUICK, room=RoomPolicy() if room is None else room)
    agent = Agent(stage.folder.path / "weights", settings, stage.clock)
    await agent.open()
    stage.cluster.keeper = agent
    await stage.cluster.start()
    try:
        yield stage, agent
    finally:
        await stage.close()
        await agent.close()


__all__ = ["CHUNK", "QUICK", "Origin", "content", "served", "tells_weights", "weights_stage"]
