"""Gateways for tests: started on a free port with short deadlines, and checked to be empty at the end."""

from __future__ import annotations

from dataclasses import replace

from events.clock import SystemClock
from events.units import Seconds
from runtime.gateway.server import GatewayServer
from runtime.gateway.settings import GatewaySettings
from tests.support.raw_client import RawClient
from tests.support.scripted_slots import FixedCatalog, ScriptedSlots
from tests.support.waiting import until

SETTINGS = GatewaySettings(port=0, linger_timeout=Seconds(0.3), stall_timeout=Seconds(2.0), head_timeout=Seconds(2.0))


class Gateways:
    """All gateways of one test."""

    def __init__(self) -> None:
        self._made: list[tuple[GatewayServer, ScriptedSlots]] = []
        self._clients: list[RawClient] = []

    async def start(self, slots: ScriptedSlots, **settings: object) -> GatewayServer:
        """A gateway over these slots; `settings` replace those of the tests."""
        server = GatewayServer(slots, FixedCatalog(), SystemClock(), replace(SETTINGS, **settings))
        await server.start()
        self._made.append((server, slots))
        return server

    async def client(self, server: GatewayServer) -> RawClient:
        """A connection, closed at the end."""
        client = await RawClient.open(server.port)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close the clients, wait until the gateways have noticed, and check that they hold nothing."""
        for client in self._clients:
            await client.closed()
        for server, slots in self._made:
            await until(lambda server=server: _quiet(server))
            slots.assert_empty()
            assert server.stats().buffered_bytes == 0
            await server.drain(Seconds(5.0))
            assert not server.timers


def _quiet(server: GatewayServer) -> bool:
    stats = server.stats()
    return not stats.running and not stats.held
