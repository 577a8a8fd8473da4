"""The part of a kubelet that the API server asks for logs: an HTTPS server over the files that processes write to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from tests.support.certificates import Authority

LOOKS_EVERY = 0.05


class LogServer:
    """`log_of` gives the file of a pod's container, by namespace and name; None for an unknown one."""

    def __init__(self, folder: Path, log_of: Callable[[str, str], Path | None]) -> None:
        self._folder = folder
        self._log_of = log_of
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        certificate, key = Authority(self._folder).issue("kubelet")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = self._log_of(request.match_info["namespace"], request.match_info["pod"])
        if path is None:
            raise web.HTTPNotFound(text="there is no such pod here")
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        tail = int(request.query.get("tailLines", len(lines)))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"".join(lines[len(lines) - tail :] if tail else []))
        seen = sum(map(len, lines))
        while request.query.get("follow") == "true" and self._log_of(
            request.match_info["namespace"], request.match_info["pod"]
        ):
            await asyncio.sleep(LOOKS_EVERY)
            with path.open("rb") as file:
                file.seek(seen)
                more = file.read()
            seen += len(more)
            await response.write(more)
        return response
