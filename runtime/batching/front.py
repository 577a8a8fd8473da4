"""``python -m runtime.batching.front … -- ENGINE…``: an engine with a front that gathers requests into batches.

Starts the engine's command, listens where the replica is expected, and passes on what it does not gather; so probes,
metrics and streams are the engine's own. SIGTERM goes to the engine; the front ends with it, with its exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import uvloop
from aiohttp import web

from events.clock import SystemClock
from events.units import Seconds
from runtime.batching.batcher import Batcher, Rule, Tuned
from runtime.batching.serving import Engine, Front
from runtime.core.batching.tuning import adaptive, aimd_gpu, begin

RULES: Final[Mapping[str, Rule | None]] = {"fixed": None, "adaptive": adaptive, "aimd-gpu": aimd_gpu}

STARTS_AT: Final = 8
"""Requests in a batch where a rule begins."""

ENDS_WITHIN: Final = 30.0
"""Seconds after SIGTERM after which the engine is killed; whoever stops a replica has drained it."""


def parser() -> argparse.ArgumentParser:
    """The program's flags."""
    flags = argparse.ArgumentParser(prog="relume-batching", description="Gathers requests before an engine.")
    flags.add_argument("--host", required=True)
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--engine-port", type=int, required=True, help="where the engine listens, on 127.0.0.1")
    flags.add_argument("--window", type=float, default=0.02, help="seconds that the first waits for company")
    flags.add_argument("--most", type=int, default=32, help="inputs in one batch")
    flags.add_argument("--rule", choices=sorted(RULES), default="adaptive")
    flags.add_argument("--promise", type=float, default=1.0, help="seconds within which 99 of 100 are answered")
    flags.add_argument("--within", type=float, default=600.0, help="seconds that the engine may take for one batch")
    flags.add_argument("command", nargs="+", help="the engine's command, after --")
    return flags


async def serve(given: argparse.Namespace) -> int:
    """Until the engine ends; its exit code. Raises OSError when the address cannot be bound or the command not run."""
    loop, clock = asyncio.get_running_loop(), SystemClock()
    engine = Engine(f"http://127.0.0.1:{given.engine_port}", Seconds(given.within))
    rule = RULES[given.rule]
    tuned = None if rule is None else Tuned(rule, Seconds(given.promise))
    state = begin(Seconds(given.window), given.most if rule is None else STARTS_AT, given.most)
    batcher = Batcher(clock, engine.send, state, tuned)
    runner = web.AppRunner(Front(engine, batcher).app(), access_log=None, handler_cancellation=True)
    await engine.open()
    await runner.setup()
    tuning = asyncio.create_task(batcher.run())
    process: asyncio.subprocess.Process | None = None
    try:
        await web.TCPSite(runner, given.host, given.port, backlog=4096).start()
        process = await asyncio.create_subprocess_exec(*given.command)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.terminate)
        return await process.wait()
    finally:
        tuning.cancel()
        await batcher.close()
        await runner.cleanup()
        await engine.close()
        if process is not None and process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDS_WITHIN):
            await process.wait()
            return
    process.kill()
    await process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the engine ends; the exit code."""
    given = parser().parse_args(argv)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(serve(given))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        sys.stderr.write(
            f"relume-batching: cannot listen at {given.host}:{given.port}, or start the engine: {reason}\n"
        )
        return 1
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
