"""The connections of a gateway: to the authorities that it follows, and from the gateways that follow it.

One connection a pair and direction. Each gateway calls all others that live, whatever models there are, so that a
hand-over needs no handshake; a connection that ends is called again at once, then with back-off. A call that is refused
says for sure that no such gateway lives any more.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from events.clock import Clock
from events.units import Instant, Seconds
from runtime.core.frames import FromAuthority, ToAuthority
from runtime.core.members import UNSEEN, Member
from runtime.desk.handshake import Hello, Meeting, Unwelcome, read_hello
from runtime.desk.line import Line
from runtime.desk.wire import FollowerReader, Garbled, from_authority, line, parse, read_from_authority, to_authority

logger = logging.getLogger(__name__)

CALL_WITHIN = Seconds(2.0)
"""A call, and the handshake after it, take no longer."""

SOONEST = Seconds(0.05)
LATEST = Seconds(1.0)
"""Back-off between calls to one gateway."""

MOST_CONNECTIONS = 256
"""From gateways that call us; there are as many as other gateways, and for moments twice that."""


class Listener(Protocol):
    """Who is told of what happens on the connections."""

    def met(self, follower: Member) -> None:
        """A gateway that follows us has called, and proved itself."""

    def from_follower(self, follower: Member, frame: ToAuthority) -> None:
        """It said something."""

    def from_authority(self, authority: Member, frame: FromAuthority) -> None:
        """An authority said something."""

    def ended(self, member: Member, *, called: bool) -> None:
        """The connection that we `called`, or that called us, is gone."""

    def refused(self, member: Member) -> None:
        """No such gateway lives at its address any more."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Where other gateways reach us, and how all of them know each other. `address` empty: one gateway alone.

    `host` and `port` are what we listen on; `address` is ``HOST:PORT`` as others see it; its port may be 0: as bound.
    """

    host: str = "127.0.0.1"
    port: int = 0
    address: str = ""
    secret: bytes = b""
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class PeerCounts:
    """What the connections have carried since the start."""

    connections: int = 0
    calls: int = 0
    calls_failed: int = 0
    unwelcome: int = 0
    lines_sent: int = 0
    lines_received: int = 0
    lines_unknown: int = 0


class Peers:
    """All connections. Every method is called on the loop's thread."""

    def __init__(self, me: Member, settings: PeerSettings, clock: Clock, listener: Listener) -> None:
        self._me = me
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._callers: dict[Member, asyncio.Task[None]] = {}
        self._authorities: dict[Member, Line] = {}
        self._followers: dict[Member, Line] = {}
        self._heard: dict[Line, Instant] = {}
        self._told: set[str] = set()
        self.counts = PeerCounts()

    async def start(self) -> str:
        """Listen; returns the address that others call. Raises OSError."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Answering(self).line, settings.host, settings.port, ssl=settings.server_tls
        )
        host, _, port = settings.address.rpartition(":")
        bound = self._server.sockets[0].getsockname()[1]
        return f"{host}:{port if port != '0' else bound}"

    async def close(self) -> None:
        """End all connections, and take no more."""
        tasks = list(self._callers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._callers.clear()
        if self._server is not None:
            self._server.close()
        for one in list(self._heard):
            one.end()

    def call(self, wanted: Mapping[Member, str]) -> None:
        """Keep connections to these gateways, and to no others; give up the ones that have fallen silent."""
        for member in [member for member in self._callers if member not in wanted]:
            self._callers.pop(member).cancel()
            if (authority := self._authorities.get(member)) is not None:
                authority.end()
        for member, address in wanted.items():
            if member not in self._callers:
                self._callers[member] = asyncio.get_running_loop().create_task(
                    self._keep_calling(member, address), name=f"peer-{member.gateway}"
                )
        now = self._clock.now()
        for one, at in list(self._heard.items()):
            if now - at > UNSEEN:
                one.end()

    def say(self, authority: Member, frame: ToAuthority) -> None:
        """To an authority; unsaid if there is no connection: then it is presented later."""
        one = self._authorities.get(authority)
        if one is not None:
            for text in to_authority(frame):
                self.counts.lines_sent += 1
                one.say(text)

    def tell(self, follower: Member, frame: FromAuthority) -> None:
        """To a gateway that follows us; untold if there is no connection."""
        one = self._followers.get(follower)
        if one is not None:
            self.counts.lines_sent += 1
            one.say(from_authority(frame))

    def hang_up(self, follower: Member) -> None:
        """It shall call again."""
        one = self._followers.get(follower)
        if one is not None:
            one.end()

    # Parts that the two kinds of connections share

    def hear(self, one: Line) -> None:
        """Something came over it."""
        self.counts.lines_received += 1
        self._heard[one] = self._clock.now()

    def forget(self, one: Line) -> None:
        """It has ended."""
        self._heard.pop(one, None)
        self.counts.connections = len(self._authorities) + len(self._followers)

    def meeting(self) -> Meeting:
        """Our side of a handshake."""
        return Meeting(self._me, self._settings.secret)

    def unwelcome(self, who: str, why: object) -> None:
        """Somebody is not to be talked to: told once."""
        self.counts.unwelcome += 1
        text = f"the gateway {who} is not understood: {why}"
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            logger.error("%s", text)

    def full(self) -> bool:
        """Whether no more gateways may call."""
        return len(self._heard) >= MOST_CONNECTIONS + len(self._authorities)

    def follows(self, follower: Member, one: Line) -> None:
        """A gateway has called and proved itself; an older connection of it ends."""
        before = self._followers.pop(follower, None)
        self._followers[follower] = one
        if before is not None:
            before.end()
            self._listener.ended(follower, called=False)
        self.counts.connections = len(self._authorities) + len(self._followers)
        self._listener.met(follower)

    def from_follower(self, follower: Member, one: Line, frame: ToAuthority) -> None:
        """It said something; what an older connection of it says counts no more."""
        if self._followers.get(follower) is one:
            self._listener.from_follower(follower, frame)

    def parted(self, follower: Member, one: Line) -> None:
        """Its connection has ended."""
        if self._followers.get(follower) is one:
            del self._followers[follower]
            self._listener.ended(follower, called=False)

    # Calling

    async def _keep_calling(self, member: Member, address: str) -> None:
        wait = SOONEST
        while True:
            calling = _Calling(self, member)
            began = self._clock.now()
            self.counts.calls += 1
            try:
                async with asyncio.timeout(CALL_WITHIN):
                    await self._connect(calling, address)
                    await calling.met.wait()
            except ConnectionRefusedError:
                self._listener.refused(member)
            except (OSError, TimeoutError, ValueError) as error:  # ValueError: its beat tells no address
                self.counts.calls_failed += 1
                logger.debug("%s does not answer at %s: %s", member.gateway, address, error)
            else:
                await calling.over.wait()
            finally:
                calling.line.end()  # also of a call that is given up: one that is answered later would be a second line
            if self._clock.now() - began > LATEST:
                wait = SOONEST  # it was there for a while: see at once whether it still is
            else:
                await self._clock.sleep_until(Instant(self._clock.now() + wait))
                wait = Seconds(min(2 * wait, LATEST))

    async def _connect(self, calling: _Calling, address: str) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        tls = self._settings.client_tls
        name = host if tls is not None else None
        await asyncio.get_running_loop().create_connection(
            lambda: calling.line, host, int(port), ssl=tls, server_hostname=name
        )

    def authority(self, member: Member, one: Line) -> None:
        """An authority has answered, and proved itself. An older connection to it ends, with all that was on its way:
        it may have closed and not got rid of what it had to send yet."""
        before = self._authorities.pop(member, None)
        self._authorities[member] = one
        self.counts.connections = len(self._authorities) + len(self._followers)
        if before is not None:
            before.end()
            self._listener.ended(member, called=True)

    def from_authority(self, member: Member, one: Line, frame: FromAuthority) -> None:
        """It said something; what came over an older connection counts no more."""
        if self._authorities.get(member) is one:
            self._listener.from_authority(member, frame)

    def hung_up(self, member: Member, one: Line) -> None:
        """The connection to it has ended."""
        if self._authorities.get(member) is one:
            del self._authorities[member]
            self._listener.ended(member, called=True)

    def another(self, member: Member) -> None:
        """Another gateway answers at its address: it is gone."""
        self._listener.refused(member)


class _Calling:
    """A call to an authority: our side of its connection."""

    def __init__(self, peers: Peers, member: Member) -> None:
        self._peers = peers
        self._member = member
        self._meeting = peers.meeting()
        self._known = False
        self.met = asyncio.Event()
        """The handshake is over, well or not."""
        self.over = asyncio.Event()
        self.line = _Opening(self._on_line, self._on_end, line("hello", *self._meeting.hello.values()))

    def _on_line(self, text: bytes) -> None:
        self._peers.hear(self.line)
        try:
            kind, values = parse(text)
            if self._known:
                frame = read_from_authority(kind, values)
                if frame is None:
                    self._peers.counts.lines_unknown += 1
                else:
                    self._peers.from_authority(self._member, self.line, frame)
            else:
                self._greet(kind, values)
        except (Garbled, Unwelcome) as error:
            self._peers.unwelcome(self._member.gateway, error)
            self.line.end()

    def _greet(self, kind: str, values: list[object]) -> None:
        if kind == "unwelcome":
            raise Unwelcome(f"it says: {values[0] if values else ''}")
        if kind != "hello":
            raise Garbled(f"it begins with {kind!r}; is the address that of a gateway's peer port?")
        hello = read_hello(values)
        self._meeting.check("asked", hello, values[5] if len(values) > 5 else None)
        if hello.member != self._member:
            self._peers.another(self._member)
            self.line.end()
            return
        self._known = True
        self.line.say(line("proof", self._meeting.proof("called", hello)))
        self._peers.authority(self._member, self.line)
        self.met.set()

    def _on_end(self) -> None:
        self.met.set()
        self.over.set()
        self._peers.hung_up(self._member, self.line)
        self._peers.forget(self.line)


class _Opening(Line):
    """A line whose side speaks first."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[], None], first: bytes) -> None:
        super().__init__(on_line, on_end)
        self._first = first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.say(self._first)


