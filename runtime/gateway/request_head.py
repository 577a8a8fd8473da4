"""The head of a client's request: parsed by llhttp, then judged by rules of our own that leave nothing to guess."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser

from runtime.gateway.errors import Failure, Refused, bad_request
from runtime.gateway.settings import GatewaySettings

_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} ")
"""What may be a method: a token (RFC 9110 §9.1) and a space."""

_NOTED: Final = frozenset(
    {
        b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade", b"authorization",
        b"content-type", b"content-encoding", b"x-request-id", b"traceparent", b"x-relume-model", b"x-relume-timeout",
    }
)  # fmt: skip
"""Headers that the gateway reads. Twice the same one is refused, except Connection, which is a list."""

_NOT_FORWARDED: Final = frozenset(
    {
        b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade", b"keep-alive",
        b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"te", b"trailer", b"http2-settings",
        b"x-request-id", b"traceparent",
    }
)  # fmt: skip
"""Hop-by-hop (RFC 9110 §7.6.1), or written anew for the engine."""

_SAFE_TARGET: Final = re.compile(rb"/(?:[!$&'()*+,\-./0-9:;=@A-Z_a-z~?|\[\]{}^`\"\\<>]|%[0-9A-Fa-f]{2})*")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://[^/?#@\s]+(?=[/?]|$)")
_DOT_SEGMENT: Final = re.compile(rb"(?i)/(?:\.|%2e){1,2}(?:/|$|%2f|\\|%5c)|%00|\\|%5c")
"""What a path may mean differently to us and to an engine that tidies paths: dot segments, backslashes, NUL."""


class RequestHead:
    """Method, target and headers of one request; also the callback object of its parser."""

    __slots__ = (
        "chunked", "dropped", "keep_alive", "length", "method", "minor", "noted", "parts", "path", "sent", "sent_for",
        "target",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        """As it is sent on: origin form, bytes untouched."""
        self.path = b""
        """The target without its query."""
        self.minor = 1
        self.noted: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        """Header lines to send on, four parts each: joined once, which is cheaper than a line each."""
        self.dropped: frozenset[bytes] = frozenset()
        """Names that the Connection header lists: not sent on either."""
        self.length = 0
        self.chunked = False
        self.keep_alive = True
        self.sent = b""
        self.sent_for: tuple[str, int, str, bool] | None = None
        """The start of the head that an engine gets, and for which host, port, model and plainness it was made."""

    def on_url(self, url: bytes) -> None:
        self.target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower, noted, forwarded = _judge(name)
        if noted:
            before = self.noted.get(lower)
            if before is None:
                self.noted[lower] = value
            elif lower == b"connection":
                self.noted[lower] = before + b"," + value
            else:
                raise bad_request("duplicate_header", f"The header {lower.decode('ascii')} occurs twice.")
        if forwarded:
            self.parts += (name, b": ", value, b"\r\n")

    def forwarded(self) -> bytes:
        """The end-to-end header lines, for the engine."""
        if not self.dropped:
            return b"".join(self.parts)
        parts = self.parts
        kept = (parts[at : at + 4] for at in range(0, len(parts), 4) if parts[at].lower() not in self.dropped)
        return b"".join(part for line in kept for part in line)


def parse_request_head(raw: bytes, settings: GatewaySettings) -> RequestHead:
    """Read `raw`, which ends with the empty line. Raises Refused; the connection cannot go on after that."""
    line_end = raw.index(b"\r\n")
    if raw.count(b"\r\n") - 2 > settings.max_headers:
        raise Refused(Failure(431, "too_many_headers", f"A request has at most {settings.max_headers} headers."))
    head = RequestHead()
    parser = HttpRequestParser(head)
    try:
        parser.feed_data(raw)
    except HttpParserUpgrade:
        pass  # CONNECT is refused by its method; an Upgrade is not taken up (see `_upgrade`)
    except HttpParserInvalidMethodError:
        if _METHOD.match(raw) is None:  # not HTTP at all: TLS to a plain port, say
            raise bad_request("bad_request_head", "This is not a request of HTTP/1.1.") from None
        raise Refused(Failure(501, "method_not_implemented", "This request method is not known here.")) from None
    except HttpParserError as error:
        if isinstance(error.__context__, Refused):
            raise error.__context__ from None
        raise bad_request("bad_request_head", f"The request head is not HTTP/1.1: {error}.") from None
    head.method = parser.get_method()
    _version(head, raw[line_end - 9 : line_end])
    _framing(head, settings)
    _connection(head)
    _target(head)
    return head


def _version(head: RequestHead, version: bytes) -> None:
    if version == b" HTTP/1.1":
        if b"host" not in head.noted:
            raise bad_request("missing_host", "HTTP/1.1 requests need a Host header.")
    elif version == b" HTTP/1.0":
        head.minor = 0
    else:
        raise Refused(Failure(505, "http_version_not_supported", "This port speaks HTTP/1.1 and HTTP/1.0."))


def _framing(head: RequestHead, settings: GatewaySettings) -> None:
    coding = head.noted.get(b"transfer-encoding")
    length = head.noted.get(b"content-length")
    if coding is not None:
        if length is not None:
            raise bad_request("conflicting_lengths", "Content-Length and Transfer-Encoding exclude each other.")
        if coding.lower() != b"chunked" or head.minor == 0:
            raise bad_request("bad_transfer_encoding", "The only transfer encoding is chunked, and only in HTTP/1.1.")
        head.chunked = True
    elif length is not None:
        if not length.isdigit() or len(length) > 18:
            raise bad_request("bad_content_length", "Content-Length is one decimal number.")
        head.length = int(length)
        if head.length > settings.max_body_bytes:
            raise body_too_large(settings)


def body_too_large(settings: GatewaySettings) -> Refused:
    """413."""
    message = f"A request body has at most {settings.max_body_bytes} bytes here."
    return Refused(Failure(413, "request_too_large", message))


def _connection(head: RequestHead) -> None:
    value = head.noted.get(b"connection")
    if value is None:
        head.keep_alive = head.minor == 1
    else:
        options = frozenset(option.strip().lower() for option in value.split(b","))
        head.keep_alive = b"close" not in options and (head.minor == 1 or b"keep-alive" in options)
        head.dropped = options - {b"close", b"keep-alive"}
    # RFC 9110 §7.8 lets a server ignore Upgrade and go on as HTTP/1.1: `Upgrade: h2c` is sent unasked by Java's client.
    # A WebSocket client could not go on, so it is told.
    if head.noted.get(b"upgrade", b"").lower().startswith(b"websocket"):
        raise Refused(Failure(501, "upgrade_not_supported", "WebSockets are not supported; use HTTP/1.1."))
    expect = head.noted.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise Refused(Failure(417, "expectation_failed", "The only expectation is 100-continue."))


def _target(head: RequestHead) -> None:
    if head.method == b"CONNECT":
        raise _no_proxy()
    head.target, head.path = judge_target(head.target)


@lru_cache(maxsize=1024)
def judge_target(target: bytes) -> tuple[bytes, bytes]:
    """(the target in origin form, its path). Raises Refused with a 400 or 405."""
    if target[:1] != b"/":
        if target == b"*":
            raise _no_proxy()
        authority = _ABSOLUTE.match(target)
        if authority is None:
            raise bad_request("bad_target", "The request target is neither a path nor an http URL.")
        target = target[authority.end() :]
        if target[:1] != b"/":
            target = b"/" + target
    path = target.partition(b"?")[0]
    if _SAFE_TARGET.fullmatch(target) is None or _DOT_SEGMENT.search(path):
        raise bad_request("bad_target", "The request path has bytes, escapes or dot segments that are not allowed.")
    return target, path


def _no_proxy() -> Refused:
    return Refused(Failure(405, "method_not_allowed", "This is not a general proxy.", allow=b"GET, HEAD, POST"))


@lru_cache(maxsize=1024)
def _judge(name: bytes) -> tuple[bytes, bool, bool]:
    """(name in lower case, whether we read it, whether it is sent on)."""
    lower = name.lower()
    return lower, lower in _NOTED, lower not in _NOT_FORWARDED and not lower.startswith(b"x-relume-")
