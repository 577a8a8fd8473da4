"""Models that several gateways share: what a lease costs beside that of one gateway alone; how long a hand-over takes.

Gateways, log and connections are real and in this process, so a remote lease's CPU is that of both gateways together.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from aiohttp import web

from bench.figures import Effort, Figure, Target, percentile
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.names import GatewayName
from events.units import Instant, Seconds
from events.writer import EventWriter
from runtime.desk.desk import Desk, DeskSettings
from runtime.ports import Ending, Lease, Outcome, Refusal, TicketRequest
from tests.support.desk import declaration
from tests.support.several import Gateway, Several, several
from tests.support.slots import observed, replica, ticket

DONE = Outcome(Ending.FINISHED, status=200)
US = 1e6
MS = 1e3


class _Client:
    """Takes a slot again and again. `leased_at` is when the last one came."""

    def __init__(self, desk: Desk, clock: SystemClock, name: str) -> None:
        self._desk = desk
        self._clock = clock
        self._name = name
        self._count = 0
        self._told: asyncio.Future[Lease] | None = None

    def leased(self, lease: Lease) -> None:
        assert self._told is not None
        self._told.set_result(lease)

    def refused(self, refusal: Refusal) -> None:
        raise AssertionError(refusal)

    async def one(self) -> None:
        lease = self.at_once()
        if lease is None:
            assert self._told is not None
            lease = await self._told
        self._desk.give_back(lease, DONE)

    def at_once(self) -> Lease | None:
        self._count += 1
        self._told = asyncio.get_running_loop().create_future()
        return self._desk.take(self._wanted(), self)

    def _wanted(self) -> TicketRequest:
        return ticket(f"{self._name}-{self._count}", self._clock.now())


async def run(effort: Effort) -> list[Figure]:
    """µs a request, and ms a hand-over."""
    count = effort.size(5000, 200)
    alone, own, remote, latency = [], [], [], []
    for _ in range(effort.rounds):
        alone.append(await _alone(count))
        async with several("a", "b") as made:
            await made.observe(replica(0, slots=64))
            authority = made.gateways[await made.until_agreed()]
            other = next(it for it in made.gateways.values() if it is not authority)
            own.append(await _cpu(authority.desk, made.clock, count, 1))
            remote.append(await _cpu(other.desk, made.clock, count, 32))
            latency += await _latencies(other, made.clock, effort.size(1000, 100))
    graceful = [await _hand_over(graceful=True) for _ in range(effort.size(30, 2))]
    sudden = [await _hand_over(graceful=False) for _ in range(effort.size(30, 2))]
    one = "one gateway alone"
    return [
        Figure("a lease, this gateway is the authority, CPU", "us", min(own), one, min(alone)),
        Figure("a lease of a remote authority, CPU of both", "us", min(remote), one, min(alone)),
        Figure("a lease of a remote authority, p50", "us", percentile(latency, 0.5) * US, one, min(alone)),
        Figure("the same, p99", "us", percentile(latency, 0.99) * US, one, min(alone)),
        Figure("an authority leaves: its last word to the next one's first lease, p99", "ms",
               percentile(graceful, 0.99) * MS, target=Target(1000.0)),
        Figure("an authority is gone without a word: to the next one's first lease, p99", "ms",
               percentile(sudden, 0.99) * MS, target=Target(1000.0)),
    ]  # fmt: skip


async def _alone(count: int) -> float:
    clock = SystemClock()
    async with MemoryEventLog(clock) as log:
        writer = EventWriter("relume/bench", clock)
        await log.append([writer.envelope(declaration()), writer.envelope(observed(replica(0, slots=64)))])
        desk = Desk(log, clock, writer, DeskSettings(gateway=GatewayName("a"), boot="1"))
        await desk.start()
        try:
            return await _cpu(desk, clock, count, 1)
        finally:
            await desk.close()


async def _cpu(desk: Desk, clock: SystemClock, count: int, at_once: int) -> float:
    """µs of CPU a request."""
    clients = [_Client(desk, clock, f"c{index}-{clock.now()}") for index in range(at_once)]

    async def some(client: _Client) -> None:
        for _ in range(count // at_once):
            await client.one()

    await clients[0].one()
    began = time.process_time()
    await asyncio.gather(*(some(client) for client in clients))
    return (time.process_time() - began) / (count // at_once * at_once) * US


async def _latencies(gateway: Gateway, clock: SystemClock, count: int) -> list[float]:
    client = _Client(gateway.desk, clock, f"l-{clock.now()}")
    found = []
    for _ in range(count):
        began = clock.now()
        await client.one()
        found.append(clock.now() - began)
    return found


async def _hand_over(*, graceful: bool) -> float:
    """Seconds from the end of an authority to a lease of the next one, of an engine that counts no requests."""
    async with _engine() as port, several("a", "b", "c") as made:
        status = replace(replica(0, slots=1, busy_path="/"), address=f"127.0.0.1:{port}")
        await made.observe(status)
        authority = made.gateways.pop(await made.until_agreed())
        other = next(iter(made.gateways.values()))
        client = _Client(other.desk, made.clock, "h")
        await client.one()
        began = made.clock.now()
        if graceful:
            authority.desk.shut_down()
        await authority.desk.close()
        await _past(made, other, authority.name)
        await client.one()
        took = made.clock.now() - began
        await authority.server.drain(Seconds(1.0))
        return took


async def _past(made: Several, gateway: Gateway, name: str) -> None:
    """Return when `gateway` follows somebody else."""
    until = Instant(made.clock.now() + 30.0)
    while gateway.authority == name:
        assert made.clock.now() < until
        await asyncio.sleep(0)


class _engine:  # noqa: N801 - used as a function
    """An engine that says that it runs nothing."""

    async def __aenter__(self) -> int:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response({"running": 0})

        application = web.Application()
        application.router.add_get("/", answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
