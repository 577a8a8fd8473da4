"""The gateway as a part: the desk that leases slots, the data port before it, and asynchronous inference beside it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable, Sequence
from typing import Final

from deploy.api.ports import Reading
from deploy.compose.eventlog import OpenLog
from deploy.compose.part import readings, until_one_ends, url_of
from deploy.compose.peers import peer_settings
from deploy.settings.settings import Settings
from events.clock import Clock
from events.names import GatewayName
from events.units import Bytes, Seconds
from events.writer import EventWriter
from runtime.desk.desk import Desk, DeskSettings
from runtime.desk.shared import SharedDesk
from runtime.gateway.server import GatewayServer
from runtime.gateway.settings import GatewaySettings
from runtime.inference.office import Office
from runtime.inference.settings import InferenceSettings


class GatewayPart:
    """Desk, data port and asynchronous inference of one process."""

    def __init__(self, settings: Settings, log: OpenLog, clock: Clock, boot: str) -> None:
        self._settings = settings
        writer = EventWriter(f"relume/gateway/{settings.node_name}", clock)
        own = DeskSettings(
            gateway=GatewayName(settings.node_name), boot=boot, hold_max_requests=settings.hold_max_requests,
            hold_max_bytes=Bytes(settings.hold_max_bytes),
        )  # fmt: skip
        peers = peer_settings(settings)
        self.desk: Desk = Desk(log, clock, writer, own) if peers is None else SharedDesk(log, clock, writer, own, peers)
        self._server = GatewayServer(self.desk, self.desk, clock, gateway_settings(settings))
        self.desk.serve(self._server)
        self._office = Office(log, self.desk, clock, inference_settings(settings), random.Random())  # noqa: S311 - spreads retries

    async def start(self) -> None:
        """See `Part.start`. Raises OSError for a port that is taken."""
        await self.desk.start()
        await self._server.start()
        self._office.start()

    async def wait(self) -> None:
        """See `Part.wait`."""
        await until_one_ends(self.desk.wait_broken(), self._office.wait_broken())

    async def stop(self, bound: Seconds) -> None:
        """Refuse those held, unless other gateways stay; let running ones finish within `bound`, say that it leaves."""
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, each also when another fails
            steps.push_async_callback(self.desk.close)
            steps.push_async_callback(self._finish, bound)
            steps.callback(self.desk.shut_down)

    async def _finish(self, bound: Seconds) -> None:
        """Both have the same time."""
        await asyncio.gather(self._server.drain(bound), self._office.stop(bound))

    def missing(self) -> Sequence[str]:
        """See `Part.missing`."""
        if self.desk.ready:
            return []
        return ["the gateway does not know yet what is declared and what runs, or is shutting down"]

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        yield from readings("desk", self.desk.counts)
        yield from readings("gateway", self._server.stats())
        yield from readings("inference", self._office.stats())
        if isinstance(self.desk, SharedDesk):
            yield from readings("sharing", self.desk.sharing_counts)
            yield from readings("peers", self.desk.peer_counts)

    def url(self) -> str:
        """Where clients point their OpenAI library (without ``/v1``)."""
        settings = self._settings
        return url_of(settings.gateway_tls_cert is not None, settings.gateway_host, self._server.port)


FAREWELL: Final = Seconds(2.0)
"""Of a gateway of several: longer than most clients in a loop think, and little in a rollout."""


def gateway_settings(settings: Settings) -> GatewaySettings:
    """The data port's part of the settings."""
    return GatewaySettings(
        host=settings.gateway_host,
        port=settings.gateway_port,
        tls_certificate=str(settings.gateway_tls_cert or ""),
        tls_key=str(settings.gateway_tls_key or ""),
        access_log="/dev/stderr" if settings.access_log == "-" else settings.access_log,
        max_body_bytes=Bytes(settings.max_body_bytes),
        farewell=FAREWELL if settings.peer_address else Seconds(0.0),
    )


def inference_settings(settings: Settings) -> InferenceSettings:
    """Asynchronous inference's part of the settings."""
    topics = frozenset(one.strip() for one in settings.inference_reply_topics.split(",") if one.strip())
    return InferenceSettings(gateway=settings.node_name, reply_topics=topics)
