"""The data port as a whole: listening, statistics, and an end that cuts nobody off before its bound."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from events.clock import Clock
from events.units import Seconds
from runtime.gateway.access_log import AccessLog
from runtime.gateway.client_connection import ClientConnection
from runtime.gateway.context import GatewayContext
from runtime.gateway.exchange import Exchange
from runtime.gateway.outbox import Outbox
from runtime.gateway.pool import UpstreamPool
from runtime.gateway.settings import GatewaySettings
from runtime.gateway.states import State
from runtime.gateway.turns import Turns
from runtime.gateway.wheel import Wheel
from runtime.ports import Catalog, Slots

_BACKLOG = 4096
"""Connections that the kernel may hold for us; a burst to a model at zero is 1,000 and more."""


@dataclass(frozen=True, slots=True)
class GatewayStats:
    """What the data port is doing now, and has counted since its start."""

    connections: int = 0
    held: int = 0
    running: int = 0
    """Requests with a lease, also those whose client has left."""
    requests: int = 0
    buffered_bytes: int = 0
    upstream_idle: int = 0
    upstream_opening: int = 0
    """Replicas to which connections are being opened ahead of requests."""
    refused_connections: int = 0
    access_lines_dropped: int = 0
    """For want of room, or because the disk took none."""


class GatewayServer:
    """The data port. `start`, then `drain`; not to be started again."""

    def __init__(self, slots: Slots, catalog: Catalog, clock: Clock, settings: GatewaySettings) -> None:
        self._slots = slots
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._context: GatewayContext | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError (address in use, log not writable) and ssl.SSLError (bad certificate files)."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        tls = _tls(settings) if settings.tls_certificate else None
        wheel = Wheel(self._clock, loop)
        exchanges: set[Exchange] = set()
        outbox = Outbox(loop, exchanges)
        pool = UpstreamPool(loop, wheel, self._clock, settings, outbox)
        log = AccessLog(Path(settings.access_log)) if settings.access_log else None
        context = GatewayContext(
            self._slots,
            self._catalog,
            self._clock,
            settings,
            wheel,
            pool,
            Turns(loop),
            log,
            outbox,
            exchanges=exchanges,
        )
        self._server = await loop.create_server(
            lambda: ClientConnection(context), settings.host, settings.port, ssl=tls, backlog=_BACKLOG
        )
        self._context = context

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._server is not None
        number = self._server.sockets[0].getsockname()[1]
        assert isinstance(number, int)
        return number

    @property
    def timers(self) -> int:
        """Deadlines that are set."""
        return len(self._context.wheel) if self._context is not None else 0

    def stats(self) -> GatewayStats:
        """Now; zeros before `start`."""
        context = self._context
        if context is None:
            return GatewayStats()
        held = sum(1 for exchange in context.exchanges if exchange.state is State.HELD)
        return GatewayStats(
            connections=len(context.connections),
            held=held,
            running=len(context.exchanges) - held,
            requests=context.requests,
            buffered_bytes=context.buffered_bytes,
            upstream_idle=context.pool.idle,
            upstream_opening=context.pool.opening,
            refused_connections=context.refused_connections,
            access_lines_dropped=0 if context.log is None else context.log.dropped + context.log.failed_writes,
        )

    # The front of the desk; before `start` and in a drain nothing is ahead of anything

    def make_way(self) -> None:
        """See `Front.make_way`."""
        if self._context is not None:
            self._context.turns.make_way()

    def end_way(self) -> None:
        """See `Front.end_way`."""
        if self._context is not None:
            self._context.turns.end_way()

    def expect(self, host: str, port: int, requests: int) -> None:
        """See `Front.expect`."""
        if self._context is not None and not self._context.draining:
            self._context.pool.open_ahead((host, port), requests)

    async def drain(self, bound: Seconds) -> None:
        """Accept no more, let what runs finish within `bound`, break off the rest visibly, then close everything.

        Held requests are the desk's to refuse; what it has not refused by `bound` is refused here. A connection
        whose client was told nothing else stays a moment for another request, which is its last (`farewell`).
        """
        context = self._context
        if context is None or context.draining:
            return
        context.draining = True
        if self._server is not None:
            self._server.close()
        for connection in list(context.connections):
            connection.drain()
        await context.quiet(bound)
        for exchange in list(context.exchanges):
            exchange.shut_down()
        await context.quiet(self._settings.linger_timeout)
        for connection in list(context.connections):
            connection.abort()
        await context.quiet(self._settings.linger_timeout)
        await context.pool.close()
        context.wheel.close()
        if context.log is not None:
            await asyncio.to_thread(context.log.close)


def _tls(settings: GatewaySettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    context.set_alpn_protocols(["http/1.1"])
    return context
