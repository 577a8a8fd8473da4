"""``python -m runtime.engines.simulated_server``: an OpenAI-compatible server that needs no model and no GPU.

It listens at once, answers 503 on ``/health`` while it "loads", then serves with the times, limits and faults that its
flags ask for (``--help``). SIGTERM closes the listener, cuts what still runs and exits 0.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

import uvloop

from events.clock import SystemClock
from runtime.engines.simulated.engine import Engine, start_fails
from runtime.engines.simulated.http import Connection
from runtime.engines.simulated.routes import Routes
from runtime.engines.simulated.settings import FailStart, Settings, parse

_STEPS = 10  # lines of progress in a start


def say(message: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"relume-simulated: {message}\n")
    sys.stderr.flush()


class StartFailed(Exception):
    """The start fails because the settings ask for it."""


async def serve(settings: Settings) -> None:
    """Until SIGTERM or SIGINT. Raises OSError when the address cannot be bound, StartFailed when told to fail."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if start_fails(settings.faults, FailStart.SPAWN):
        raise StartFailed("failing before listening, as failStart asks")
    engine = Engine(settings)
    routes = Routes(engine, SystemClock())
    connections: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(routes.handle, connections), settings.host, settings.port, backlog=4096, reuse_address=True
    )
    address = server.sockets[0].getsockname()
    say(f"listening at http://{address[0]}:{address[1]} for {', '.join(settings.names)}")
    try:
        if await _load(settings, engine, stopping):
            routes.ready = True
            say(f"ready: {settings.limits.slots} slots")
        await stopping.wait()
        await asyncio.sleep(settings.timing.stop)
    finally:
        server.close()
        for connection in list(connections):
            connection.abort()
        await server.wait_closed()


async def _load(settings: Settings, engine: Engine, stopping: asyncio.Event) -> bool:
    """Pass the start time, with progress; False when the server is told to stop, or never becomes ready."""
    seconds = engine.start_seconds()
    for step in range(_STEPS):
        try:
            await asyncio.wait_for(stopping.wait(), seconds / _STEPS)
        except TimeoutError:
            if seconds >= 1.0:
                say(f"loading: {(step + 1) * 100 // _STEPS} %")
        else:
            return False
    if start_fails(settings.faults, FailStart.LOAD):
        raise StartFailed("failing to load the model, as failStart asks")
    return not start_fails(settings.faults, FailStart.HANG)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit code."""
    settings = parse(argv)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except StartFailed as error:
        say(str(error))
        return settings.faults.exit_code
    except OSError as error:
        say(f"cannot listen at {settings.host}:{settings.port}: {error.strerror or error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
