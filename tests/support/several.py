"""Several real gateways in one process: desks over one log, data ports and peer ports on real sockets, real engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.names import GatewayName
from events.types.replicas import ReplicaStatus
from events.units import Seconds
from events.writer import EventWriter
from runtime.desk.desk import DeskSettings
from runtime.desk.peers import PeerSettings
from runtime.desk.shared import SharedDesk
from runtime.gateway.server import GatewayServer
from runtime.gateway.settings import GatewaySettings
from tests.support.desk import declaration
from tests.support.simulated import Client, simulated
from tests.support.slots import MODEL, observed, replica
from tests.support.waiting import until

PEERS = PeerSettings(address="127.0.0.1:0")


class Gateway:
    """One gateway of several."""

    def __init__(self, several: Several, name: str, peers: PeerSettings) -> None:
        clock = several.clock
        several.boots += 1
        settings = DeskSettings(gateway=GatewayName(name), boot=f"{name}.{several.boots}")
        writer = EventWriter(f"relume/gateway/{name}", clock)
        self.name = name
        self.desk = SharedDesk(several.log, clock, writer, settings, peers)
        self.server = GatewayServer(self.desk, self.desk, clock, GatewaySettings(port=0, farewell=Seconds(1.0)))
        self.desk.serve(self.server)

    async def start(self) -> None:
        await self.desk.start()
        await self.server.start()

    async def stop(self) -> None:
        """As SIGTERM does."""
        self.desk.shut_down()
        await self.server.drain(Seconds(10.0))
        await self.desk.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def authority(self) -> str:
        """Whom it follows for MODEL."""
        authority = self.desk._sharing.allegiance.authority_of(MODEL)
        return "" if authority is None else authority.gateway

    @property
    def sells(self) -> bool:
        model = self.desk._sharing.authority._models.get(MODEL)
        return model is not None and model.selling


class Several:
    """Gateways by name, one event log, and the engines behind."""

    def __init__(self, log: MemoryEventLog, clock: SystemClock) -> None:
        self.log = log
        self.clock = clock
        self.boots = 0
        self.gateways: dict[str, Gateway] = {}
        self.writer = EventWriter("relume/test", clock)

    async def start(self, name: str, peers: PeerSettings = PEERS) -> Gateway:
        """A gateway, started."""
        made = Gateway(self, name, peers)
        await made.start()
        self.gateways[name] = made
        return made

    async def append(self, *data: object) -> None:
        await self.log.append([self.writer.envelope(one) for one in data])

    async def observe(self, *replicas: ReplicaStatus) -> None:
        await self.append(observed(*replicas))

    async def until_agreed(self, seconds: float = 15.0) -> str:
        """All follow the one authority, which sells; its name."""
        await until(lambda: self._agreed() != "", seconds)
        return self._agreed()

    def _agreed(self) -> str:
        authorities = {gateway.authority for gateway in self.gateways.values()}
        if len(authorities) != 1:
            return ""
        (name,) = authorities
        return name if name in self.gateways and self.gateways[name].sells else ""


def served_by(engine: Client, index: int, slots: int, *, counts: bool = True) -> ReplicaStatus:
    """The replica that an engine in this process is."""
    path = "/stats" if counts else ""
    host = engine.url.removeprefix("http://")
    return replace(replica(index, slots=slots, busy_path=path), address=host)


@asynccontextmanager
async def several(*names: str, peers: PeerSettings = PEERS) -> AsyncIterator[Several]:
    """These gateways, started; MODEL is declared, and nothing runs."""
    clock = SystemClock()
    async with MemoryEventLog(clock) as log:
        made = Several(log, clock)
        await made.append(declaration())
        try:
            for name in names:
                await made.start(name, peers)
            yield made
        finally:
            await asyncio.gather(*(gateway.stop() for gateway in made.gateways.values()))


__all__ = ("MODEL", "PEERS", "Gateway", "Several", "served_by", "several", "simulated", "until")
