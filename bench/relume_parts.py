"""Gateway, autoscaler and cluster as processes of their own, on a real broker of the benchmark's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import aiohttp

from bench.relume_up import Relume
from tests.support.kafka_broker import Broker, broker_in
from tests.support.parts import PartProcess, Parts, parts_on

NO_KAFKA = "no Kafka here: it needs Java, and Maven or the jars (docs/how-to/kafka.md)"
PARTITIONS = 3


def patient_broker(folder: Path) -> AbstractContextManager[Broker]:
    """A broker that is not taken for dead when the measured processes leave it no processor for a while."""
    return broker_in(folder, lambda text: text.replace("session.timeout.ms=2000", "session.timeout.ms=20000"))


def events_of(broker: Broker) -> tuple[str, ...]:
    """The options of a part that uses this broker."""
    return ("--events", f"kafka://{broker.address}", "--kafka-partitions", str(PARTITIONS), "--log-level", "warning")


@asynccontextmanager
async def relume_parts(folder: Path, broker: Broker, documents: str) -> AsyncIterator[Relume]:
    """The three parts with these models: asked through the gateway and the cluster's admin port."""
    async with parts_on(folder, events_of(broker)) as parts:
        gateway = parts.part("gateway", "--access-log", "")
        autoscaler = parts.part("autoscaler")
        cluster = parts.part("cluster", "--drain-bound", "1s", "-f", str(_written(folder, documents)))
        for one in (gateway, autoscaler, cluster):
            await one.start()
        for one in (autoscaler, cluster):
            await parts.ready(one)
        where = {"pid": gateway.pid, "gateway": gateway.endpoints["gateway"], "admin": cluster.endpoints["admin"]}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as session:
            yield Relume("relume in parts", where, session)


async def ready_autoscaler(parts: Parts) -> PartProcess:
    """An autoscaler alone that has read the states and past demand."""
    autoscaler = parts.part("autoscaler")
    await autoscaler.start()
    await parts.ready(autoscaler, within=120)
    return autoscaler


def _written(folder: Path, documents: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "models.yaml"
    manifest.write_text(documents, encoding="utf-8")
    return manifest
