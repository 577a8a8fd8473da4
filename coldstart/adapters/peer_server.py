"""The serving side of peers: ``GET /blobs/sha256/HEX`` on an agent's port, with ranges, to who has the token.

Only blobs are served: whole, verified when they were written, read-only since. Bytes go from the page cache to the
socket (sendfile). The one who asks verifies them again, so a peer is trusted with no more than its time.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from coldstart.cache.layout import Layout
from coldstart.core.cache.content import check_digest

STREAMS_MOST = 64
"""Ranges that are served at once; who comes then is asked to come back. A choice: four fetches of 16 connections."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PeerServer:
    """Routes for an agent's application: `add_to(app)`."""

    def __init__(self, layout: Layout, token: str, streams_most: int = STREAMS_MOST) -> None:
        if not token:
            raise ValueError("a peer server needs a token: what it serves is not for all")
        self._layout = layout
        self._token = token.encode()
        self._most = streams_most
        self.streams = 0
        """Ranges that are served now: how busy this peer is."""

    def add_to(self, app: web.Application) -> None:
        """The routes. HEAD tells whether the blob is here."""
        app.router.add_get("/blobs/sha256/{hex}", self._serve)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if not self._allowed(request.headers.get("Authorization", "")):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        try:
            digest = check_digest(f"sha256:{request.match_info['hex']}")
        except ValueError:
            return web.Response(status=400)
        if not await asyncio.to_thread(self._servable, digest):
            return web.Response(status=404)
        if self.streams >= self._most:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return _Counted(self, digest, self._layout)

    def _allowed(self, sent: str) -> bool:
        scheme, _, token = sent.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)

    def _servable(self, digest: str) -> bool:
        """Read-only since it was verified; who wrote to it is told by the digest that the other side takes."""
        try:
            return not self._layout.blob(digest).stat().st_mode & 0o222
        except OSError:
            return False


class _Counted(web.FileResponse):
    """A file, or the range of it that is asked for; counted while it is sent."""

    def __init__(self, server: PeerServer, digest: str, layout: Layout) -> None:
        super().__init__(layout.blob(digest), chunk_size=1 << 20, headers=_vouching(digest))
        self._server = server

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Sends it all."""
        self._server.streams += 1
        try:
            return await super().prepare(request)
        finally:
            self._server.streams -= 1


def _vouching(digest: str) -> dict[str, str]:
    value = base64.b64encode(bytes.fromhex(digest.removeprefix("sha256:"))).decode()
    return {"Repr-Digest": f"sha-256=:{value}:", "Content-Type": "application/octet-stream"}
