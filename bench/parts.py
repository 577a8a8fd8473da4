"""Gateway, autoscaler and cluster apart, on a real Kafka: what an activation takes when wish and grant go through it.

All processes and the broker are on one machine, so instants are comparable; a network would come on top. The very first
activation, at the moment at which the parts say that they are ready, is told apart: everybody reads everything then.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench import load, readiness, seen
from bench.activation import activate, sleeper, waits
from bench.figures import Effort, Figure, Target, percentile
from bench.plain_kafka import PlainKafka
from bench.relume_parts import NO_KAFKA, patient_broker, relume_parts
from bench.relume_up import model
from tests.support.kafka_broker import there

LOAD_SECONDS = 0.5
SETTLING = 2.0
"""Seconds between the first activation and the others: by then each part reads all it follows once (see `trunk`)."""
FIRST = "first"
STARTED, SENT = Target(30.0), Target(20.0)
"""Milliseconds at the 99th percentile, design §11."""


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds, at the median and the 99th percentile."""
    if not there():
        return [Figure("first held request to start command", "ms", why=NO_KAFKA),
                Figure("ready to first dispatch", "ms", why=NO_KAFKA)]  # fmt: skip
    load.raise_descriptors()
    singles, starts = effort.size(60, 3), effort.size(20, 2)
    names = [f"single-{index}" for index in range(singles)]
    ones = [f"one-{index}" for index in range(starts)]
    documents = [sleeper(FIRST), *map(sleeper, names), *(model(name, able_after=LOAD_SECONDS) for name in ones)]
    plain: list[float] = []
    with load.scratch() as scratch, patient_broker(Path(scratch) / "kafka") as broker:
        trips = await asyncio.to_thread(PlainKafka, broker.address)
        async with relume_parts(Path(scratch) / "parts", broker, "\n---\n".join(documents)) as relume:
            await activate(relume, FIRST, 1)
            await asyncio.sleep(SETTLING)
            for name in names:
                await activate(relume, name, 1)
                plain.append(await asyncio.to_thread(trips.round_trips) * 1000)
            engines = {name: await readiness.answered(relume, name, 1) for name in ones}
            found = await seen.activations(relume)
        await asyncio.to_thread(trips.close)
    started = waits(found, "single")
    sent = [
        (engines[name]["first_request_at"] - ready) * 1000
        for name in ones
        if (ready := found[name].ready_at) is not None
    ]
    yardstick, why = "two round trips of plain kafka-python", f"{len(started)} activations"
    return [
        Figure("first held request to start command, p50", "ms", percentile(started, 0.5), yardstick,
               percentile(plain, 0.5), why=why),
        Figure("first held request to start command, p99", "ms", percentile(started, 0.99), yardstick,
               percentile(plain, 0.99), STARTED, why=why),
        Figure("the very first, right after the start", "ms", waits(found, FIRST)[0], why="1 activation"),
        Figure("ready to first dispatch, p50", "ms", percentile(sent, 0.5), why=f"{len(sent)} starts"),
        Figure("ready to first dispatch, p99", "ms", percentile(sent, 0.99), target=SENT, why=f"{len(sent)} starts"),
    ]  # fmt: skip
