"""``python -m runtime.engines.simulated_server``: an OpenAI-compatible server that needs no model and no GPU.

It listens at once, answers 503 on ``/health`` while it "loads", then serves with the times, limits and faults that its
flags ask for (``--help``). SIGTERM closes the listener, cuts what still runs and exits 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import uvloop

from events.clock import SystemClock
from runtime.engines.awaiting import NoWeights, wait
from runtime.engines.simulated.server import SimulatedServer, StartFailed
from runtime.engines.simulated.settings import Settings, parse


def _say(message: str) -> None:
    sys.stderr.write(f"relume-simulated: {message}\n")
    sys.stderr.flush()


async def serve(settings: Settings) -> None:
    """Until SIGTERM or SIGINT. Raises OSError when the address cannot be bound, StartFailed when told to fail."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = SimulatedServer(settings, SystemClock(), _say)
    try:
        await server.start()
        await server.load(stopping)
        await stopping.wait()
        await asyncio.sleep(settings.timing.stop)
    finally:
        await server.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit code."""
    settings = parse(argv)
    try:
        if settings.weights_from is not None:
            wait(settings.weights_from)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except StartFailed as error:
        _say(str(error))
        return settings.faults.exit_code
    except NoWeights as error:
        _say(str(error))
        return 1
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        _say(f"cannot listen at {settings.host}:{settings.port}: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
