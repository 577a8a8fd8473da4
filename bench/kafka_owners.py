"""How long partitions have no owner after `kill -9` of who had them, with the settings as they come.

*Started again*: a member with the name of the dead one, that is, on its data folder; the start of the process is not in
it. *Another takes over*: one that shares the partitions with the dead one, and must wait for the end of its session.
The yardstick of both is the session: what Kafka makes everybody wait who knows nothing more.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from bench import load
from bench.figures import Effort, Figure, percentile
from bench.kafka_member import GROUP, settings_of
from bench.relume_parts import NO_KAFKA, PARTITIONS, patient_broker
from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.log import Start, Subscription
from events.names import Topic
from events.units import Seconds
from tests.support.kafka_broker import Broker, there

WITHIN = 120.0
NAMES = ("kill -9 of an owner, started again", "kill -9 of an owner, another takes over")


async def run(effort: Effort) -> list[Figure]:
    """Seconds, at the median and the 99th percentile."""
    if not there():
        return [Figure(name, "s", why=NO_KAFKA) for name in NAMES]
    with load.scratch() as scratch, patient_broker(Path(scratch) / "kafka") as broker:
        made = KafkaSettings((broker.address,), partitions=PARTITIONS, tend=False, open_timeout=Seconds(WITHIN))
        async with KafkaEventLog(made, SystemClock()):
            pass  # the topics
        again = [await _again(broker) for _ in range(effort.size(8, 1))]
        over = [await _over(broker) for _ in range(effort.size(5, 1))]
    session = KafkaSettings(("none:9092",)).session_timeout
    return [
        Figure(f"{name}, {at}", "s", percentile(found, share), "the session", session, low=min(found),
               high=max(found), why=f"{len(found)} times")
        for name, found in zip(NAMES, (again, over), strict=True)
        for at, share in (("p50", 0.5), ("p99", 0.99))
    ]  # fmt: skip


async def _again(broker: Broker) -> float:
    """From the joining of the one with the dead one's name to its partitions."""
    clock = SystemClock()
    async with KafkaEventLog(settings_of(broker.address, "folder"), clock) as log:
        dead = await _member(broker, "folder", PARTITIONS)
        await _kill(dead)
        began = clock.now()
        subscription = log.subscribe((Topic.MODELS,), Start("end"), GROUP)
        await _held(subscription, set(), PARTITIONS)
        took = clock.now() - began
        await subscription.close()
        return took


async def _over(broker: Broker) -> float:
    """From the death of one to its partitions being the other's."""
    clock = SystemClock()
    async with KafkaEventLog(settings_of(broker.address), clock) as log:
        subscription = log.subscribe((Topic.MODELS,), Start("end"), GROUP)
        held: set[int] = set()
        await _held(subscription, held, PARTITIONS)
        other = asyncio.create_task(_member(broker, "other", 1))
        await _held(subscription, held, PARTITIONS - 1)
        dead = await other
        began = clock.now()
        await _kill(dead)
        await _held(subscription, held, PARTITIONS)
        took = clock.now() - began
        await subscription.close()
        return took


async def _held(subscription: Subscription, held: set[int], count: int) -> None:
    """Return once so many are held."""
    async with asyncio.timeout(WITHIN):
        async for batch in subscription:
            held -= {place for _, place in batch.revoked}
            held |= {place for _, place in batch.assigned}
            if len(held) == count:
                return


async def _member(broker: Broker, identity: str, count: int) -> Process:
    """Another process that is a member, once it has so many partitions."""
    command = (sys.executable, "-m", "bench.kafka_member", broker.address, identity)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(WITHIN):
        while int(await process.stdout.readline()) != count:
            pass
    return process


async def _kill(process: Process) -> None:
    process.kill()
    await process.wait()
