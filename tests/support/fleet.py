"""Several autoscalers on one Kafka: processes that are started and killed, load that is told, a judge of the log."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from events.adapters.kafka.log import KafkaEventLog
from events.clock import SystemClock
from events.fence import Owners
from events.log import Record, Start
from events.names import Topic, model_key
from events.partitions import partition_of
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.gateways import GatewayBeat
from events.types.requests import Levels
from events.writer import EventWriter
from tests.support.autoscaling import declared, observed, window
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import kafka_log

PARTITIONS = 6
MOST = 10
"""Replicas that a model may have."""
STARTING = 120.0
"""Seconds in which a process must have started, on a machine that does much else."""

_numbers = itertools.count(1)


class Member:
    """One autoscaler in a process of its own."""

    def __init__(self, broker: Broker) -> None:
        self.owner = f"autoscaler-{next(_numbers)}"
        command = [sys.executable, "-m", "tests.support.autoscaler_process", broker.address, self.owner]
        self._process = subprocess.Popen([*command, str(PARTITIONS)], stdout=subprocess.PIPE)

    async def ready(self) -> None:
        """Return once it has started."""
        assert self._process.stdout is not None
        async with asyncio.timeout(STARTING):
            line = await asyncio.to_thread(self._process.stdout.readline)
        assert line == b"ready\n", f"{self.owner} ended: {line!r}"

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Kill it, whatever it does."""
        self._process.kill()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Judge:
    """Reads all wishes as the allocator does. `wishes`: those that count, by model, with the log's time of each."""

    owners: Owners = field(default_factory=Owners)
    owner: dict[int, str] = field(default_factory=dict)
    taken_at: dict[int, list[tuple[float, str]]] = field(default_factory=dict)
    wishes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    """Who wrote the newest wish of each model: its source."""

    def take(self, record: Record) -> WishDecided | None:
        """A wish, if it counts."""
        data, partition = record.envelope.data, record.position.partition
        if not self.owners.admits(record):
            return None
        if isinstance(data, OwnershipTaken):
            self.owner[partition] = data.owner
            self.taken_at.setdefault(partition, []).append((record.appended_at, data.owner))
            return None
        assert isinstance(data, WishDecided)
        assert partition == partition_of(model_key(data.model), PARTITIONS)
        self.wishes.setdefault(data.model, []).append((record.appended_at, data.replicas))
        self.by[data.model] = record.envelope.source.removeprefix("relume/autoscaler/")
        return data

    def numbers(self, model: str, since: float = 0.0) -> list[int]:
        """The wishes of a model since then."""
        return [number for at, number in self.wishes.get(model, []) if at >= since]

    def newest(self, model: str) -> int:
        """The last one; -1: none."""
        return self.numbers(model)[-1] if model in self.wishes else -1


class Fleet:
    """The world around the autoscalers: a gateway that tells the same load of each model every second, replicas that
    follow the wishes at once, and the judge. `load`: requests that run, by model."""

    def __init__(self, log: KafkaEventLog, broker: Broker, models: Iterable[str]) -> None:
        self.log, self.broker, self.models = log, broker, list(models)
        self.judge = Judge()
        self.load = dict.fromkeys(self.models, 0)
        self.members: list[Member] = []
        self._clock = SystemClock()
        self._writers = {name: EventWriter(f"relume/{name}", self._clock) for name in ("admin", "gateway/g", "cluster")}
        self._read = asyncio.Event()
        self._told_at = self._clock.now()

    async def declare(self) -> None:
        """Declare the models."""
        events = [declared(model, uid=model, keepAlive="60s", maxReplicas=MOST) for model in self.models]
        await self.log.append([self._writers["admin"].envelope(one) for one in events])

    def tell(self) -> None:
        """A window of each model, and a beat."""
        begun, now, writer = self._told_at, self._clock.now(), self._writers["gateway/g"]
        self._told_at = now
        for model, running in self.load.items():
            said = window(begun, now, model=model, uid=model, now=Levels(running=running), running=running)
            assert self.log.offer(writer.envelope(said))
        assert self.log.offer(writer.envelope(GatewayBeat(gateway="g", boot="b")))

    async def until(self, holds: Callable[[], bool], what: str, within: float = 120.0) -> None:
        """Wait for something that the log brings about."""
        try:
            async with asyncio.timeout(within):
                while not holds():
                    self._read.clear()
                    await self._read.wait()
        except TimeoutError:
            said = {model: self.judge.numbers(model) for model in self.models}
            raise AssertionError(f"{what}: not within {within} s; wishes {said}, owners {self.judge.owner}") from None

    async def start(self, count: int) -> list[Member]:
        """More members; returns when they have started."""
        new = [Member(self.broker) for _ in range(count)]
        self.members += new
        for member in new:
            await member.ready()
        return new

    async def run(self) -> None:
        """Tell load, and obey."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_for_ever())
            tasks.create_task(self._obey())

    async def _tell_for_ever(self) -> None:
        while True:
            self.tell()
            await asyncio.sleep(1.0)

    async def _obey(self) -> None:
        subscription = self.log.subscribe((Topic.DECISIONS,), Start("beginning"))
        async for batch in subscription:
            wishes = [wish for record in batch.records if (wish := self.judge.take(record)) is not None]
            for wish in wishes:
                seen = observed(wish.replicas, model=wish.model, uid=wish.uid)
                self.log.offer(self._writers["cluster"].envelope(seen))
            self._read.set()


@asynccontextmanager
async def fleet(broker: Broker, models: Iterable[str]) -> AsyncIterator[Fleet]:
    """A fleet without members whose world runs; members are killed at the end."""
    async with kafka_log(broker, partitions=PARTITIONS, tend=False) as log:
        made = Fleet(log, broker, models)
        await made.declare()
        running = asyncio.create_task(made.run())
        try:
            yield made
            assert not running.done(), running.exception()
        finally:
            for member in made.members:
                member.end()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
