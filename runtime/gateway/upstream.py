"""The gateway's side of a connection to a replica: one request at a time, kept for the next one.

The connection frames the answer (where its head and its body end) and hands the bytes on untouched. Its exchange hears
of the answer's beginning and its bytes, then one of ended, lost and bad, and then no more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from runtime.gateway.chunks import MORE, BadFraming, CloseBody, Framing, LengthBody
from runtime.gateway.outbox import DIRECT
from runtime.gateway.response_head import ResponseHead

if TYPE_CHECKING:
    from runtime.gateway.exchange import Exchange
    from runtime.gateway.pool import UpstreamPool

_HEAD_END: Final = b"\r\n\r\n"


class UpstreamConnection(asyncio.Protocol):
    """A connection to a replica. `address`: its key in the pool; `heard`: a byte of the present answer has come."""

    __slots__ = (
        "_answer",
        "_body",
        "_cut",
        "_home",
        "_keep",
        "_paused",
        "_queued_at",
        "_to_head",
        "address",
        "heard",
        "idle_since",
        "transport",
    )

    def __init__(self, home: UpstreamPool, address: tuple[str, int]) -> None:
        self.address = address
        self.heard = False
        self.idle_since = 0.0
        self._home = home
        self.transport: asyncio.Transport | None = None
        self._answer: Exchange | None = None
        self._body: Framing | None = None
        self._cut = b""
        self._keep = True
        self._to_head = False
        self._paused = False
        self._queued_at = -1
        """How often the outbox had been flushed when the present request was put there."""

    def send(self, sink: Exchange, head: bytes, body: bytes | bytearray, to_head: bool) -> None:
        """Send a request; `sink` hears of its answer."""
        transport = self.transport
        self._answer = sink
        self._to_head = to_head
        self.heard = False
        if transport is None:
            return
        # If it was closed in this very turn of the loop: connection_lost, which is on its way, tells the sink.
        outbox = self._home.outbox
        self._queued_at = outbox.flushes
        if len(body) < DIRECT:
            outbox.write(transport, head + body)
        else:
            outbox.write(transport, head)
            outbox.write(transport, body)

    def abort(self) -> None:
        """Close at once; nobody hears of it."""
        self._answer = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        """Read no more until `resume`: the client is slow."""
        if not self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self._home.opened(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        body = self._body
        if answer is None:
            self.abort()  # an engine that talks without being asked
        elif body is None:
            self._head_bytes(answer, data)
        else:
            try:
                end = body.feed(data)
            except BadFraming as error:
                self._bad(str(error))
                return
            if end == MORE:
                answer.answer_bytes(data)
            else:
                answer.answer_bytes(data if end == len(data) else data[:end])
                # The sink may have been cut off by what it was given (its client is gone): then this is nobody's.
                if self._answer is answer:
                    self._end(answer, end < len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        body = self._body
        self._answer = None
        self._home.lost(self)
        if answer is None:
            return
        if isinstance(body, CloseBody) and exc is None:
            answer.answer_ended()
        else:
            answer.answer_lost("the engine closed the connection" if exc is None else f"{type(exc).__name__}: {exc}")

    # The head

    def _head_bytes(self, answer: Exchange, data: bytes) -> None:
        if self._queued_at == self._home.outbox.flushes:  # it cannot be an answer: what was asked is not sent yet
            self.abort()
            answer.answer_lost("the engine talked without being asked")
            return
        self.heard = True
        if self._cut:
            data = self._cut + data
            self._cut = b""
        start = 0
        home = self._home
        while True:
            stop = data.find(_HEAD_END, start)
            if stop < 0:
                if len(data) - start > home.max_head_bytes:
                    self._bad("its head is too long")
                else:
                    self._cut = data[start:]
                return
            stop += 4
            if stop - start > home.max_head_bytes:
                self._bad("its head is too long")
                return
            try:
                head = home.known_heads.read(data[start:stop], home.max_headers, self._to_head)
                if head.status >= 200:
                    self._begin(answer, head, data[stop:])
                    return
            except BadFraming as error:
                self._bad(str(error))
                return
            start = stop  # 100 and 103 are between the engine and us

    def _begin(self, answer: Exchange, head: ResponseHead, rest: bytes) -> None:
        self._body = body = head.body
        self._keep = head.keep_alive
        if type(body) is LengthBody and body.left == len(rest):  # as `feed` would find; nearly every short answer
            body.left = 0
            answer.answer_begins(head, rest, True)
            if self._answer is answer:
                self._end(answer, False)
            return
        end = body.feed(rest)
        if end == MORE:
            answer.answer_begins(head, rest, False)
        else:
            answer.answer_begins(head, rest[:end], True)
            if self._answer is answer:
                self._end(answer, end < len(rest))

    def _end(self, answer: Exchange, excess: bool) -> None:
        transport = self.transport
        assert transport is not None
        self._answer = None
        self._body = None
        if excess or not self._keep or transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
        else:
            if self._paused:
                self.resume()
            self._home.release(self)
        answer.answer_ended()

    def _bad(self, reason: str) -> None:
        answer = self._answer
        self.abort()
        if answer is not None:
            answer.answer_bad(reason)
