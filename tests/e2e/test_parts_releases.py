"""Parts beside those of a later release on one real Kafka, as a rollout has it: what that one wrote is there, also on
top of what these read, and stops nobody, neither those that run nor those that start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from events.kinds import KINDS
from events.names import TOPIC_KINDS, TopicKind
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import ModelDeclared
from events.types.replicas import CardsObserved, ReplicasObserved
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.parts import PartProcess, Parts, parts_on
from tests.support.parts_traffic import Traffic, pids, warm
from tests.support.skew import LATER as LATER_FIELD
from tests.support.skew import objects, with_later

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

PARTITIONS: Final = 2
RESTATED: Final = {
    KINDS[kind].full_name: kind for kind in (ModelDeclared, WishDecided, GrantDecided, ReplicasObserved, CardsObserved)
}
"""States that a part of the later release says again, as its own, once it has them: with further fields."""
DECLARED: Final = KINDS[ModelDeclared].full_name
LATER: Final = "relume.later.kept.v1"
"""A type of event that no release has."""


def later_release(broker: Broker) -> int:
    """What a later release leaves in the log while it runs beside this one: each state anew with further fields, and as
    the newest record of each key and partition a type, and a version of each type, that this one does not know. How
    many states it said."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, enable_auto_commit=False)
    producer = KafkaProducer(bootstrap_servers=broker.address)
    sent = []

    def send(topic: str, partition: int, key: bytes, data: object, headers: dict[str, bytes]) -> None:
        own = {"ce_id": f"later-{len(sent)}".encode(), "ce_source": b"relume/later"}
        value = json.dumps(data).encode()
        sent.append(producer.send(topic, value, key=key, partition=partition, headers=list((headers | own).items())))

    said = 0
    for topic in sorted(name for name, kind in TOPIC_KINDS.items() if kind is TopicKind.STATE):
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        newest = {(place.partition, record.key): record for place in places for record in read(consumer, place)}
        for (partition, key), record in newest.items():
            headers = dict(record.headers)
            kind = RESTATED.get(headers["ce_type"].decode())
            data = json.loads(record.value)
            if kind is not None:
                send(topic, partition, key, with_later(data, objects(kind, data)), headers)
                said += 1
            name = headers["ce_type"].rpartition(b".v")[0]
            for unknown in (LATER.encode(), name + b".v9"):
                send(topic, partition, key, {"laterThanThis": [{}]}, headers | {"ce_type": unknown})
    for one in sent:
        one.get(60)
    producer.close(5)
    consumer.close()
    return said


def read(consumer: KafkaConsumer, place: TopicPartition) -> list[Any]:
    """All records of a partition up to now."""
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end, found = consumer.end_offsets([place])[place], []
    while consumer.position(place) < end:
        found += [record for batch in consumer.poll(500).values() for record in batch]
    return found


async def undisturbed(parts: Parts, gateway: PartProcess, before: set[int]) -> None:
    """Answers come, of the same engine."""
    assert [(await parts.chat(gateway)).status for _ in range(4)] == [200] * 4
    assert await pids(parts, gateway) == before


async def test_what_a_later_release_wrote_stops_nobody(broker: Broker, tmp_path: Path) -> None:
    """It says each state anew, with more in it, and puts what is not known here on top of each, once while all parts
    run and once more; each part is killed and comes back to that: ready, with the same replica, no request of which is
    lost; no dead letter tells of it; and the model still grows, and changes; scaled by this release, it keeps what the
    later one said of it."""
    events = ("--events", f"kafka://{broker.address}", "--kafka-partitions", str(PARTITIONS))
    async with parts_on(tmp_path, events) as parts:
        gateway, autoscaler, cluster = (parts.part(role) for role in ("gateway", "autoscaler", "cluster"))
        await asyncio.gather(*(one.start() for one in parts.all))
        await warm(parts, cluster, gateway)
        before, traffic = await pids(parts, gateway), Traffic(parts, gateway, clients=1)
        assert await asyncio.to_thread(later_release, broker) >= len(RESTATED)
        await traffic.some(20)
        for part in (autoscaler, cluster):
            await part.kill()
            await part.start()
            await parts.ready(part)
        await traffic.some(20)
        await traffic.stop()
        assert traffic.failed == []
        await gateway.kill()
        await asyncio.to_thread(later_release, broker)
        await gateway.start()
        await parts.listed(gateway)
        await undisturbed(parts, gateway, before)
        more = Traffic(parts, gateway, clients=6)
        await parts.until(gateway, lambda status: status["readyReplicas"] == 2)
        await more.stop()
        assert more.failed == []
        url = f"{gateway.endpoints['admin']}/v1alpha1/models/echo/scale"
        async with parts.session.put(url, json={"replicas": 2, "for": "10m"}) as answer:
            assert answer.status == 200
        declared = [one["data"] for one in await parts.events(cluster, "relume.models") if one["type"] == DECLARED][-1]
        assert (declared["override"]["replicas"], LATER_FIELD in declared) == (2, True)
        assert await parts.events(gateway, "relume.dead-letters") == []
