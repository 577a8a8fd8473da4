"""A web application of aiohttp in a thread of its own, for tests of code that blocks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from aiohttp import web

WITHIN = 60.0


@contextlib.contextmanager
def served(app: web.Application) -> Iterator[int]:
    """Its port on 127.0.0.1."""
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def begin() -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        ready.set()
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(begin())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(WITHIN)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WITHIN)
