"""Reading over HTTP: ranges guarded by the version, and every way in which a server can go wrong told apart.

`http.client`, read straight into the chunk's buffer: half the CPU a GiB of aiohttp (field note on cold starts, §5).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import http
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Protocol
from urllib.parse import SplitResult, urljoin, urlsplit

from coldstart.core.cache.content import Described, Span
from coldstart.core.cache.errors import (
    Interrupted,
    RangesIgnored,
    SourceBroken,
    SourceRefused,
    Throttled,
    VersionMoved,
)
from coldstart.core.cache.pace import Pulse
from coldstart.core.cache.policy import FetchPolicy
from events.clock import Clock
from events.units import Bytes, Seconds

REDIRECTS_MOST = 5
_PIECE = 1 << 20
"""The most that is read before the pulse is felt."""

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({400, 401, 403, 404, 410})
"""What a signed address answers when its time is over."""
_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+)$")
_SENT = re.compile(r"[!-~]+")


class Web(Protocol):
    """What a channel needs to know of its source."""

    policy: FetchPolicy
    clock: Clock
    onward: dict[str, str]
    """Where addresses redirected to, so that not every range asks twice."""
    tls: ssl.SSLContext | None
    """For https; None: the authorities that the system knows."""

    @property
    def headers(self) -> Mapping[str, str]:
        """For the source's own host only."""

    def url(self, of: Described) -> str:
        """Where a file is."""

    def guard(self, of: Described) -> dict[str, str]:
        """Headers that demand this version, where it can be demanded."""

    def same(self, of: Described, version: str) -> bool:
        """Whether an answer's version is that of this file."""

    def shown(self) -> str:
        """Without secrets."""


