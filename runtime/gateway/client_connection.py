"""The client's side of the data port: reads one request at a time within its caps, and answers in order.

A request is found by its empty line, parsed by llhttp, and its body framed by rules that leave nothing to guess, so
bytes behind it are the next request and nothing else. While a request is under way, what a client sends ahead waits
here up to a bound, then the socket is no longer read.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from enum import Enum, auto
from typing import Final, cast

from events.units import Instant, Seconds
from runtime.gateway.answer import status_line
from runtime.gateway.chunks import MORE, BadFraming, ChunkedBody
from runtime.gateway.context import GatewayContext
from runtime.gateway.errors import Failure, Refused, bad_request, error_headers, error_object
from runtime.gateway.exchange import Exchange
from runtime.gateway.last_head import LastHead
from runtime.gateway.request import Request
from runtime.gateway.request_head import RequestHead, body_too_large, parse_request_head
from runtime.gateway.routing import Target, find_target

_HEAD_END: Final = b"\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_AHEAD: Final = 64 * 1024
"""Bytes of further requests kept while one is under way."""
_MAX_DISCARDED: Final = 1024 * 1024
"""A refused request's body up to this size is read, so that the connection can go on."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset."""


_PROBE_SECONDS: Final = 1.0
"""How often a client that is not read is asked whether it is still there."""


class Phase(Enum):
    """What a connection is doing."""

    HEAD = auto()
    BODY = auto()
    BUSY = auto()
    LINGERING = auto()
    CLOSING = auto()
    LOST = auto()


# An attribute of an enumeration is looked up at each use, also in compiled code; these are not.
_HEAD: Final = Phase.HEAD
_BODY: Final = Phase.BODY
_BUSY: Final = Phase.BUSY
_LINGERING: Final = Phase.LINGERING
_CLOSING: Final = Phase.CLOSING
_LOST: Final = Phase.LOST