class _Answering:
    """A connection of somebody who called us."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._meeting = peers.meeting()
        self._hello: Hello | None = None
        self._follower: Member | None = None
        self._reader = FollowerReader()
        self.line = Line(self._on_line, self._on_end)
        asyncio.get_running_loop().call_later(CALL_WITHIN, self._too_slow)

    def _on_line(self, text: bytes) -> None:
        self._peers.hear(self.line)
        try:
            kind, values = parse(text)
            if self._follower is not None:
                frame = self._reader.read(kind, values)
                if frame is not None:
                    self._peers.from_follower(self._follower, self.line, frame)
                elif kind != "present":
                    self._peers.counts.lines_unknown += 1
            else:
                self._greet(kind, values)
        except (Garbled, Unwelcome) as error:
            self.line.say(line("unwelcome", str(error)))
            self.line.end()
            self._peers.unwelcome("that called" if self._hello is None else self._hello.member.gateway, error)

    def _greet(self, kind: str, values: list[object]) -> None:
        if kind == "hello" and self._hello is None:
            if self._peers.full():
                raise Unwelcome(f"{MOST_CONNECTIONS} gateways have called already")
            self._hello = hello = read_hello(values)
            self.line.say(line("hello", *self._meeting.hello.values(), self._meeting.proof("asked", hello)))
        elif kind == "proof" and self._hello is not None:
            self._meeting.check("called", self._hello, values[0] if values else None)
            self._follower = self._hello.member
            self._peers.follows(self._follower, self.line)
        else:
            raise Garbled(f"{kind!r} has no place in a handshake")

    def _too_slow(self) -> None:
        if self._follower is None:
            self.line.end()

    def _on_end(self) -> None:
        if self._follower is not None:
            self._peers.parted(self._follower, self.line)
        self._peers.forget(self.line)
