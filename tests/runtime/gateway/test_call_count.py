"""How many Python calls a request and a streamed chunk cost: a count is the same on every machine, unlike a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import cast

from events.clock import SystemClock
from runtime.gateway.client_connection import ClientConnection
from runtime.gateway.context import GatewayContext
from runtime.gateway.outbox import FEW, Outbox
from runtime.gateway.pool import UpstreamPool
from runtime.gateway.settings import GatewaySettings
from runtime.gateway.turns import Turns
from runtime.gateway.upstream import UpstreamConnection
from runtime.gateway.wheel import Wheel
from tests.support.scripted_slots import FixedCatalog, ScriptedSlots

ADDRESS = ("127.0.0.1", 9)
MANY = range(FEW + 1)
"""Requests under way: so many that what is written leaves at the end of a turn."""
BODY = b'{"model":"echo","messages":[{"role":"user","content":"hello"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"choices":1}'[:-1]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"9\r\ndata: 1\n\n\r\n"

MOST_A_REQUEST = 80
"""70 on uvloop and 75 on asyncio when it was written. With the real desk it was 86, and 137 before (see docs)."""
MOST_A_CHUNK = 8
"""7 when it was written, and 10 before whole chunks were counted in one step."""


class RecordingTransport:
    """Takes what is written, one piece a write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


class Pair:
    """A client's connection and one to a replica, both without sockets."""

    def __init__(self) -> None:
        loop, clock, settings = asyncio.get_running_loop(), SystemClock(), GatewaySettings(port=0)
        self.wheel = Wheel(clock, loop)
        self.outbox = Outbox(loop, MANY)
        self.pool = pool = UpstreamPool(loop, self.wheel, clock, settings, self.outbox)
        self.slots = slots = ScriptedSlots([ADDRESS])
        context = GatewayContext(
            slots, FixedCatalog(), clock, settings, self.wheel, pool, Turns(loop), None, self.outbox
        )
        self.client, self.replica = ClientConnection(context), UpstreamConnection(pool, ADDRESS)
        self.to_client, self.to_replica = RecordingTransport(), RecordingTransport()
        self.client.connection_made(cast("asyncio.Transport", self.to_client))
        self.replica.connection_made(cast("asyncio.Transport", self.to_replica))
        pool.release(self.replica)

    def request(self) -> None:
        self.client.data_received(REQUEST)
        self.outbox.flush()
        self.replica.data_received(ANSWER)
        self.outbox.flush()


def calls_of(work: Callable[[], None]) -> int:
    """Python functions that `work` calls, itself not counted."""
    calls = -1

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


async def test_a_request_on_a_warm_connection_takes_few_calls_and_two_writes() -> None:
    """One write to the replica with head and body, one to the client."""
    pair = Pair()
    pair.request()
    await asyncio.sleep(0)
    pair.to_client.writes.clear()
    pair.to_replica.writes.clear()
    calls = calls_of(pair.request)
    assert len(pair.to_replica.writes) == 1
    assert pair.to_replica.writes[0].endswith(BODY)
    assert len(pair.to_client.writes) == 1
    assert pair.to_client.writes[0].endswith(b'\r\n\r\n{"choices":1')
    assert calls <= MOST_A_REQUEST
    pair.wheel.close()


async def test_a_streamed_chunk_takes_few_calls_and_one_write() -> None:
    """Read, count, write."""
    pair = Pair()
    pair.client.data_received(REQUEST)
    pair.outbox.flush()
    pair.replica.data_received(STREAM)
    pair.replica.data_received(CHUNK)
    pair.outbox.flush()
    pair.to_client.writes.clear()
    pair.replica.data_received(CHUNK)  # the first one of a turn also has the turn's end come
    calls = calls_of(lambda: pair.replica.data_received(CHUNK))
    pair.outbox.flush()
    assert pair.to_client.writes == [CHUNK, CHUNK]
    assert calls <= MOST_A_CHUNK
    pair.replica.data_received(b"0\r\n\r\n")
    pair.wheel.close()
