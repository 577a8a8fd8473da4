"""Single requests that come together at a replica's front, through a whole relume."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

ASKED = 24
SLOW = "startTime: 100ms, timeToFirstToken: 200ms, interTokenLatency: 1ms"


async def embedded(relume: Running, text: str) -> Any:
    """The vector of one text, and how many tokens it was."""
    asked = {"model": "vectors", "input": text}
    async with relume.session.post(f"{relume.gateway}/v1/embeddings", json=asked) as answer:
        assert answer.status == 200, await answer.text()
        told = await answer.json()
    (one,) = told["data"]
    assert one["index"] == 0
    return one["embedding"], told["usage"]["prompt_tokens"]


async def front(relume: Running) -> dict[str, Any]:
    """What the only replica's front tells of itself."""
    async with relume.session.get(f"{relume.admin}/replicas") as answer:
        (item,) = (await answer.json())["items"]
    address = urlsplit(f"http://{item['status']['address']}")
    async with relume.session.get(f"http://{address.netloc}/.relume/batching") as answer:
        assert answer.status == 200, await answer.text()
        told: dict[str, Any] = await answer.json()
        return told


async def test_requests_that_come_together_are_one_at_the_engine(tmp_path: Path) -> None:
    """Each gets its own vector, the same as alone, and its share of the tokens; the engine was asked far fewer times
    than there were requests."""
    extra = "  slots: 32\n  batching: {rule: fixed, window: 100ms, maxSize: 32}\n"
    async with running(
        tmp_path, simulated("vectors", options=SLOW, extra=extra, maxReplicas=1, keepAlive="1m")
    ) as relume:
        alone = await embedded(relume, "text 0")
        before = await front(relume)
        many = await asyncio.gather(*(embedded(relume, f"text {number}") for number in range(ASKED)))
        after = await front(relume)
    assert many[0][0] == alone[0]
    assert sum(tokens for _, tokens in many) == ASKED * alone[1]
    assert len({tuple(vector) for vector, _ in many}) == ASKED
    assert after["requests"] - before["requests"] == ASKED
    assert 1 <= after["batches"] - before["batches"] <= ASKED // 2
