"""The answer to one request as the client sees it: its head, its framing, its end, or its visible break.

Bytes go through as they came wherever the client's framing can be the engine's; otherwise they are put into chunks (an
engine that marks the end by closing) or taken out of them (an HTTP/1.0 client). An answer that cannot be completed
never ends cleanly: no last chunk, fewer bytes than promised, or a reset.
"""

from __future__ import annotations

from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from runtime.gateway import sse
from runtime.gateway.chunks import ChunkedBody, CloseBody, Framing, LengthBody
from runtime.gateway.errors import Failure, error_headers, error_object
from runtime.gateway.response_head import ResponseHead

if TYPE_CHECKING:
    from runtime.gateway.client_connection import ClientConnection

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus
}
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_KEEP_ALIVE: Final = b"Connection: keep-alive\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_JOINED_BELOW: Final = 16_384
"""Head and first bytes are written as one below this size: one system call is cheaper than the copy."""
_TAIL: Final = 1024
"""Last bytes of an answer that are kept for its usage object, and up to as many more."""
_PIECE: Final = _TAIL // 2
"""They are kept as three pieces, and the last one is added to until it has so many: copying all of them for every chunk
would cost more."""
_MAX_COLLECTED: Final = 64 * 1024
_MOST_COUNTS: Final = 16
"""Names of a usage object that are looked at."""


class _Mode(Enum):
    RAW = auto()
    """As it came."""
    ENCODE = auto()
    """Into chunks."""
    DECODE = auto()
    """Out of chunks."""
    COLLECT = auto()
    """Kept back: an error answer, to become an event of a stream already begun."""


_RAW: Final = _Mode.RAW


