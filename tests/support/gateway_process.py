"""``python -m tests.support.gateway_process NAME SOCKET``: one gateway of several, on the log of a `LogServer`.

It writes a JSON line with its port once it serves. SIGTERM drains. On standard input it is asked for its counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict

import uvloop

from events.clock import SystemClock
from events.names import GatewayName
from events.units import Seconds
from events.writer import EventWriter
from runtime.desk.desk import DeskSettings
from runtime.desk.peers import PeerSettings
from runtime.desk.shared import SharedDesk
from runtime.gateway.server import GatewayServer
from runtime.gateway.settings import GatewaySettings
from tests.support.log_server import RemoteLog


async def serve(name: str, path: str) -> None:
    """Until SIGTERM."""
    clock = SystemClock()
    log = await RemoteLog.open(path)
    own = DeskSettings(gateway=GatewayName(name), boot=os.urandom(6).hex())
    peers = PeerSettings(address="127.0.0.1:0", secret=b"0123456789abcdef")
    desk = SharedDesk(log, clock, EventWriter(f"relume/gateway/{name}", clock), own, peers)
    server = GatewayServer(desk, desk, clock, GatewaySettings(port=0))
    desk.serve(server)
    await desk.start()
    await server.start()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)

    port = server.port

    def tell() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin)
            return
        print(json.dumps({"port": port, **asdict(desk.sharing_counts)}), flush=True)  # noqa: T201 - what it is for

    loop.add_reader(sys.stdin, tell)
    await ended.wait()
    desk.shut_down()
    await server.drain(Seconds(10.0))
    await desk.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(*sys.argv[1:]))
