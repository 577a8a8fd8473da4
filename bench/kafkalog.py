"""The Kafka log beside plain kafka-python, and an autoscaler process behind a producer.

The producer tells ordinary windows of models that run, at 5,000 a second, and now and then an edge of a model at zero.
How far the autoscaler is behind is the time from the edge to its wish, both as the broker stamped them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from bench import load, machine
from bench.decisions import declared, window
from bench.figures import Effort, Figure, median, percentile
from bench.plain_kafka import PlainKafka
from bench.relume_parts import NO_KAFKA, PARTITIONS, events_of, patient_broker, ready_autoscaler
from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.codec import to_binary
from events.envelope import AnyEnvelope
from events.log import Position, Query, Start
from events.names import Topic
from events.types.decisions import WishDecided
from events.units import Seconds
from events.writer import EventWriter
from tests.support.kafka_broker import Broker, there
from tests.support.parts import parts_on

SHORT = 0.002
RATE = 5000
"""Events a second that the autoscaler is to keep up with (issue of this part)."""
PORTION = 0.02
WISHED_WITHIN = 60.0
FOLLOWED_WITHIN = 240.0
OPEN = Seconds(120.0)


async def run(effort: Effort) -> list[Figure]:
    """CPU microseconds an event; milliseconds behind; the cost of models."""
    if not there():
        return [Figure("the Kafka log", why=NO_KAFKA)]
    with load.scratch() as scratch:
        with patient_broker(Path(scratch) / "events") as broker:
            figures = await _adapter(broker, effort)
        counts = (10, 100) if effort.quick else (100, 1000, 10_000)
        for count in counts:
            with patient_broker(Path(scratch) / str(count)) as broker:
                figures += await _behind(Path(scratch), broker, count, effort)
    return figures


def _open(broker: Broker, clock: SystemClock) -> KafkaEventLog:
    return KafkaEventLog(KafkaSettings((broker.address,), partitions=PARTITIONS, tend=False, open_timeout=OPEN), clock)


# The adapter.


async def _adapter(broker: Broker, effort: Effort) -> list[Figure]:
    count, clock = effort.size(5_000, 500), SystemClock()
    writer = EventWriter("relume/gateway/bench", clock)
    told: dict[str, list[float]] = {"offered": [], "sent": [], "followed": [], "consumed": []}
    plain = await asyncio.to_thread(PlainKafka, broker.address)
    async with _open(broker, clock) as log:
        for _ in range(effort.rounds):
            events = [writer.envelope(window(f"m{one % 100}", 1.0, 2.0, 3)) for one in range(count)]
            began = clock.now()
            told["offered"].append(await _offer(log, events))
            told["followed"].append(await _follow(log, began, count))
            rows = [_row(event) for event in events]
            told["sent"].append(await asyncio.to_thread(plain.produce, rows))
            told["consumed"].append(await asyncio.to_thread(plain.consume, count))
    await asyncio.to_thread(plain.close)
    return [
        _cost("offered event, acknowledged", told["offered"], "the same rows, kafka-python", told["sent"], count),
        _cost("followed event, decoded", told["followed"], "the same rows, kafka-python", told["consumed"], count),
    ]  # fmt: skip


def _cost(what: str, mine: list[float], yardstick: str, plain: list[float], count: int) -> Figure:
    each = [seconds / count * 1e6 for seconds in mine]
    return Figure(what, "us CPU", median(each), yardstick, median(plain) / count * 1e6, low=min(each), high=max(each),
                  why=f"{1e6 / median(each):,.0f} events per CPU second")  # fmt: skip


async def _offer(log: KafkaEventLog, events: list[AnyEnvelope]) -> float:
    """CPU seconds of the process until all of them are acknowledged; a full log is waited for."""
    cpu = time.process_time()
    for event in events:
        while not log.offer(event):  # noqa: ASYNC110 - as below
            await asyncio.sleep(SHORT)
    while log.stats().queue_depth:  # noqa: ASYNC110 - the producer's thread tells nobody that it has nothing left
        await asyncio.sleep(SHORT)
    return time.process_time() - cpu


async def _follow(log: KafkaEventLog, since: float, count: int) -> float:
    """CPU seconds of the process to follow so many from that instant on."""
    cpu = time.process_time()
    subscription = log.subscribe((Topic.REQUESTS,), Start("time", since))  # type: ignore[arg-type]  # an Instant
    async with asyncio.timeout(FOLLOWED_WITHIN):
        async for batch in subscription:
            count -= len(batch.records)
            if count <= 0:
                break
    await subscription.close()
    return time.process_time() - cpu


def _row(event: AnyEnvelope) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    encoded = to_binary(event)
    return event.key.encode(), encoded.data, list(encoded.headers)


# The autoscaler.


async def _behind(folder: Path, broker: Broker, models: int, effort: Effort) -> list[Figure]:
    """An autoscaler process with so many models: its start, its memory, and how far it is behind."""
    clock, edges = SystemClock(), effort.size(40, 3)
    writer = EventWriter("relume/gateway/bench", clock)
    asleep = [f"asleep-{index}" for index in range(edges)]
    busy = [f"busy-{index}" for index in range(models)]
    async with _open(broker, clock) as log:
        every = [writer.envelope(declared(name)) for name in (*busy, *asleep)]
        for begin in range(0, len(every), 500):
            await log.append(every[begin : begin + 500])
        async with parts_on(folder / f"parts-{models}", events_of(broker)) as parts:
            autoscaler = await ready_autoscaler(parts)
            started = machine.cpu_seconds(autoscaler.pid)
            memory = machine.memory_bytes(autoscaler.pid)
            teller = _Teller(log, writer, clock, busy)
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(teller.tell())
                await asyncio.sleep(3.0)  # first wishes of all, then the steady state
                cpu, told, began = machine.cpu_seconds(autoscaler.pid), teller.told, clock.now()
                places = {}
                for name in asleep:
                    edge = writer.envelope(window(name, clock.now(), clock.now(), 0, waiting=1))
                    (places[name],) = await log.append([edge])
                    await asyncio.sleep(0.15)
                seconds = clock.now() - began
                used, rate = machine.cpu_seconds(autoscaler.pid) - cpu, (teller.told - told) / seconds
                telling.cancel()
            waits = await _lags(log, places)
    behind = f"edge to its wish, autoscaler with {models:,} models behind a producer"
    core = f"for which it used {used / seconds:.2f} of a core"
    why = f"{len(waits)} of {edges} edges; {rate:,.0f} events/s were told, {core}"
    half, most = (percentile(waits, 0.5), max(waits)) if waits else (None, None)  # all of them were too old when read
    return [
        Figure(f"{behind}, p50", "ms", half, why=why),
        Figure(f"{behind}, largest", "ms", most, why=why),
        Figure(f"start of an autoscaler with {models:,} models", "s CPU", started,
               why=f"{memory / 2**20:.0f} MiB resident"),
    ]  # fmt: skip


class _Teller:
    """Tells windows of models at the wanted rate, in portions, as far as the log takes them."""

    def __init__(self, log: KafkaEventLog, writer: EventWriter, clock: SystemClock, models: list[str]) -> None:
        self._log = log
        self._writer = writer
        self._clock = clock
        self._models = models
        self._ended = dict.fromkeys(models, clock.now())
        self.told = 0

    async def tell(self) -> None:
        """Until cancelled."""
        began, index = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - began) * RATE)
            index = max(index, due - int(RATE * 5 * PORTION))  # what it had no processor for is not made up for
            while index < due:
                name = self._models[index % len(self._models)]
                now = self._clock.now()
                self.told += self._log.offer(self._writer.envelope(window(name, self._ended[name], now, 3)))
                self._ended[name] = now
                index += 1
                if index % 100 == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(PORTION)


async def _lags(log: KafkaEventLog, places: Mapping[str, Position]) -> list[float]:
    """Milliseconds from each edge to its wish, by the broker's clock; waits until all wishes stand there."""
    edges = {name: await _appended_at(log, place) for name, place in places.items()}
    deadline = time.perf_counter() + WISHED_WITHIN
    while True:
        wishes: dict[str, float] = {}
        async for record in log.read(Query(Topic.DECISIONS)):
            data = record.envelope.data
            if isinstance(data, WishDecided) and data.model in edges and data.replicas:
                wishes.setdefault(data.model, record.appended_at)
        if wishes.keys() >= edges.keys() or time.perf_counter() > deadline:
            return [(wishes[name] - at) * 1000 for name, at in edges.items() if name in wishes]
        await asyncio.sleep(0.2)


async def _appended_at(log: KafkaEventLog, place: Position) -> float:
    async for record in log.read(Query(place.topic, place.partition, from_offset=place.offset, limit=1)):
        return record.appended_at
    raise LookupError(f"nothing stands at {place}")
