"""A proxy of aiohttp's server and aiohttp's client, tuned: the way that one would write a gateway in Python at first.

    python -m bench.peers.aiohttp_proxy --port P --upstream-port U

uvloop, no access log, no limit of connections, no cookies, no decompression, answers streamed.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web
from multidict import CIMultiDict

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade"})


class Proxy:
    """Forwards everything to one upstream."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def live(self, _: web.Application) -> AsyncIterator[None]:
        """The client, for as long as the server lives."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as self._session:
            yield

    async def forward(self, asked: web.Request) -> web.StreamResponse:
        """One request."""
        assert self._session is not None
        body = await asked.read()
        headers = CIMultiDict((name, value) for name, value in asked.headers.items() if name.lower() not in _HOP)
        async with self._session.request(
            asked.method, self._upstream + asked.path_qs, data=body, headers=headers
        ) as answer:
            kept = CIMultiDict((name, value) for name, value in answer.headers.items() if name.lower() not in _HOP)
            response = web.StreamResponse(status=answer.status, headers=kept)
            if answer.content_length is not None:
                response.content_length = answer.content_length
            await response.prepare(asked)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream-port", type=int, required=True)
    options = parser.parse_args()
    proxy = Proxy(f"http://127.0.0.1:{options.upstream_port}")
    application = web.Application(client_max_size=64 << 20)
    application.cleanup_ctx.append(proxy.live)
    application.router.add_route("*", "/{path:.*}", proxy.forward)
    loop = uvloop.new_event_loop()
    web.run_app(application, host="127.0.0.1", port=options.port, access_log=None, print=None, loop=loop)


if __name__ == "__main__":
    main()
