"""What all connections of one data port share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from events.clock import Clock
from runtime.gateway.access_log import AccessLog
from runtime.gateway.ids import Identities
from runtime.gateway.outbox import Outbox
from runtime.gateway.pool import UpstreamPool
from runtime.gateway.settings import GatewaySettings
from runtime.gateway.turns import Turns
from runtime.gateway.wheel import Wheel
from runtime.ports import Catalog, Slots

if TYPE_CHECKING:
    from runtime.gateway.client_connection import ClientConnection
    from runtime.gateway.exchange import Exchange


@dataclass(slots=True)
class GatewayContext:
    """The parts, and the counts that all connections add to."""

    slots: Slots
    catalog: Catalog
    clock: Clock
    settings: GatewaySettings
    wheel: Wheel
    pool: UpstreamPool
    turns: Turns
    log: AccessLog | None
    outbox: Outbox
    identities: Identities = field(default_factory=Identities)
    connections: set[ClientConnection] = field(default_factory=set)
    exchanges: set[Exchange] = field(default_factory=set)
    buffered_bytes: int = 0
    """Request bodies in memory."""
    requests: int = 0
    refused_connections: int = 0
    draining: bool = False
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def look_if_quiet(self) -> None:
        """Tell a drain that waits when the last request and connection are gone."""
        if self.draining and not self.exchanges and not self.connections:
            self._quiet.set()

    async def quiet(self, bound: float) -> None:
        """Wait until nothing is under way, for `bound` seconds at most."""
        self.look_if_quiet()
        try:
            async with asyncio.timeout(bound):
                await self._quiet.wait()
        except TimeoutError:
            return
