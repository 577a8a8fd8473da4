"""Connections to a gateway that stands still: calls that it did not answer in time come to nothing when it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from events.clock import SystemClock
from runtime.core.frames import Ask, FromAuthority, Ping, ToAuthority
from runtime.core.members import Member
from runtime.desk import peers as module
from runtime.desk.handshake import Meeting, read_hello
from runtime.desk.line import Line
from runtime.desk.peers import Peers, PeerSettings
from runtime.desk.wire import line, parse
from tests.support.waiting import until

ME = Member("a", "a.1")
OTHER = Member("b", "b.1")


class Told:
    """Hears what the connections tell, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def met(self, follower: Member) -> None:
        self.events.append(f"met {follower.gateway}")

    def from_follower(self, follower: Member, frame: ToAuthority) -> None:
        self.events.append(f"{follower.gateway} follows: {frame}")

    def from_authority(self, authority: Member, frame: FromAuthority) -> None:
        assert isinstance(frame, Ping)
        self.events.append(f"{authority.gateway} pings {frame.at}")

    def ended(self, member: Member, *, called: bool) -> None:
        self.events.append(f"ended {member.gateway} {called}")

    def refused(self, member: Member) -> None:
        self.events.append(f"refused {member.gateway}")


class Sleeper:
    """The gateway `OTHER`, by hand: its kernel takes connections, it answers them when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.address = ""

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls.append((reader, writer))

    async def answer(self, index: int, at: float) -> bool:
        """Do the called side's part of a handshake, and ping. False: the caller has hung up."""
        reader, writer = self.calls[index]
        meeting = Meeting(OTHER)
        hello = await asyncio.wait_for(reader.readline(), 15.0)
        if not hello:  # hung up before it came to that
            return False
        _, values = parse(hello)
        writer.write(line("hello", *meeting.hello.values(), meeting.proof("asked", read_hello(values))))
        proof = await asyncio.wait_for(reader.readline(), 15.0)
        writer.write(line("ping", at))
        return proof != b""

    async def hears(self, index: int) -> bytes:
        """The next line of a call."""
        return await asyncio.wait_for(self.calls[index][0].readline(), 15.0)


@asynccontextmanager
async def sleeper() -> AsyncIterator[tuple[Peers, Told, Sleeper]]:
    """`ME`, which knows nobody yet, and a gateway that stands still."""
    told, other = Told(), Sleeper()
    server = await asyncio.start_server(other.take, "127.0.0.1", 0)
    other.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    caller = Peers(ME, PeerSettings(), SystemClock(), told)
    try:
        yield caller, told, other
    finally:
        await caller.close()
        server.close()
        for _, writer in other.calls:
            writer.close()


async def test_a_call_to_a_gateway_that_is_given_up_comes_to_nothing() -> None:
    """It was found dead while a call waited for its answer, and is called again when it lives again. If the first call
    came to life beside the second, each side would count on another one."""
    async with sleeper() as (caller, told, other):
        caller.call({OTHER: other.address})
        await until(lambda: len(other.calls) == 1)
        caller.call({})
        caller.call({OTHER: other.address})
        await until(lambda: len(other.calls) == 2)
        assert not await other.answer(0, at=1.0)
        assert await other.answer(1, at=2.0)
        await until(lambda: told.events)
        assert told.events == ["b pings 2.0"]
        caller.say(OTHER, Ask("r", "m", "c", 0.0, 1.0, 1, False, 0))
        assert b'"ask"' in await other.hears(1)


async def test_a_call_that_is_not_answered_in_time_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one does not come to life later."""
    monkeypatch.setattr(module, "CALL_WITHIN", 0.1)
    async with sleeper() as (caller, told, other):
        caller.call({OTHER: other.address})
        await until(lambda: len(other.calls) == 2)
        monkeypatch.undo()
        assert not await other.answer(0, at=1.0)
        assert told.events == []


async def test_an_authority_that_answers_anew_is_lost_first() -> None:
    """What was said over the connection before may not have come: whoever listens must know, and present itself."""
    told = Told()
    caller = Peers(ME, PeerSettings(), SystemClock(), told)
    first, second = (Line(lambda _: None, lambda: None) for _ in range(2))
    caller.authority(OTHER, first)
    caller.from_authority(OTHER, first, Ping(1.0))
    caller.authority(OTHER, second)
    caller.from_authority(OTHER, first, Ping(2.0))
    caller.from_authority(OTHER, second, Ping(3.0))
    caller.hung_up(OTHER, first)
    caller.hung_up(OTHER, second)
    assert told.events == ["b pings 1.0", "ended b True", "b pings 3.0", "ended b True"]