class Answer:
    """One answer. `committed`: its head is sent. `keep_alive`: the connection can carry another request."""

    __slots__ = (
        "_body", "_client", "_collected", "_event_stream", "_head_only", "_last", "_minor", "_mode", "_older",
        "_oldest", "_strip", "bytes_out", "committed", "keep_alive", "status",
    )  # fmt: skip

    def __init__(self, client: ClientConnection, minor: int, head_only: bool, keep_alive: bool) -> None:
        self.status = 0
        self.bytes_out = 0
        self.committed = False
        self.keep_alive = keep_alive
        self._client = client
        self._minor = minor
        self._head_only = head_only
        self._mode = _Mode.RAW
        self._body: Framing | None = None
        self._strip: ChunkedBody | None = None
        self._event_stream = False
        self._oldest = b""
        self._older = b""
        self._last = b""
        """The last bytes of the answer, in three pieces."""
        self._collected = b""

    # An engine's answer

    def begin(self, head: ResponseHead, own: bytes, payload: bytes) -> None:
        """Send the head with the gateway's `own` header lines, and the first bytes of the body."""
        self.status = head.status
        self._body = body = head.body
        if self.committed:
            self._begin_in_stream(head, payload)
            return
        self.committed = True
        self._event_stream = head.is_event_stream
        start = head.start
        if not start:
            start = head.start = b"".join((status_line(head.status), *head.lines))
        size = len(payload)
        if type(body) is LengthBody and size < _JOINED_BELOW and self.keep_alive and self._minor:
            # Nearly every answer that is not a stream: what the lines below do, as one piece of formatting.
            self.bytes_out += size
            self._last = payload[-_TAIL:]
            self._client.write(b"%b%bContent-Length: %b\r\n\r\n%b" % (start, own, head.digits, payload))
            return
        framing = self._frame(body)
        if framing == b"" and head.length is not None and head.status != 204:
            framing = b"Content-Length: %d\r\n" % head.length
        out = b"".join((start, own, framing, self._connection_line(), b"\r\n"))
        if payload and self._mode is _Mode.RAW and size < _JOINED_BELOW:
            self.bytes_out += size
            self._remember(payload)
            self._client.write(out + payload)
        else:
            self._client.write(out)
            if payload:
                self.write(payload)

    def write(self, data: bytes) -> None:
        """Send more of the body, as the engine framed it."""
        mode = self._mode
        if mode is not _RAW:
            if self._strip is not None:
                payload = bytearray()
                self._strip.feed(data, payload)
                data = bytes(payload)
            if mode is _Mode.COLLECT:
                self._collected += data[: _MAX_COLLECTED - len(self._collected)]
                return
            if not data:
                return  # an empty chunk would end the answer
            if mode is _Mode.ENCODE:
                data = _chunk(data)
        self.bytes_out += len(data)
        last = self._last  # `_remember`, written out: this is done for every chunk
        if len(last) >= _PIECE:
            self._oldest = self._older
            self._older = last
            last = b""
        self._last = last + data if len(data) <= _TAIL else data[-_TAIL:]
        self._client.write(data)

    def finish(self) -> bool:
        """The engine's answer is whole. False: it had to be broken off, since it does not fit what was begun."""
        if self._mode is _Mode.COLLECT:
            self._break(sse.relayed_error_event(self.status, self._collected))
            return False
        if self._mode is _Mode.ENCODE:
            self._client.write(_LAST_CHUNK)
        return True

    def tokens(self) -> tuple[int, int]:
        """(tokens in, tokens out) as a usage object in the last bytes tells, else zeros."""
        # (Taken apart by the methods of bytes that take few arguments: a third of the price of regular expressions.)
        tail = self._oldest + self._older + self._last if self._older else self._last
        _, found, usage = tail.rpartition(b'"usage"')
        taken = made = -1
        if found:
            before = b""
            for part in usage.split(b'_tokens"', _MOST_COUNTS):
                if taken < 0 and (before[-7:] == b'"prompt' or before[-6:] == b'"input'):
                    taken = _number(part)
                elif made < 0 and (before[-11:] == b'"completion' or before[-7:] == b'"output'):
                    made = _number(part)
                before = part
        return max(taken, 0), max(made, 0)

    # The gateway's own

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """An answer made here."""
        self.status = status
        self.committed = True
        self.bytes_out = 0 if self._head_only else len(body)
        out = b"%bContent-Type: application/json\r\nContent-Length: %d\r\n%b%b\r\n" % (
            status_line(status), len(body), headers, self._connection_line(),
        )  # fmt: skip
        self._client.write(out if self._head_only else out + body)

    def fail(self, failure: Failure, own: bytes) -> bool:
        """Answer with an error; False: the answer had begun, so it is broken off instead, visibly."""
        if not self.committed:
            self.whole(failure.status, own + error_headers(failure), error_object(failure))
            return True
        if not self.status:
            self.status = failure.status
        self._break(sse.error_event(failure))
        return False

    def commit_stream(self, own: bytes) -> None:
        """Begin a stream of events before any engine answers."""
        self.committed = True
        self._event_stream = True
        self._body = CloseBody()
        framing = self._frame(self._body)
        head = b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
        self._client.write(b"".join((status_line(200), head, own, framing, self._connection_line(), b"\r\n")))

    # Inside

    def _frame(self, body: Framing) -> bytes:
        """Choose how the body is sent; the Transfer-Encoding line, or empty."""
        if isinstance(body, ChunkedBody):
            if self._minor:
                return _CHUNKED
            self._mode = _Mode.DECODE
            self._strip = ChunkedBody()
            self.keep_alive = False
        elif isinstance(body, CloseBody):
            if self._minor:
                self._mode = _Mode.ENCODE
                return _CHUNKED
            self.keep_alive = False
        return b""

    def _begin_in_stream(self, head: ResponseHead, payload: bytes) -> None:
        """The client has been sent 200 and comments: an event stream goes on in it, anything else becomes an error."""
        body = head.body
        plain = b"content-encoding" not in head.noted
        if head.status == 200 and plain and sse.is_event_stream(head.noted.get(b"content-type")):
            if isinstance(body, ChunkedBody):
                self._frame(body)
                self._mode = _Mode.RAW if self._minor else _Mode.DECODE
        else:
            self._mode = _Mode.COLLECT
            self._strip = ChunkedBody() if isinstance(body, ChunkedBody) else None
        self.write(payload)

    def _break(self, event: bytes) -> None:
        """End visibly: with an error event where the answer is an event stream, and never with a proper end."""
        if self._event_stream:
            if self._last and not self._last.endswith(b"\n"):
                event = b"\n\n" + event
            framed = self._fit(event)
            if framed:
                self._client.write(framed)
            self._client.break_off(False)
        else:
            unframed = not self._minor and (self._strip is not None or isinstance(self._body, CloseBody))
            self._client.break_off(unframed)

    def _fit(self, event: bytes) -> bytes:
        """The event in the client's framing, wherever the engine's bytes stopped; empty: there is no room for it."""
        if self._mode in {_Mode.ENCODE, _Mode.COLLECT}:
            return _chunk(event) if self._minor else event
        if self._mode is _Mode.DECODE or isinstance(self._body, CloseBody):
            return event
        if isinstance(self._body, LengthBody):
            return event if len(event) < self._body.left else b""
        return _into_chunks(event, self._body) if isinstance(self._body, ChunkedBody) else b""

    def _connection_line(self) -> bytes:
        if not self.keep_alive:
            return _CLOSE
        return b"" if self._minor else _KEEP_ALIVE

    def _remember(self, data: bytes) -> None:
        last = self._last
        if len(last) >= _PIECE:
            self._oldest = self._older
            self._older = last
            last = b""
        self._last = last + data if len(data) <= _TAIL else data[-_TAIL:]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _into_chunks(event: bytes, body: ChunkedBody) -> bytes:
    """`event` as payload behind the chunked bytes that `body` has read, even in the middle of a chunk."""
    if body.between_chunks:
        return _chunk(event)
    left = body.left
    if not left:
        return b""  # cut within a chunk's own framing: nothing can follow
    return event if len(event) <= left else event[:left] + b"\r\n" + _chunk(event[left:])


def _number(data: bytes) -> int:
    """The decimal number behind a colon, or 0; of more than twelve digits the first twelve."""
    number = digits = at = 0
    size = len(data)
    while at < size and digits < 12:
        letter = data[at]
        if 48 <= letter <= 57:
            number = number * 10 + letter - 48
            digits += 1
        elif digits or letter not in (58, 32, 9, 10, 13):  # a colon, and JSON's white space
            break
        at += 1
    return number


def status_line(status: int) -> bytes:
    """The status line; the reason phrase of an unknown status is empty."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