class HttpChannel:
    """A connection that is made when needed, kept while answers end well, and made anew after a failure.

    `own`: the host (`host_of`) to which the source's headers are sent, and no other.
    """

    def __init__(self, source: Web, own: str) -> None:
        self._source = source
        self._connection: http.client.HTTPConnection | None = None
        self._host = ""
        self._own = own
        self._closed = threading.Event()

    def close(self) -> None:
        """Also from another thread: a read that waits ends at once."""
        self._closed.set()
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        opened = connection.sock
        if opened is not None:
            with contextlib.suppress(OSError):  # the other side was first
                opened.shutdown(socket.SHUT_RDWR)
        connection.close()

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """See the port."""
        wanted = {"Range": f"bytes={span.start}-{span.end - 1}", **self._source.guard(of)}
        with self.asked(self._source.url(of), wanted) as response:
            if response.status == 200:
                raise RangesIgnored
            if response.status != 206:
                raise VersionMoved
            found = _RANGE.match(response.headers.get("Content-Range", ""))
            if found is None or (int(found[1]), int(found[2])) != (span.start, span.end - 1):
                raise Interrupted(
                    f"asked for bytes {span.start} to {span.end - 1}, got {found[0] if found else 'others'}"
                )
            self._check(response, of, int(found[3]))
            self._fill(response, into)

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        """See the port."""
        with self.asked(self._source.url(of), self._source.guard(of)) as response:
            if response.status != 200:
                raise VersionMoved
            self._check(response, of, of.bytes if response.length is None else response.length)
            left = int(of.bytes)
            while left:
                part = min(left, len(into))
                self._fill(response, into[:part])
                take(part)
                left -= part

    def _check(self, response: http.client.HTTPResponse, of: Described, size: int) -> None:
        if size != of.bytes or not self._source.same(of, version_of(response, size)):
            raise VersionMoved

    def _fill(self, response: http.client.HTTPResponse, into: memoryview) -> None:
        """Straight from the socket; a short body, a reset and a stall are Interrupted."""
        pulse = Pulse(self._source.policy, self._source.clock.now())
        done = 0
        try:
            while done < len(into):
                more = _some(response, into[done : done + _PIECE])
                if not more:
                    raise Interrupted(f"the answer ended {len(into) - done} bytes early")
                done += more
                if pulse.stalled(more, self._source.clock.now()):
                    raise Interrupted(f"fewer than {self._source.policy.floor} bytes in {self._source.policy.stall} s")
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # ValueError, AttributeError: closed by another thread in the middle of a read.
            raise Interrupted(why(error)) from error

    def asked(self, address: str, headers: Mapping[str, str]) -> _Answer:
        """The answer after redirects, with a status of 200, 206, 412 or 416; others are raised.

        Where an address redirected to is asked first the next time, until it says no: signed addresses have an end.
        """
        url = self._source.onward.get(address, address)
        for _ in range(REDIRECTS_MOST + 1):
            response = self._once(url, headers)
            try:
                further = self._further(address, url, response)
            except Exception:
                response.close()
                raise
            if further is None:
                return _Answer(self, response)
            response.close()
            url = further
        raise SourceBroken(self._source.shown(), f"it redirects more than {REDIRECTS_MOST} times")

    def _further(self, address: str, url: str, response: http.client.HTTPResponse) -> str | None:
        """Where to ask next; None: this is the answer."""
        if response.status in _REDIRECTS:
            return self._onward(url, response)
        if response.status in _GONE and self._source.onward.pop(address, None) is not None:
            self._drop()
            return address
        self._judge(response)
        if url != address:
            self._source.onward[address] = url
        return None

    def _onward(self, url: str, response: http.client.HTTPResponse) -> str:
        location = response.headers.get("Location", "")
        self._drop()
        try:
            onward = urljoin(url, location)
            leads = bool(location) and urlsplit(onward).scheme in ("http", "https") and is_sendable(onward)
        except ValueError:  # it cannot be read
            onward, leads = "", False
        if not leads:
            raise SourceBroken(self._source.shown(), "it redirects to nowhere")
        if urlsplit(url).scheme == "https" and urlsplit(onward).scheme == "http":
            raise SourceBroken(self._source.shown(), "it redirects from https to http")
        return onward

    def _once(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        own = host_of(parts) == self._own
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {
            "Accept-Encoding": "identity",
            "User-Agent": "relume",
            **headers,
            **(self._source.headers if own else {}),
        }
        try:
            connection = self._connected(parts)
            connection.request("GET", path, headers=sent)
            return connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            self._drop()
            raise Interrupted(why(error)) from error

    def _connected(self, parts: SplitResult) -> http.client.HTTPConnection:
        host = host_of(parts)
        if self._closed.is_set():
            raise Interrupted("closed")
        if self._connection is not None and self._host == host:
            return self._connection
        self._drop()
        policy, name = self._source.policy, parts.hostname or ""
        made: http.client.HTTPConnection = (
            http.client.HTTPSConnection(name, parts.port, timeout=policy.connect, context=self._source.tls or _tls())
            if parts.scheme == "https"
            else http.client.HTTPConnection(name, parts.port, timeout=policy.connect)
        )
        made.connect()
        made.sock.settimeout(policy.stall)
        self._connection, self._host = made, host
        if self._closed.is_set():  # meanwhile, by another thread
            self._drop()
            raise Interrupted("closed")
        return made

    def _judge(self, response: http.client.HTTPResponse) -> None:
        status, reason = response.status, phrase(response.status)
        if status in (200, 206, 412, 416):
            if response.headers.get("Content-Encoding", "identity") != "identity":
                self._drop()
                raise SourceBroken(self._source.shown(), "it compresses, though asked not to")
            return
        wait = retry_after(response.headers.get("Retry-After"), self._source.clock.now())
        self._drop()
        if status in (429, 503):
            raise Throttled(reason, wait)
        if status in _BUSY:
            raise Interrupted(reason)
        raise SourceRefused(self._source.shown(), reason)


def _some(response: http.client.HTTPResponse, into: memoryview) -> int:
    """What one read of the socket gives. `HTTPResponse.readinto` waits until `into` is full, which hides a trickle, and
    its `readinto1` copies."""
    if response.chunked or response.length is None:
        return response.readinto1(into)
    more = response.fp.readinto1(into[: response.length])
    response.length -= more
    return more


class _Answer:
    """An answer whose connection is kept if it was read to its end, and dropped if not."""

    def __init__(self, channel: HttpChannel, response: http.client.HTTPResponse) -> None:
        self._channel = channel
        self._response = response

    def __enter__(self) -> http.client.HTTPResponse:
        return self._response

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None or self._response.length or self._response.will_close:
            self._channel._drop()  # noqa: SLF001 - its own channel
        self._response.close()


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all connections: making it reads all authorities."""
    return ssl.create_default_context()


def why(error: Exception) -> str:
    """What went wrong, in the system's words. What others say may be what they were sent: a library quotes the header
    or the address that it cannot send, a server can answer with the token that it got."""
    told = error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def phrase(status: int) -> str:
    """A status in the words of its standard, not in the server's."""
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def is_sendable(url: str) -> bool:
    """Whether a request can name it: no spaces or control characters, ASCII, a host, a port that is one."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and _SENT.fullmatch(url) is not None
    except ValueError:
        return False


def host_of(parts: SplitResult) -> str:
    """Scheme, host and port: whom one speaks with."""
    return f"{parts.scheme}://{parts.hostname}:{parts.port}"


def size_of(response: http.client.HTTPResponse) -> Bytes | None:
    """The length of the whole; None: the answer does not tell."""
    told = response.headers.get("Content-Range", "").rpartition("/")[2]
    if response.status in (206, 416):
        return Bytes(int(told)) if told.isdigit() else None
    length = response.headers.get("Content-Length", "")
    return Bytes(int(length)) if length.isdigit() else None


def version_of(response: http.client.HTTPResponse, size: int) -> str:
    """A strong ETag; else what there is of ETag and time, and the length."""
    etag = response.headers.get("ETag", "")
    if etag and not etag.startswith("W/"):
        return etag
    return f"{etag}|{response.headers.get('Last-Modified', '')}|{size}"


def vouched(response: http.client.HTTPResponse) -> str | None:
    """``Repr-Digest: sha-256=:BASE64:`` (RFC 9530): the digest of the whole, whatever the range."""
    found = re.search(r"sha-256=:([A-Za-z0-9+/=]+):", response.headers.get("Repr-Digest", ""))
    try:
        raw = base64.b64decode(found[1], validate=True) if found else b""
    except binascii.Error:
        return None
    return f"sha256:{raw.hex()}" if len(raw) == 32 else None


def retry_after(text: str | None, now: float) -> Seconds | None:
    """Seconds or a date (RFC 9110, 10.2.3); None where it is neither."""
    if text is None:
        return None
    if text.strip().isdigit():
        return Seconds(float(text))
    try:
        return Seconds(max(0.0, parsedate_to_datetime(text).timestamp() - now))
    except ValueError:
        return None
