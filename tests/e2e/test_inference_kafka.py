"""Ten thousand asynchronous requests on Kafka; the runtime is killed, the broker is killed, producers repeat and err:
one outcome each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.demo.server import Server
from events.clock import SystemClock
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import wipe
from tests.support.kafka_shop import PARTITIONS, REQUESTS, Reader, Shop
from tests.support.running import simulated

pytestmark = [
    pytest.mark.needs("kafka"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

COUNT = int(os.environ.get("RELUME_INFERENCE_COUNT", "10000"))
"""Requests; more of them for a soak."""
KILLS = ((0.1, "runtime"), (0.25, "broker"), (0.4, "runtime"), (0.55, "broker"), (0.7, "both"))
"""What is killed once such a share has an outcome."""
FLOW = 300
"""Outcomes after a kill: more than one transaction holds (`settling.MOST`), which the reader may see late."""
AGAIN = 60.0
"""Longest time, in seconds, until outcomes flow when a process was killed: joining, reading what has an outcome,
waiting for what the dead one left open (10 s at most); the rest is for a busy machine."""
FAST = "startTime: 100ms, timeToFirstToken: 1ms, interTokenLatency: 0ms"
NEVER = FAST + ", failStart: spawn"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """The broker, without topics."""
    broker = shared_broker()
    wipe(broker)
    yield broker
    broker.revive()


def never(seconds: float) -> dict[str, object]:
    """A request for the model that does not start, with a deadline."""
    at = datetime.fromtimestamp(SystemClock().now(), UTC) + timedelta(seconds=seconds)
    body = {"model": "never", "messages": [{"role": "user", "content": "hello"}]}
    return {"path": "/v1/chat/completions", "body": body, "deadline": at.isoformat()}


def odd_ones(shop: Shop) -> set[str]:
    """Poison, each of its own kind; those that must end as dead letters."""
    for number in range(20):
        shop.send(f"garbage-{number}", None, raw=b'{"path": "/v1/chat')
        shop.send(f"wrong-{number}", {"path": 7, "body": "no object"})
        shop.send(f"newer-{number}", shop.order(number), kind="relume.inference.requested.v9")
        shop.send(f"path-{number}", shop.order(number, path="/etc/passwd"))
        shop.send(f"date-{number}", shop.order(number, deadline="tomorrow"))
        shop.send(f"past-{number}", shop.order(number, deadline="2001-01-01T00:00:00Z"))
        shop.send(f"reply-{number}", shop.order(number, replyTopic="relume.models"))
    shop.send("unknown", {"body": {"model": "nobody"}}, model="nobody")
    shop.send("huge", {"body": {"model": "echo", "prompt": "x" * (1 << 20)}})
    dead = set(shop.sent)
    for number in range(20):  # sound, though the producer's key, partitioner or clock is not
        shop.send(f"stray-{number}", shop.order(number), partition=number % PARTITIONS)
        shop.send(f"key-{number}", shop.order(number), key="something else")
        shop.send(f"future-{number}", shop.order(number), time="2199-01-01T00:00:00Z")
    for number in range(10):  # nobody is named: they stall nothing, and are letters for people
        shop.producer.send(REQUESTS, b"\x00garbage", partition=number % PARTITIONS)
        shop.producer.send(REQUESTS, None, key=b"echo", partition=number % PARTITIONS)
    return dead


async def killed(server: Server, broker: Broker, reader: Reader, what: str) -> float:
    """kill -9 of the runtime, of the broker or of both, and each again on what it had; the seconds until outcomes flow
    from when both run."""
    process = server._process
    assert process is not None
    if what != "runtime":
        await asyncio.to_thread(broker.kill)
    if what != "broker":
        process.kill()
        await process.wait()
    if what != "runtime":
        await asyncio.to_thread(broker.start)
    began = SystemClock().now()
    if what != "broker":
        await server.start()
    await reader.until(len(reader.outcomes) + FLOW, AGAIN)
    return SystemClock().now() - began


async def test_every_request_has_one_outcome(
    broker: Broker, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Whatever is sent, and whenever the runtime or the broker is killed: a reader of committed records sees one result
    or one dead letter for each request; a model that never starts delays nobody else."""
    tmp_path.joinpath("models.yaml").write_text(
        simulated("echo", options=FAST, extra="  slots: 16", keepAlive="60s", maxReplicas=2)
        + "---\n" + simulated("never", options=NEVER, maxReplicas=1),
        encoding="utf-8",
    )  # fmt: skip
    server = Server(tmp_path, (
        "-f", str(tmp_path / "models.yaml"), "--events", f"kafka://{broker.address}",
        "--kafka-partitions", str(PARTITIONS), "--access-log", "", "--drain-bound", "5s",
    ))  # fmt: skip
    await server.start()
    reader, shop = Reader(broker), Shop(broker)
    pauses: list[tuple[str, float]] = []
    try:
        hopeless = {f"never-{number}" for number in range(60)}
        for ident in hopeless:
            shop.send(ident, never(25), model="never")
        dead = odd_ones(shop)
        for number in range(COUNT):
            shop.send(f"order-{number}", shop.order(number))
            if number % 10 == 0:
                shop.send(f"order-{number // 2}", shop.order(number // 2))
        await asyncio.to_thread(shop.producer.flush, 60)
        for share, what in KILLS:
            await reader.until(int(COUNT * share), 240)
            pauses.append((what, round(await killed(server, broker, reader, what), 1)))
        await reader.until(len(shop.sent), 300)
        await asyncio.sleep(2)  # whatever comes twice would come now
        code = await server.stop()
    finally:
        await server.stop()
        reader.close()
        shop.producer.close(5)
    record_property("seconds until outcomes flow", pauses)
    assert {name: count for name, count in reader.outcomes.items() if count > 1} == {}
    assert set(reader.outcomes) == shop.sent
    assert set(reader.reasons) == dead | hopeless
    assert {reader.reasons[name] for name in hopeless} == {"deadline_exceeded"}
    assert code == 0
