"""Many requests at once to a model at zero: none lost, none twice, in order and in turn, within the slots."""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path

import openai
import pytest

from tests.support.openai_clients import HELLO, access_lines, asynchronous, levels, logged, reached, stats_of
from tests.support.running import Running, simulated

pytestmark = pytest.mark.slow

CALLERS = ("ann", "bob", "cat", "dan")


async def test_a_thousand_requests(tmp_path: Path) -> None:
    """1,000 at once from four API keys, every fifth by OpenAI's client: each runs once, at its first try."""
    document = simulated(
        options="startTime: 1s, timeToFirstToken: 2ms, maxTokens: 2", extra="  slots: 8",
        maxReplicas=2, keepAlive="60s", stableWindow="60s",
    )  # fmt: skip
    async with logged(tmp_path, document) as relume:
        clients = {caller: asynchronous(relume, api_key=caller) for caller in CALLERS}
        asked = [(caller, number) for number in range(250) for caller in CALLERS]
        try:
            statuses = await asyncio.gather(*(
                _ask(relume, caller, number) if number % 5 else _ask_by_openai(clients[caller], number)
                for caller, number in asked
            ))  # fmt: skip
        finally:
            for client in clients.values():
                await client.close()
        assert statuses == [200] * 1000
        await reached(relume, 1000, status=200)
        assert len(access_lines(relume)) == 1000
        engines = await stats_of(relume, "echo", ids=2000)
    seen = [one for stats in engines for one in stats["ids"]]
    assert sorted(seen) == sorted(f"{caller}-{number}" for caller, number in asked)
    assert sum(stats["total"] for stats in engines) == 1000
    assert [(stats["duplicates"], stats["oversold"]) for stats in engines] == [(0, 0)] * len(engines)


async def _ask_by_openai(client: openai.AsyncOpenAI, number: int) -> int:
    """200 for a whole answer at the first try; every second one is streamed."""
    headers = {"x-request-id": f"{client.api_key}-{number}"}
    if number % 2:
        chunks = await client.chat.completions.create(
            model="echo", messages=HELLO, extra_headers=headers, stream=True
        )  # fmt: skip
        assert [chunk.choices[0].finish_reason async for chunk in chunks][-1] == "stop"
        return 200
    raw = await client.chat.completions.with_raw_response.create(model="echo", messages=HELLO, extra_headers=headers)
    assert raw.parse().choices[0].message.content
    assert raw.retries_taken == 0
    return raw.status_code


async def test_order_within_a_caller_and_turns_between_callers(tmp_path: Path) -> None:
    """200 held requests of four callers reach an engine of one slot in the order of arrival, one of each in turn."""
    document = simulated(
        options="timeToFirstToken: 1ms, maxTokens: 1", extra="  slots: 1", maxReplicas=1, keepAlive="60s"
    )  # fmt: skip
    async with logged(tmp_path, document) as relume:
        by_hand = f"{relume.admin}/models/echo/scale"
        async with relume.session.put(by_hand, json={"replicas": 0, "for": "1h"}) as answer:  # until all wait
            assert answer.status == 200
        # Bob asks for everything first, then ann, and so on: turns must not depend on who came first.
        order = [(caller, number) for caller in ("bob", "ann", "dan", "cat") for number in range(50)]
        asked = []
        for caller, number in order:
            asked.append(asyncio.create_task(_ask(relume, caller, number)))
            await asyncio.sleep(0)
        await relume.until(levels(0, 200))
        async with relume.session.delete(by_hand) as answer:
            assert answer.status == 200
        assert await asyncio.gather(*asked) == [200] * 200
        (stats,) = await stats_of(relume, "echo", ids=300)
        arrived: dict[str, list[str]] = collections.defaultdict(list)
        for line in sorted(await reached(relume, 200, status=200), key=lambda line: str(line["time"])):
            arrived[line["request"].partition("-")[0]].append(line["request"])
    assert (stats["oversold"], stats["duplicates"], stats["peak"], stats["total"]) == (0, 0, 1, 200)
    dispatched: list[str] = stats["ids"]
    for caller in CALLERS:
        assert [one for one in dispatched if one.startswith(caller)] == arrived[caller]
    for turn in range(0, 200, 4):
        callers = {one.partition("-")[0] for one in dispatched[turn : turn + 4]}
        assert callers == set(CALLERS), f"turn {turn // 4} was {dispatched[turn : turn + 4]}"


async def _ask(relume: Running, caller: str, number: int) -> int:
    headers = {"Authorization": f"Bearer {caller}", "x-request-id": f"{caller}-{number}"}
    body = {"model": "echo", "messages": HELLO}
    async with relume.session.post(f"{relume.gateway}/v1/chat/completions", json=body, headers=headers) as answer:
        await answer.read()
        return answer.status
