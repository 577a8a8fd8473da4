"""The lateness of the event loop."""

from __future__ import annotations

import asyncio
import time

from deploy.api.lag import EVERY, LoopLag


async def test_a_blocked_loop_is_seen_and_told_once() -> None:
    """Who blocks the loop is seen in the next look; the largest lateness is that since the last read."""
    lag = LoopLag()
    looking = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    time.sleep(EVERY + 0.2)  # noqa: ASYNC251 - blocking the loop is what this test is about
    await asyncio.sleep(0.01)
    first = {reading.name: reading.value for reading in lag.read()}
    second = {reading.name: reading.value for reading in lag.read()}
    looking.cancel()
    assert first["loop_lag_max_seconds"] >= 0.19
    assert first["loop_lag_seconds"] == second["loop_lag_seconds"] == second["loop_lag_max_seconds"]
