"""The head of an engine's answer: parsed by llhttp, judged as strictly as a client's, hop-by-hop headers dropped."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from runtime.gateway import sse
from runtime.gateway.chunks import BadFraming, ChunkedBody, CloseBody, Framing, LengthBody, NoBody

_NOTED: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"connection", b"content-type", b"content-encoding"}
)
_NOT_FORWARDED: Final = frozenset(
    {
        b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"proxy-connection", b"upgrade",
        b"proxy-authenticate", b"te", b"trailer",
    }
)  # fmt: skip
_NO_BODY: Final = NoBody()
_LENGTH: Final = re.compile(rb"\r\n(?:Content-Length|content-length): ([0-9]{1,18})\r\n")
_MOST_KNOWN: Final = 256
"""Heads kept by `KnownHeads`: those with a Date change every second, so it begins anew when it is full."""


class ResponseHead:
    """Status and headers of one answer; also the callback object of its parser."""

    __slots__ = ("body", "digits", "is_event_stream", "keep_alive", "length", "lines", "noted", "start", "status")

    def __init__(self) -> None:
        self.status = 0
        self.noted: dict[bytes, bytes] = {}
        self.lines: list[bytes] = []
        self.start = b""
        """Status line and `lines`, joined by whoever relays them first."""
        self.length: int | None = None
        """What Content-Length says; an answer to HEAD says it and has no body."""
        self.digits = b"0"
        """The same as it is written."""
        self.is_event_stream = False
        self.body: Framing = _NO_BODY
        self.keep_alive = True

    def on_header(self, name: bytes, value: bytes) -> None:
        lower, noted, forwarded = _judge(name)
        if noted:
            before = self.noted.get(lower)
            if before is None:
                self.noted[lower] = value
            elif lower == b"connection":
                self.noted[lower] = before + b"," + value
            else:
                raise BadFraming(f"the header {lower.decode('ascii')} occurs twice")
        if forwarded:
            self.lines.append(b"%b: %b\r\n" % (name, value))


class KnownHeads:
    """Heads that were read before: an engine sends the same again and again, but for its Content-Length.

    A head that differs from an accepted one in the digits of that length alone is accepted too and means the same but
    for that number; so it is not parsed and judged again (12 µs less). The head is the same object each time: it is
    good until the next one is read, so nobody may keep it.
    """

    __slots__ = ("_after", "_before", "_known", "_last")

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], ResponseHead] = {}
        """By what stands before and behind the digits."""
        self._last: ResponseHead | None = None
        self._before = b""
        self._after = b""
        """The one read last: nearly always the next one too, and looked at without a search."""

    def read(self, raw: bytes, max_headers: int, to_head: bool) -> ResponseHead:
        """As `parse_response_head`."""
        last = self._last
        if last is not None and not to_head:
            before, after = self._before, self._after
            begin, end = len(before), len(raw) - len(after)
            if raw[:begin] == before and raw[end:] == after:
                digits = raw[begin:end]
                if digits.isdigit() and len(digits) <= 18:
                    return _with_length(last, digits)
        return self._find(raw, max_headers, to_head)

    def _find(self, raw: bytes, max_headers: int, to_head: bool) -> ResponseHead:
        length = _LENGTH.search(raw)
        if length is None or to_head:
            return parse_response_head(raw, max_headers, to_head)
        begin, end = length.span(1)
        key = (raw[:begin], raw[end:])
        head = self._known.get(key)
        if head is None:
            head = parse_response_head(raw, max_headers, to_head)
            if not isinstance(head.body, LengthBody):
                return head
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = head
        self._last, (self._before, self._after) = head, key
        return _with_length(head, length[1])


def _with_length(head: ResponseHead, digits: bytes) -> ResponseHead:
    head.digits = digits
    head.length = size = int(digits)
    head.body = LengthBody(size) if size else _NO_BODY
    return head


def parse_response_head(raw: bytes, max_headers: int, to_head: bool) -> ResponseHead:
    """Read `raw`, which ends with the empty line. `to_head`: the request was HEAD. Raises BadFraming."""
    if raw.count(b"\r\n") - 2 > max_headers:
        raise BadFraming("the head has too many headers")
    head = ResponseHead()
    parser = HttpResponseParser(head)
    try:
        parser.feed_data(raw)
    except HttpParserUpgrade:
        raise BadFraming("the engine changed protocols") from None
    except HttpParserError as error:
        if isinstance(error.__context__, BadFraming):
            raise error.__context__ from None
        raise BadFraming(str(error)) from None
    head.status = parser.get_status_code()
    version = raw[:9]
    if version not in {b"HTTP/1.1 ", b"HTTP/1.0 "} or not 100 <= head.status <= 999 or head.status == 101:
        raise BadFraming(f"{version.decode('latin-1')} with status {head.status}")
    _connection(head, version)
    _framing(head, version, to_head)
    head.is_event_stream = sse.is_event_stream(head.noted.get(b"content-type"))
    return head


@lru_cache(maxsize=1024)
def _judge(name: bytes) -> tuple[bytes, bool, bool]:
    """(name in lower case, whether we read it, whether it is sent on)."""
    lower = name.lower()
    return lower, lower in _NOTED, lower not in _NOT_FORWARDED and not lower.startswith(b"x-relume-")


def _connection(head: ResponseHead, version: bytes) -> None:
    value = head.noted.get(b"connection")
    if value is None:
        head.keep_alive = version == b"HTTP/1.1 "
        return
    options = frozenset(option.strip().lower() for option in value.split(b","))
    head.keep_alive = b"close" not in options and (version == b"HTTP/1.1 " or b"keep-alive" in options)
    dropped = options - {b"close", b"keep-alive"}
    if dropped:
        head.lines = [line for line in head.lines if line[: line.index(b":")].lower() not in dropped]


def _framing(head: ResponseHead, version: bytes, to_head: bool) -> None:
    """Where the body ends: RFC 9112 §6.3, without its guesses."""
    coding = head.noted.get(b"transfer-encoding")
    length = head.noted.get(b"content-length")
    if length is not None:
        if not length.isdigit() or len(length) > 18:
            raise BadFraming("bad Content-Length")
        head.length = int(length)
        head.digits = length
    if coding is not None and (length is not None or version == b"HTTP/1.0 " or coding.lower() != b"chunked"):
        raise BadFraming("conflicting or unknown lengths")
    if to_head or head.status in {204, 304} or head.status < 200:
        return
    if coding is not None:
        head.body = ChunkedBody()
    elif head.length is not None:
        head.body = LengthBody(head.length) if head.length else _NO_BODY
    else:
        head.body = CloseBody()
        head.keep_alive = False
