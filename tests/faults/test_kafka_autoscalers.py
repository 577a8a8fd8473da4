"""Several autoscaler processes on a real broker: some killed in a spike, some leaving in order, members that come and
go. Hand-overs are measured; the figures are printed (pytest -s)."""

from __future__ import annotations

import asyncio
import signal
import statistics
from collections import Counter
from itertools import pairwise

import pytest
from kafka import KafkaProducer

from events.clock import SystemClock
from events.codec import to_binary
from events.partitions import partition_of
from events.payload import kind_of
from events.types.decisions import OwnershipTaken
from events.types.requests import ActivationRequested
from events.writer import EventWriter
from tests.support.fleet import MOST, PARTITIONS, Fleet, fleet
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS, kafka_log

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

MODELS = [f"m{number}" for number in range(24)]
CALM, BUSY, SPIKE = 1, 18, 60
"""Requests of each model, at a target of four: what one replica is good for, what five are, more than the ten that it
may have. (Averages vary with the brokers' time of append, where a machine is busy.)"""


PATIENCE = 30.0
"""Seconds in which a killed member's models must have been decided: its session, and what a busy machine needs."""


async def begun(made: Fleet, members: int) -> None:
    """So many members share the partitions evenly, and each model has one replica's worth of requests and a wish for
    it."""
    made.load = dict.fromkeys(MODELS, CALM)
    await made.start(members)

    def shared() -> bool:
        shares = Counter(made.judge.owner.values()).values()
        return sum(shares) == PARTITIONS and len(shares) == members and max(shares) - min(shares) <= 1

    await made.until(lambda: shared() and all(made.judge.newest(model) == 1 for model in MODELS), "a calm beginning")


def told(what: str, gaps: list[float]) -> None:
    ordered = sorted(gaps)
    worst = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    print(f"\n{what}: {len(gaps)} models without an owner for p50 {statistics.median(gaps):.2f} s, p99 {worst:.2f} s")  # noqa: T201 - the figures


async def spike_while_some_end(made: Fleet, how: signal.Signals) -> list[float]:
    """Requests rise, and at once two of three members end; for how long each of their models went undecided."""
    judge, clock = made.judge, SystemClock()
    owned = {model: judge.owner[partition_of(f"model/{model}", PARTITIONS)] for model in MODELS}
    made.load = dict.fromkeys(MODELS, SPIKE)
    made.tell()
    ending = made.members[:2]
    at = clock.now()
    for member in ending:
        member.send(how)
    await made.until(lambda: all(judge.newest(model) == MOST for model in MODELS), "what the spike needs")
    gone = {member.owner for member in ending}
    first = {model: next(when for when, number in judge.wishes[model] if number == MOST) for model in MODELS}
    return [max(0.0, first[model] - at) for model in MODELS if owned[model] in gone]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "leaving"])
async def test_two_of_three_end_in_a_spike(broker: Broker, how: signal.Signals) -> None:
    """No model stays without owner, none gets more than it needs, none shrinks for lack of history."""
    async with fleet(broker, MODELS) as made:
        await begun(made, 3)
        gaps = await spike_while_some_end(made, how)
        survivor = made.members[2].owner
        await made.until(lambda: set(made.judge.owner.values()) == {survivor}, "one owner of all")
        await asyncio.sleep(3)  # in which a wish that is wrong would come
        for model in MODELS:
            numbers = made.judge.numbers(model)
            assert numbers[-1] == MOST, (model, numbers)
            assert max(numbers) == MOST, (model, numbers)
            spiked = numbers[numbers.index(1) :]
            assert all(after >= before for before, after in pairwise(spiked)), (model, numbers)
        told(f"two of three {how.name}", gaps)
        assert max(gaps) < PATIENCE, gaps


async def test_members_come_and_go_every_few_seconds(broker: Broker) -> None:
    """Started, stopped in order, killed, stopped with SIGSTOP for longer than the session and let go on: under a load
    that does not change no wish falls, and in the end all is as one autoscaler would have it."""
    async with fleet(broker, MODELS) as made:
        await begun(made, 2)
        made.load = dict.fromkeys(MODELS, BUSY)
        await made.until(lambda: all(made.judge.newest(model) >= 5 for model in MODELS), "a load for five")
        calm_at = SystemClock().now()
        for step in range(3):
            (new,) = await made.start(1)
            first, second = made.members[-3], made.members[-2]
            first.send(signal.SIGSTOP)
            await asyncio.sleep(4)  # longer than its session: others have its partitions by now
            first.send(signal.SIGCONT)
            second.send((signal.SIGTERM, signal.SIGKILL)[step % 2])
            await asyncio.sleep(2)
            first.send((signal.SIGKILL, signal.SIGTERM)[step % 2])
            await made.start(1)
            assert new.owner
        for model in MODELS:
            assert min(made.judge.numbers(model, calm_at), default=5) >= 5, (model, made.judge.wishes[model])
        made.load = dict.fromkeys(MODELS, SPIKE)
        await made.until(lambda: all(made.judge.newest(model) == MOST for model in MODELS), "owners for all")
        print(f"\nrefused: {made.judge.owners.refused}; taken: {sum(map(len, made.judge.taken_at.values()))}")  # noqa: T201 - for people


async def test_strays_reach_the_owner(broker: Broker) -> None:
    """A foreign producer with another partitioner asks for replicas of every model, always in a wrong partition:
    the owner of the right one hears of it, and nothing that says who owns what moves with it."""
    async with fleet(broker, MODELS) as made, kafka_log(broker, partitions=PARTITIONS) as tender:
        await begun(made, 2)
        await made.until(lambda: tender.tends, "somebody who tends")
        epochs = {partition: len(taken) for partition, taken in made.judge.taken_at.items()}
        producer = KafkaProducer(bootstrap_servers=broker.address)
        writer = EventWriter("acme", SystemClock())
        events = [writer.envelope(ActivationRequested(model=model, replicas=3)) for model in MODELS]
        events.append(writer.envelope(OwnershipTaken(partition=0, owner="nobody")))
        for event in events:
            raw = to_binary(event)
            wrong = (partition_of(event.key, PARTITIONS) + 1) % PARTITIONS
            topic = str(kind_of(event.data).topic)
            producer.send(topic, raw.data, key=raw.key, headers=list(raw.headers), partition=wrong)
        producer.close()
        await made.until(lambda: all(made.judge.newest(model) == 3 for model in MODELS), "what was asked for")
        assert (tender.stats().strays, tender.stats().void) == (len(MODELS), 1)
        assert {partition: len(taken) for partition, taken in made.judge.taken_at.items()} == epochs
