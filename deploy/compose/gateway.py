"""The gateway as a part: the desk that leases slots, and the data port before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from deploy.api.ports import Reading
from deploy.compose.part import readings
from deploy.compose.peers import peer_settings
from deploy.settings.settings import Settings
from events.clock import Clock
from events.log import EventLog
from events.names import GatewayName
from events.units import Bytes, Seconds
from events.writer import EventWriter
from runtime.desk.desk import Desk, DeskSettings
from runtime.desk.shared import SharedDesk
from runtime.gateway.server import GatewayServer
from runtime.gateway.settings import GatewaySettings


class GatewayPart:
    """Desk and data port of one process."""

    def __init__(self, settings: Settings, log: EventLog, clock: Clock, boot: str) -> None:
        self._settings = settings
        writer = EventWriter(f"relume/gateway/{settings.node_name}", clock)
        own = DeskSettings(
            gateway=GatewayName(settings.node_name), boot=boot, hold_max_requests=settings.hold_max_requests,
            hold_max_bytes=Bytes(settings.hold_max_bytes),
        )  # fmt: skip
        peers = peer_settings(settings)
        self.desk: Desk = Desk(log, clock, writer, own)
        if peers is not None:
            self.desk = SharedDesk(log, clock, writer, own, peers)
        self._server = GatewayServer(self.desk, self.desk, clock, gateway_settings(settings))
        self.desk.serve(self._server)

    async def start(self) -> None:
        """See `Part.start`. Raises OSError for a port that is taken."""
        await self.desk.start()
        await self._server.start()

    async def wait(self) -> None:
        """See `Part.wait`."""
        await self.desk.wait_broken()

    async def stop(self, bound: Seconds) -> None:
        """Refuse those held, let running ones finish within `bound`, say that this gateway leaves."""
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, each also when another fails
            steps.push_async_callback(self.desk.close)
            steps.push_async_callback(self._server.drain, bound)
            steps.callback(self.desk.shut_down)

    def missing(self) -> Sequence[str]:
        """See `Part.missing`."""
        if self.desk.ready:
            return []
        return ["the gateway does not know yet what is declared and what runs, or is shutting down"]

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        yield from readings("desk", self.desk.counts)
        yield from readings("gateway", self._server.stats())
        if isinstance(self.desk, SharedDesk):
            yield from readings("sharing", self.desk.sharing_counts)
            yield from readings("peers", self.desk.peer_counts)

    def url(self) -> str:
        """Where clients point their OpenAI library (without ``/v1``)."""
        settings = self._settings
        return url_of(settings.gateway_tls_cert is not None, settings.gateway_host, self._server.port)


def gateway_settings(settings: Settings) -> GatewaySettings:
    """The data port's part of the settings."""
    return GatewaySettings(
        host=settings.gateway_host,
        port=settings.gateway_port,
        tls_certificate=str(settings.gateway_tls_cert or ""),
        tls_key=str(settings.gateway_tls_key or ""),
        access_log="/dev/stderr" if settings.access_log == "-" else settings.access_log,
        max_body_bytes=Bytes(settings.max_body_bytes),
    )


def url_of(tls: bool, host: str, port: int) -> str:
    """An address as people and programs write it."""
    shown = f"[{host}]" if ":" in host else host
    return f"http{'s' if tls else ''}://{shown}:{port}"
