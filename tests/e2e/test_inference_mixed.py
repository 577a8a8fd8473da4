"""Requests by HTTP and requests by Kafka for one model: one queue, callers in turn, one outcome each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from deploy.demo.server import Server
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import wipe
from tests.support.kafka_shop import PARTITIONS, Reader, Shop
from tests.support.running import simulated

pytestmark = [
    pytest.mark.needs("kafka"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

EVENTS, CALLS = 120, 40
SLOW = "startTime: 100ms, timeToFirstToken: 50ms, interTokenLatency: 0ms"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """The broker, without topics."""
    broker = shared_broker()
    wipe(broker)
    yield broker
    broker.revive()


async def test_both_kinds_stand_in_one_queue(broker: Broker, tmp_path: Path) -> None:
    """Two slots, and far more asked for by events than by HTTP: all are answered, once each, and whoever calls by HTTP
    gets every other turn instead of waiting behind all events that came before."""
    tmp_path.joinpath("models.yaml").write_text(
        simulated("echo", options=SLOW, extra="  slots: 2", keepAlive="60s", maxReplicas=1), encoding="utf-8"
    )
    server = Server(tmp_path, (
        "-f", str(tmp_path / "models.yaml"), "--events", f"kafka://{broker.address}",
        "--kafka-partitions", str(PARTITIONS), "--access-log", "", "--drain-bound", "5s",
    ))  # fmt: skip
    await server.start()
    reader, shop = Reader(broker), Shop(broker)
    try:
        for number in range(EVENTS):
            shop.send(f"order-{number}", shop.order(number))
        await asyncio.to_thread(shop.producer.flush, 60)
        await reader.until(1, 60)  # they have their turns by now
        statuses = await _calls(server)
        events_before_the_last_call = len(reader.outcomes)
        await reader.until(EVENTS, 120)
        code = await server.stop()
    finally:
        await server.stop()
        reader.close()
        shop.producer.close(5)
    assert statuses == [200] * CALLS
    assert reader.results == shop.sent
    assert set(reader.outcomes.values()) == {1}
    assert events_before_the_last_call < EVENTS, "a caller's turn came only after all events"
    assert code == 0


async def _calls(server: Server) -> list[int]:
    """All calls at once; their statuses."""
    asked = {"model": "echo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}

    async with aiohttp.ClientSession() as session:

        async def call() -> int:
            async with session.post(f"{server.gateway_url}/v1/chat/completions", json=asked) as answer:
                await answer.read()
                return answer.status

        return list(await asyncio.gather(*(call() for _ in range(CALLS))))
