"""Bad events on Kafka against a whole relume: each has its documented end, and what comes after it acts at once.

(How each is judged, place by place, is in `tests/events/test_kafka_foreign.py`.)
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.openai_clients import together
from tests.support.running import Running, running, simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

REQUESTS, METRICS = "relume.requests", "relume.metrics"
SIGNAL = "relume.signal.measured.v1"
HOUR, DAY = 3600.0, 86_400.0


@dataclass
class Event:
    """A CloudEvent in binary mode, right unless something is changed."""

    data: object
    kind: str = "relume.activation.requested.v1"
    topic: str = REQUESTS
    key: bytes | None = b"model/echo"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    at: float | None = None


def jobs(value: object, **more: object) -> Event:
    return Event({"model": "echo", "name": "jobs", "value": value, **more}, SIGNAL, METRICS)


class Sender:
    """A foreign producer."""

    def __init__(self, broker: Broker) -> None:
        self._producer = KafkaProducer(bootstrap_servers=broker.address, max_request_size=4 << 20)
        self._count = 0

    def send(self, event: Event, partition: int | None = None) -> None:
        self._count += 1
        headers = {
            "ce_specversion": "1.0", "ce_id": f"e{self._count}", "ce_source": "//acme.example/bad",
            "ce_type": event.kind, "content-type": "application/json", **event.headers,
        }  # fmt: skip
        value = json.dumps(event.data).encode() if event.raw is None else event.raw
        self._producer.send(
            event.topic, value, key=event.key, partition=partition,
            headers=[(name, text.encode()) for name, text in headers.items()],
            timestamp_ms=None if event.at is None else round(event.at * 1000),
        ).get(60)  # fmt: skip

    def close(self) -> None:
        self._producer.close(5)


NOW = time.time()  # noqa: TID251 - producers have clocks of their own

DEAD = {
    "garbage": (Event(None, raw=b"\xff\x00\x01"), "data: must be JSON"),
    "no JSON object": (Event([1, 2]), "data"),
    "a wrong field": (jobs("many"), "data.value"),
    "not a number": (Event(None, SIGNAL, METRICS, raw=b'{"model":"echo","name":"jobs","value":NaN}'), "must be JSON"),
    "oversized": (jobs(1, note="x" * (1 << 20)), "the most is"),
    "another specification": (Event({"model": "echo"}, headers={"ce_specversion": "0.3"}), "specversion"),
    "on the wrong topic": (Event({"model": "echo"}, topic=METRICS), "belongs on topic"),
    "not a type of ours": (Event({"model": "echo"}, "com.acme.order.placed"), "is not an event type"),
    "a time without a zone": (Event({"model": "echo"}, headers={"ce_time": "2026-11-29T18:00:00"}), "time"),
}
"""What becomes a dead letter, and what its reason says."""

HARMLESS = {
    "a newer version": Event({"model": "echo"}, "relume.activation.requested.v9"),
    "a newer type": Event({"model": "echo"}, "relume.dream.dreamt.v1"),
    "an activation that is over": Event({"model": "echo", "replicas": 4, "until": NOW - HOUR}),
    "a model that is not declared": Event({"model": "nobody", "replicas": 3}),
    "a name that no model can have": Event({"model": "No Body", "replicas": 3}),
    "a finish of nothing": Event({"model": "echo", "request": "r0"}, "relume.request.finished.v1"),
    "an unknown replica": Event(
        {"model": "echo", "replica": "x", "revision": 7, "running": 9}, "relume.replica.metrics.v1", METRICS
    ),
}
"""What is ignored, or has no effect."""


async def test_each_has_its_end_and_nobody_stalls(broker: Broker, tmp_path: Path) -> None:
    """All of them in one partition after the other; the model stays at zero; then a sound event wakes it."""
    async with on_kafka(broker, tmp_path, simulated()) as relume:
        sender = Sender(broker)
        for partition in range(3):
            for event, _ in DEAD.values():
                await asyncio.to_thread(sender.send, event, partition)
            for event in HARMLESS.values():
                await asyncio.to_thread(sender.send, event, partition)
        letters = await _letters(relume, 3 * len(DEAD))
        for name, (event, reason) in DEAD.items():
            found = [one for one in letters if reason in one["reason"] and one["topic"] == event.topic]
            assert len(found) >= 3, f"{name}: {[one['reason'] for one in letters]}"
        assert (await relume.status())["state"] == "Zero"
        await asyncio.to_thread(sender.send, jobs(15, target=10))
        await relume.until(lambda status: status["readyReplicas"] == 2, within=90)
        assert len(await _letters(relume, 3 * len(DEAD))) == 3 * len(DEAD), "no other letters, none twice"
        sender.close()


async def test_producers_clocks_do_not_matter(broker: Broker, tmp_path: Path) -> None:
    """Windows, numbers and wishes of a producer whose clock is wrong count from when the broker appended them: the
    record's time, the event's and those inside the window are not believed."""
    skews = {"day-slow": -DAY, "hour-slow": -HOUR, "hour-fast": HOUR, "day-fast": DAY}
    busy = [simulated(f"{name}-busy", keepAlive="2m", stableWindow="2m", maxReplicas=1) for name in skews]
    sized = [simulated(f"{name}-sized", maxReplicas=2) for name in skews]
    async with on_kafka(broker, tmp_path, together(*busy, *sized)) as relume:
        sender = Sender(broker)
        for name, skew in skews.items():
            there = time.time() + skew  # noqa: TID251 - producers have clocks of their own
            for event in (await _window(relume, f"{name}-busy", there), _number(f"{name}-sized")):
                event.at = there
                event.headers = {"ce_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(there))}  # noqa: TID251 - as above
                await asyncio.to_thread(sender.send, event)
        for name in skews:
            await relume.until(lambda status: status["readyReplicas"] == 1, f"{name}-busy", within=90)
            await relume.until(lambda status: status["readyReplicas"] == 2, f"{name}-sized", within=90)
        sender.close()


async def _window(relume: Running, model: str, there: float) -> Event:
    """Seven requests ran in the last second."""
    window = {
        "model": model, "uid": await _uid(relume, model), "revision": 1, "gateway": "skewed", "startedAt": there - 1,
        "endedAt": there, "runningSeconds": 7.0, "now": {"running": 7, "waiting": 0}, "arrivals": 7,
    }  # fmt: skip
    return Event(window, "relume.request.window.v1", key=f"model/{model}".encode())


def _number(model: str) -> Event:
    """Two replicas' worth of jobs."""
    event = jobs(15, target=10, validFor=600, model=model)
    event.key = f"model/{model}".encode()
    return event


def on_kafka(broker: Broker, folder: Path, documents: str) -> Any:
    """A relume that follows what is produced."""
    return running(folder, documents, "--events", f"kafka://{broker.address}", "--kafka-partitions", "3")


async def _letters(relume: Running, least: int) -> list[dict[str, Any]]:
    """The dead letters, once there are so many."""
    async with asyncio.timeout(120):
        while True:
            async with relume.session.get(f"{relume.admin}/dead-letters", params={"limit": "1000"}) as answer:
                items: list[dict[str, Any]] = (await answer.json())["items"]
            if len(items) >= least:
                return items
            await asyncio.sleep(0.2)


async def _uid(relume: Running, model: str) -> str:
    query = {"topic": "relume.models", "from": "beginning"}
    async with relume.session.get(f"{relume.admin}/events", params=query) as answer:
        declared = [json.loads(line)["data"] for line in (await answer.text()).splitlines()]
    return next(str(data["uid"]) for data in declared if data["model"] == model)
