"""Weights from an HTTP server: one file, or the files that the one that is named belongs to."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from coldstart.adapters.companions import companions
from coldstart.adapters.http_channel import HttpChannel, host_of, is_sendable, size_of, version_of, vouched
from coldstart.core.cache.content import Described, Listing, alone
from coldstart.core.cache.content import version_of as version_of_set
from coldstart.core.cache.errors import SourceBroken, UnsupportedSource
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import INDEX_BYTES_MOST
from coldstart.ports import Channel
from events.clock import Clock


class HttpSource:
    """One URL, and what lies beside it: the other parts of a split GGUF file, the shards of a safetensors index.

    `headers` go to its own host only, never to where it redirects.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], policy: FetchPolicy, clock: Clock,
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        if urlsplit(url).scheme not in ("http", "https") or not is_sendable(url):
            raise UnsupportedSource(
                "http(s):// needs a host, a port that is one, and all else than ASCII written as %XX"
            )
        self.address = url
        self.headers: Mapping[str, str] = dict(headers)
        self.policy = policy
        self.clock = clock
        self.onward: dict[str, str] = {}
        self.tls = tls
        self._name = _name(url)

    def shown(self) -> str:
        """The address without user, password and query, where signatures are."""
        return shown(self.address)

    def fixed(self) -> str | None:
        """Not known: what is at a URL may change."""
        return None

    def connect(self) -> Channel:
        """For one thread at a time."""
        return self._channel()

    def _channel(self) -> HttpChannel:
        return HttpChannel(self, host_of(urlsplit(self.address)))

    def url(self, of: Described) -> str:
        """Where a file is: beside the one that was named."""
        return self._beside(of.name)

    def _beside(self, name: str) -> str:
        if name == self._name:
            return self.address
        parts = urlsplit(self.address)
        return urlunsplit(parts._replace(path=parts.path.rpartition("/")[0] + "/" + quote(name)))

    def guard(self, of: Described) -> dict[str, str]:
        """Strong ETags can be demanded; what else is known is compared with the answer."""
        return {"If-Match": of.version} if of.version.startswith('"') else {}

    def same(self, of: Described, version: str) -> bool:
        """The version is what an answer says."""
        return of.version == version

    def describe(self) -> Listing:
        """Asks for the first byte, since signed addresses often allow GET and no HEAD."""
        channel = self._channel()
        try:
            first = self._described(channel, self._name)
            names = companions(first, lambda: self._read(channel, first), self.shown())
            if names == (first.name,):
                return alone(first)
            files = tuple(first if name == first.name else self._described(channel, name) for name in names)
        finally:
            channel.close()
        main = first.name if first.name.endswith(".gguf") else ""
        return Listing(files, main, version_of_set(files))

    def _described(self, channel: HttpChannel, name: str) -> Described:
        with channel.asked(self._beside(name), {"Range": "bytes=0-0"}) as response:
            size, ranges = size_of(response), response.status == 206
            if size is None:
                raise SourceBroken(self.shown(), "it does not tell the length (no Content-Length, no Content-Range)")
            return Described(name, size, version_of(response, size), ranges, vouched(response))

    def _read(self, channel: HttpChannel, of: Described) -> bytes:
        """A small file whole."""
        if of.bytes > INDEX_BYTES_MOST:
            raise SourceBroken(self.shown(), f"an index of {of.bytes} bytes is none")
        buffer, parts = memoryview(bytearray(max(1, of.bytes))), list[bytes]()
        channel.stream(of, buffer, lambda length: parts.append(bytes(buffer[:length])))
        return b"".join(parts)


def shown(url: str) -> str:
    """An address without secrets."""
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _name(url: str) -> str:
    """The last part of the path; ``content`` where that is no file name."""
    name = unquote(urlsplit(url).path.rstrip("/").rsplit("/", 1)[-1])
    fits = name not in ("", ".", "..") and "/" not in name and "\0" not in name and len(name.encode()) < 256
    return name if fits else "content"
