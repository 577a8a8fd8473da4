"""A whole relume on Kafka: `relume up --events kafka://…`, a foreign producer, a broker that dies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kafka import KafkaProducer
from ruamel.yaml import YAML

from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.needs import ROOT
from tests.support.openai_clients import together
from tests.support.running import Running, running, simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


def on_kafka(broker: Broker) -> tuple[str, ...]:
    return ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")


class Outsider:
    """Knows Kafka and docs/reference/asyncapi.yaml, nothing else."""

    def __init__(self, broker: Broker) -> None:
        with (ROOT / "docs/reference/asyncapi.yaml").open(encoding="utf-8") as file:
            self._document: dict[str, Any] = YAML(typ="safe").load(file)
        self._producer = KafkaProducer(bootstrap_servers=broker.address)
        self._count = 0

    def send(self, kind: str, data: dict[str, object], **how: object) -> None:
        """In binary mode, as the document says: the topic that carries the event, the schema of its data, its key."""
        topic, schema = self._described(kind)
        jsonschema.validate(data, schema)
        self._count += 1
        headers = {
            "ce_specversion": "1.0", "ce_id": f"outside-{self._count}", "ce_source": "//acme.example/queue",
            "ce_type": kind, "content-type": "application/json",
        }  # fmt: skip
        sent = self._producer.send(
            topic, json.dumps(data).encode(), key=f"model/{data['model']}".encode(),
            headers=[(name, value.encode()) for name, value in headers.items()], **how,
        )  # fmt: skip
        sent.get(20)

    def structured(self, kind: str, data: dict[str, object]) -> None:
        """As one JSON object, without key or headers."""
        topic, _ = self._described(kind)
        self._count += 1
        event = {"specversion": "1.0", "id": f"outside-{self._count}", "source": "//acme.example/queue", "type": kind,
                 "data": data}  # fmt: skip
        self._producer.send(topic, json.dumps(event).encode(), partition=0).get(20)

    def close(self) -> None:
        self._producer.close(5)

    def _described(self, kind: str) -> tuple[str, dict[str, Any]]:
        """The topic that carries an event, and the schema of its data."""
        messages = self._document["components"]["messages"]
        ((name, message),) = [(name, one) for name, one in messages.items() if one["name"] == kind]
        (topic,) = [one["address"] for one in self._document["channels"].values() if name in one["messages"]]
        schema = (ROOT / "docs/reference" / message["payload"]["$ref"]).read_text(encoding="utf-8")
        return topic, json.loads(schema)


async def test_the_main_loop_on_kafka(broker: Broker, tmp_path: Path) -> None:
    """From zero, answered, back to zero; after a restart the models are still declared and wake again."""
    async with running(tmp_path / "one", simulated(), *on_kafka(broker)) as relume:
        assert (await relume.status())["state"] == "Zero"
        assert (await relume.chat()).status == 200
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0)
    async with running(tmp_path / "two", simulated("other"), *on_kafka(broker)) as relume:
        assert (await relume.chat("echo")).status == 200


async def test_an_outsider_wakes_models(broker: Broker, tmp_path: Path) -> None:
    """Somebody's event asks that a model be awake, in any mode, whatever its partitioner; nothing is sent by HTTP.
    The start takes longer than the keep-alive, 2 s: it is waited for."""
    models = ("binary", "stray", "structured")
    options = "startTime: 3s, timeToFirstToken: 10ms, interTokenLatency: 2ms"
    documents = together(*(simulated(model, options=options, maxReplicas=2) for model in models))
    async with running(tmp_path, documents, *on_kafka(broker)) as relume:
        outsider = Outsider(broker)
        kind = "relume.activation.requested.v1"
        await _tended(relume)
        outsider.send(kind, {"model": "binary", "replicas": 2})
        for partition in range(3):
            outsider.send(kind, {"model": "stray", "replicas": 2}, partition=partition)
        outsider.structured(kind, {"model": "structured", "replicas": 2})

        async def woken(model: str) -> None:
            await relume.until(lambda status: status["readyReplicas"] == 2, model)
            assert (await relume.chat(model)).headers["x-relume-cold-start"] == "false"

        await asyncio.gather(*map(woken, models))
        outsider.close()


async def test_the_broker_dies_under_a_warm_model(broker: Broker, tmp_path: Path) -> None:
    """Requests are answered all along; the trouble is told; when the broker is back the model grows."""
    document = simulated(keepAlive="60s", options="startTime: 200ms, timeToFirstToken: 50ms, interTokenLatency: 2ms")
    async with running(tmp_path, document, *on_kafka(broker)) as relume:
        assert (await relume.chat()).status == 200
        broker.kill()
        async with asyncio.timeout(60):
            while not await _troubles(relume):
                assert (await relume.chat()).status == 200
                await asyncio.sleep(0.2)
        for _ in range(20):
            assert (await relume.chat()).status == 200
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(60):
            while await _troubles(relume):  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.2)
        stop = asyncio.Event()

        async def client() -> None:
            while not stop.is_set():
                assert (await relume.chat()).status == 200

        clients = [asyncio.create_task(client()) for _ in range(12)]
        await relume.until(lambda status: status["readyReplicas"] >= 2)
        stop.set()
        await asyncio.gather(*clients)


async def _troubles(relume: Running) -> list[str]:
    async with relume.session.get(f"{relume.server.admin_url}/readyz") as answer:
        told: list[str] = (await answer.json())["troubles"]
        return told


async def _tended(relume: Running) -> None:
    """Strays are put right from the moment on at which relume's group has joined."""
    async with asyncio.timeout(30):
        while True:
            async with relume.session.get(f"{relume.server.admin_url}/metrics") as answer:
                if "relume_log_tending 1.0" in await answer.text():
                    return
            await asyncio.sleep(0.1)
