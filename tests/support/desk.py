"""A desk on a log in memory and a simulated clock, and requests that remember what they were told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.envelope import AnyEnvelope
from events.log import Query
from events.names import GatewayName, Topic
from events.types.models import ModelDeclared
from events.types.replicas import ReplicaStatus
from events.units import Instant
from events.writer import EventWriter
from runtime.desk.desk import Desk, DeskSettings
from runtime.ports import Lease, Refusal, TicketRequest
from tests.support.slots import MODEL, observed, ticket

T = TypeVar("T")


@dataclass
class Asker:
    """A request's side of a ticket. `then` is called with its lease: what the gateway would do next."""

    request: str
    log: list[str] = field(default_factory=list)
    then: Callable[[Lease], None] | None = None
    lease: Lease | None = None
    refusal: Refusal | None = None

    def leased(self, lease: Lease) -> None:
        assert self.lease is None, "told twice"
        assert self.refusal is None, "told twice"
        self.lease = lease
        self.log.append(self.request)
        if self.then is not None:
            self.then(lease)

    def refused(self, refusal: Refusal) -> None:
        assert self.lease is None, "told twice"
        assert self.refusal is None, "told twice"
        self.refusal = refusal


class World:
    """The log, the clock, and a writer that plays everybody else."""

    def __init__(self, clock: SimulatedClock, log: MemoryEventLog) -> None:
        self.clock = clock
        self.log = log
        self.writer = EventWriter("relume/test", clock)
        self.desk = self.another_desk()

    def another_desk(self) -> Desk:
        """A desk on the same log."""
        settings = DeskSettings(gateway=GatewayName("gw"), boot="boot-1")
        return Desk(self.log, self.clock, EventWriter("relume/gateway/gw", self.clock), settings)

    async def append(self, *data: object, epoch: int | None = None) -> None:
        """Write states, and let the desk read them."""
        await self.log.append([self.writer.envelope(one, epoch=epoch) for one in data])
        await settle()

    async def declare(self, **spec: object) -> None:
        """Declare MODEL."""
        await self.append(declaration(**spec))

    async def observe(self, *replicas: ReplicaStatus, failures: int = 0) -> None:
        """What runs of MODEL."""
        await self.append(observed(*replicas, failures=failures))

    async def written(self, topic: Topic, kind: type[T]) -> list[T]:
        """All data of one type in a topic."""
        found: list[AnyEnvelope] = [record.envelope async for record in self.log.read(Query(topic))]
        return [envelope.data for envelope in found if isinstance(envelope.data, kind)]

    def wanted(self, request: str, *, caller: str = "anonymous", wait: float = 300.0) -> TicketRequest:
        """A request that arrives now."""
        return ticket(request, Instant(self.clock.now()), caller=caller, wait=wait)

    def ask(self, request: str, **how: object) -> Asker:
        """Take a ticket or a lease for a new request."""
        asker = Asker(request)
        lease = self.desk.take(self.wanted(request, **how), asker)  # type: ignore[arg-type]  # keywords of `wanted`
        if lease is not None:
            asker.leased(lease)
        return asker


def declaration(*, uid: str = "u1", revision: int = 1, deleted: bool = False, **spec: object) -> ModelDeclared:
    """The declaration of MODEL, as the admin API writes it."""
    return ModelDeclared(model=MODEL, uid=uid, revision=revision, generation=revision, spec=spec, deleted=deleted)  # type: ignore[arg-type]  # JSON values


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A started desk that knows MODEL."""
    clock = SimulatedClock()
    async with MemoryEventLog(clock) as log:
        made = World(clock, log)
        await made.declare()
        await made.desk.start()
        yield made
        await made.desk.close()
