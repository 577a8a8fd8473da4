"""The port at which other nodes' agents read this node's weights."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from coldstart.adapters.peer_server import PeerServer
from coldstart.cache.layout import Layout
from deploy.local.agent_peers import PeerSettings

logger = logging.getLogger(__name__)

ENDS_WITHIN: Final = 1.0
"""Seconds for ranges that are being sent at the end: who reads them asks another."""


class PeerPort:
    """Serves blobs by their digest to who has the token. `start` binds; OSError when it cannot."""

    def __init__(self, layout: Layout, settings: PeerSettings) -> None:
        self._settings = settings
        self._server = PeerServer(layout, settings.token)
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen; the URL at which others reach it."""
        settings = self._settings
        app = web.Application()
        self._server.add_to(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=ENDS_WITHIN)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, settings.host, settings.port, ssl_context=settings.server_tls).start()
        host, _, port = settings.address.rpartition(":")
        bound = runner.addresses[0][1] if port == "0" else port
        url = f"{'http' if settings.server_tls is None else 'https'}://{host}:{bound}"
        logger.info("weights are served to other nodes at %s", url)
        return url

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def streams(self) -> int:
        """Ranges that are served now."""
        return self._server.streams
