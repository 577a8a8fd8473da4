"""Events and subscriptions for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from events.clock import Clock, SimulatedClock
from events.envelope import AnyEnvelope
from events.log import Batch, Record, Subscription
from events.types.gateways import GatewayBeat
from events.types.models import ModelDeclared
from events.types.phases import ReplicaDrained
from events.writer import EventWriter

PATIENCE = 20.0  # seconds after which a test gives up; never reached by one that passes


class Teller:
    """Makes events with short ids: ``e1``, ``e2``, …"""

    def __init__(self, clock: Clock | None = None, source: str = "relume/test") -> None:
        self._count = 0
        self.writer = EventWriter(source, clock or SimulatedClock(), self._id)

    def _id(self) -> str:
        self._count += 1
        return f"e{self._count}"

    def beat(self, gateway: str = "g", boot: str = "b") -> AnyEnvelope:
        """State of ``gateway/NAME``."""
        return self.writer.envelope(GatewayBeat(gateway=gateway, boot=boot))

    def drained(self, model: str = "m", replica: str = "r") -> AnyEnvelope:
        """News."""
        return self.writer.envelope(ReplicaDrained(model=model, replica=replica))

    def declared(self, model: str = "m", *, uid: str = "u", revision: int = 1, deleted: bool = False) -> AnyEnvelope:
        """State of ``model/NAME``."""
        data = ModelDeclared(
            model=model, uid=uid, revision=revision, generation=revision, spec={"slots": revision}, deleted=deleted
        )
        return self.writer.envelope(data)


async def next_batch(subscription: Subscription) -> Batch:
    """The next batch, in time."""
    async with asyncio.timeout(PATIENCE):
        return await anext(aiter(subscription))


async def collect(subscription: Subscription, count: int) -> list[Record]:
    """Batches until there are `count` records."""
    found: list[Record] = []
    while len(found) < count:
        found += (await next_batch(subscription)).records
    return found


async def until_caught_up(subscription: Subscription) -> list[Record]:
    """All records up to the batch that says that the subscription has caught up."""
    found: list[Record] = []
    while True:
        batch = await next_batch(subscription)
        found += batch.records
        if batch.caught_up:
            return found


async def until_assigned(subscription: Subscription) -> set[tuple[str, int]]:
    """The partitions that the first batch that tells of any says have come."""
    return set(await _first(subscription, lambda batch: batch.assigned))


async def until_revoked(subscription: Subscription) -> set[tuple[str, int]]:
    """The partitions that the first batch that tells of any says are gone."""
    return set(await _first(subscription, lambda batch: batch.revoked))


async def _first(
    subscription: Subscription, told: Callable[[Batch], tuple[tuple[str, int], ...]]
) -> tuple[tuple[str, int], ...]:
    while True:
        if places := told(await next_batch(subscription)):
            return places


def ids(records: list[Record]) -> list[str]:
    """The ids of the events, in order."""
    return [record.envelope.id for record in records]