class ClientConnection(asyncio.Protocol):
    """One client connection."""

    __slots__ = (
        "_advancing", "_body", "_chunks", "_context", "_counted", "_exchange", "_head", "_last_head", "_phase",
        "_queued", "_read_paused", "_rest", "_scanned", "_since", "_target", "_transport", "_write_paused", "wake_slot",
    )  # fmt: skip

    _transport: asyncio.Transport
    _head: RequestHead
    _target: Target | Failure

    def __init__(self, context: GatewayContext) -> None:
        self.wake_slot = 0
        self._context = context
        self._exchange: Exchange | None = None
        self._last_head = LastHead()
        self._phase = _HEAD
        self._rest: bytes | bytearray = b""
        self._scanned = 0
        self._body = bytearray()
        self._counted = 0
        """Bytes of it that are counted in `buffered_bytes`."""
        self._chunks: ChunkedBody | None = None
        self._since = Instant(0.0)
        """When this phase began."""
        self._advancing = False
        self._queued = False
        """Waits for a later turn of the loop to go on."""
        self._read_paused = False
        self._write_paused = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        context = self._context
        self._transport.set_write_buffer_limits(high=context.settings.write_high_water)
        self._since = context.clock.now()
        if len(context.connections) >= context.settings.max_connections or context.draining:
            context.refused_connections += 1
            self._phase = _BUSY
            self._reject(Failure(503, "too_many_connections", "Too many connections.", Seconds(1.0), should_retry=True))
        else:
            self._wake_in(context.settings.idle_timeout)
        context.connections.add(self)

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase is _HEAD:
            if self._rest:
                self._append(data)
            else:
                self._rest = data
            if not self._queued:
                context = self._context
                now = context.clock.now()
                if context.turns.may_begin(self, now):
                    self._advance(now)
                else:
                    self._queued = True
        elif phase is _BODY:
            try:
                self._body_bytes(data)
            except Refused as refused:
                self._reject(refused.failure)
            else:
                self._advance(self._context.clock.now())
        elif phase is _BUSY:
            self._append(data)
            if len(self._rest) > _MAX_AHEAD and not self._read_paused:
                self._read_paused = True
                self._transport.pause_reading()
                self._context.wheel.wake_by(self, self._context.clock.now() + _PROBE_SECONDS)

    def eof_received(self) -> None:
        # A client that closes is gone, also when it only closed its sending half: engines must be told to stop.
        if self._phase is _BUSY:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._phase = _LOST
        self._forget_request()
        self._context.connections.discard(self)
        self._context.look_if_quiet()
        if self._exchange is not None:
            self._exchange.client_gone()
        else:
            self._context.wheel.forget(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._exchange is not None:
            self._exchange.client_full()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._exchange is not None:
            self._exchange.client_drained()
        else:
            self._advance(self._context.clock.now())

    # For the turns

    def begin(self) -> None:
        """It is its turn."""
        self._queued = False
        self._advance(self._context.clock.now())

    # For the exchange

    def write(self, data: bytes) -> None:
        """Send; nothing happens when the client is gone."""
        if self._phase is _BUSY:
            self._context.outbox.write(self._transport, data)

    def answered(self, keep_alive: bool) -> None:
        """The request is done: go on with the next one, or close."""
        self._exchange = None
        context = self._context
        if self._phase is _LOST:
            self._context.wheel.forget(self)
        elif self._phase is _BUSY:
            rests = context.settings.farewell if context.draining else context.settings.idle_timeout
            if not keep_alive or not rests:
                self._close()
                return
            self._phase = _HEAD
            self._since = now = context.clock.now()
            context.wheel.wake_by(self, now + rests)
            if self._read_paused:
                self._read_paused = False
                self._transport.resume_reading()
            if self._rest:
                self._advance(now)

    def break_off(self, reset: bool) -> None:
        """Close behind what was written; `reset`: at once, with a reset."""
        if self._phase is not _BUSY:
            return
        if reset:
            raw = self._transport.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._phase = _CLOSING
            self._context.outbox.flush()
            self._transport.abort()
        else:
            self._close()

    def abort(self) -> None:
        """Close at once."""
        if self._phase is not _LOST:
            self._transport.abort()

    def drain(self) -> None:
        """Close if no request is under way; a moment later if one was under way a moment ago, see `farewell`."""
        if self._phase is _HEAD and not self._queued and not self._rest:
            until = self._since + self._context.settings.farewell
            if until > self._context.clock.now():
                self._context.wheel.wake_by(self, until)
            else:
                self._close()

    def wake(self, now: Instant) -> float | None:
        """Act on the deadline of the present phase."""
        settings = self._context.settings
        if self._exchange is not None:
            due = self._exchange.wake(now)
            if not self._read_paused:
                return due
            if _peer_gone(self._transport):
                self.abort()
            return now + _PROBE_SECONDS if due is None else min(due, now + _PROBE_SECONDS)
        if self._phase is _HEAD:
            rests = settings.farewell if self._context.draining else settings.idle_timeout
            due = self._since + (settings.head_timeout if self._rest else rests)
        elif self._phase is _BODY:
            due = self._since + settings.body_grace + len(self._body) / settings.body_rate
        elif self._phase is _LINGERING:
            due = self._since + settings.linger_timeout
        elif self._phase is _CLOSING:
            due = self._since + settings.stall_timeout
        else:
            return None
        if now < due:
            return due
        return self._overdue()

    def _overdue(self) -> float | None:
        settings = self._context.settings
        if self._phase is _BODY or (self._phase is _HEAD and self._rest):
            part = "body" if self._phase is _BODY else "head"
            self._reject(Failure(408, "request_timeout", f"The {part} of the request took too long."))
            return self._since + settings.linger_timeout
        # Idle, or it neither reads its answer nor closes: what it has not read by now is not waited for.
        self._transport.abort()
        return None

    # Reading a request

    def _advance(self, now: Instant) -> None:
        """Read requests one after the other, as long as there are bytes, nothing is under way, and the client reads."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._phase is _HEAD and self._rest and not self._write_paused:
                if not self._head_bytes(now):
                    break
        except Refused as refused:
            self._reject(refused.failure)
        finally:
            self._advancing = False

    def _head_bytes(self, now: Instant) -> bool:
        """Read the next head; False: it is not whole yet."""
        settings = self._context.settings
        if not self._scanned and self._rest[:2] == b"\r\n":
            self._rest = self._rest[2:]  # RFC 9112 §2.2: an empty line before a request is ignored
        rest = self._rest
        end = rest.find(_HEAD_END, max(0, self._scanned - 3))
        if end < 0 or end + 4 > settings.max_head_bytes:
            self._head_incomplete(rest)
            return False
        raw = rest[: end + 4] if type(rest) is bytes else bytes(rest[: end + 4])
        self._scanned = 0
        known = self._last_head.recall(raw, settings)
        if known is None:
            self._judge(raw)
        else:
            self._head, self._target = known
        head = self._head
        rest = rest[end + 4 :]
        if head.length <= len(rest) and not head.chunked:
            length = head.length
            context = self._context
            if context.buffered_bytes + length > settings.max_buffered_bytes:
                self._reserve(length)  # refuses it
            context.buffered_bytes += length  # the exchange answers for them at once
            if length == len(rest):  # no copy of the body, which is all that is left
                self._rest = b""
                self._dispatch(rest, now)
            else:
                self._rest = rest[length:]
                self._dispatch(rest[:length], now)
        else:
            self._rest = b""
            self._begin_body(head, rest)
        return True

    def _judge(self, raw: bytes) -> None:
        """Parse a head and find its target."""
        self._head = head = parse_request_head(raw, self._context.settings)
        try:
            self._target = target = find_target(head)
        except Refused as refused:
            if b"expect" in head.noted or head.length > _MAX_DISCARDED or head.chunked:
                raise
            self._target = refused.failure
        else:
            self._last_head.remember(raw, head, target)

    def _head_incomplete(self, rest: bytes | bytearray) -> None:
        settings = self._context.settings
        if len(rest) > settings.max_head_bytes:
            message = f"A request head has at most {settings.max_head_bytes} bytes."
            raise Refused(Failure(431, "request_head_too_large", message))
        if rest.count(b"\n", self._scanned) != rest.count(b"\r\n", max(0, self._scanned - 1)):
            raise bad_request("bad_request_head", "Lines of a request head end with CRLF.")
        if not self._scanned:
            self._since = self._context.clock.now()
            self._wake_in(settings.head_timeout)
        self._scanned = len(rest)

    def _begin_body(self, head: RequestHead, rest: bytes | bytearray) -> None:
        self._reserve(head.length)
        self._phase = _BODY
        self._since = self._context.clock.now()
        self._wake_in(self._context.settings.body_grace)
        self._chunks = ChunkedBody() if head.chunked else None
        self._body = bytearray()
        if rest:
            self._body_bytes(bytes(rest))
        elif b"expect" in head.noted and head.minor:
            self._context.outbox.write(self._transport, _CONTINUE)

    def _body_bytes(self, data: bytes) -> None:
        body = self._body
        if self._chunks is None:
            missing = self._head.length - len(body)
            body += data[:missing]
            if len(data) < missing:
                return
            self._rest = data[missing:]
        else:
            end = self._chunk_bytes(self._chunks, data)
            if end == MORE:
                return
            self._rest = data[end:]
        self._body = bytearray()
        self._dispatch(body, self._context.clock.now())

    def _chunk_bytes(self, chunks: ChunkedBody, data: bytes) -> int:
        try:
            end = chunks.feed(data, self._body)
            if len(self._body) > self._context.settings.max_body_bytes:
                raise body_too_large(self._context.settings)
            self._reserve(len(self._body) - self._counted)
        except BadFraming as error:
            raise bad_request("bad_chunked_body", f"The chunked body is malformed: {error}.") from None
        return end

    def _dispatch(self, body: bytes | bytearray, now: Instant) -> None:
        context = self._context
        context.requests += 1
        request = Request(self._head, self._target, body, now, context.identities)
        self._counted = 0  # the exchange answers for them now
        self._phase = _BUSY
        self._exchange = exchange = Exchange(context, self, request)
        exchange.start()

    def _reserve(self, size: int) -> None:
        """Count bytes of a body, or refuse it when all bodies together are too many."""
        context = self._context
        if context.buffered_bytes + size > context.settings.max_buffered_bytes:
            message = "Too many request bodies are waiting in memory."
            raise Refused(Failure(503, "gateway_overloaded", message, Seconds(1.0), should_retry=True))
        context.buffered_bytes += size
        self._counted += size

    def _forget_request(self) -> None:
        """Drop what was read of a request."""
        self._context.buffered_bytes -= self._counted
        self._counted = 0
        self._body = bytearray()
        self._rest = b""

    def _append(self, data: bytes) -> None:
        if not isinstance(self._rest, bytearray):
            self._rest = bytearray(self._rest)
        self._rest += data

    # Closing

    def _reject(self, failure: Failure) -> None:
        """Answer a request that was not read to its end, and close: where the next one would begin is unknown."""
        self._forget_request()
        body = error_object(failure)
        self._context.outbox.flush()  # an answer before this one
        self._transport.write(
            b"%bContent-Type: application/json\r\nContent-Length: %d\r\n%bConnection: close\r\n\r\n%b"
            % (status_line(failure.status), len(body), error_headers(failure), body)
        )
        # The client may still be sending: a close now would reset the connection under the answer.
        self._phase = _LINGERING
        self._since = self._context.clock.now()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._wake_in(self._context.settings.linger_timeout)

    def _close(self) -> None:
        self._phase = _CLOSING
        self._since = self._context.clock.now()
        self._context.outbox.flush()
        self._transport.close()
        self._wake_in(self._context.settings.stall_timeout)

    def _wake_in(self, seconds: float) -> None:
        self._context.wheel.wake_by(self, self._since + seconds)


def _peer_gone(transport: asyncio.Transport) -> bool:
    """Whether the peer of a socket that is not read has closed or reset it, as far as the kernel knows."""
    raw = transport.get_extra_info("socket")
    if raw is None or raw.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(raw.fileno(), getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR are always told
    return bool(poll.poll(0))
