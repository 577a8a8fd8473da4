"""Load on a proxy: wrk where it is installed, else the asyncio client; the proxy's CPU while it lasts."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import clients, machine
from bench.clients import Wrong
from bench.peers.process import Proxy

_DONE: Final = re.compile(r"(\d+) requests in")
_BAD: Final = re.compile(r"(Non-2xx or 3xx responses|Socket errors): ?(.*)")
_LUA: Final = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer sk-bench-0123456789abcdef"
wrk.body = [==[%s]==]
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One timed stretch: requests answered, seconds it took, CPU seconds of the proxy."""

    requests: int
    seconds: float
    cpu: float

    @property
    def cpu_us(self) -> float:
        """CPU microseconds a request."""
        return self.cpu / self.requests * 1e6


def generator() -> str:
    """What makes the load."""
    return "wrk" if shutil.which("wrk") else "asyncio client"


async def json_stretch(proxy: Proxy, connections: int, seconds: float) -> Stretch:
    """JSON requests on so many connections, each again when it is answered. Raises Wrong."""
    before, began = proxy.cpu_seconds(), time.monotonic()
    if shutil.which("wrk") and seconds >= 1:  # wrk counts in whole seconds
        done = await _wrk(proxy, connections, seconds)
    else:
        sent = clients.request("127.0.0.1", clients.body())
        done = await clients.closed_loop(proxy.address, sent, connections, seconds)
    stretch = Stretch(done, time.monotonic() - began, proxy.cpu_seconds() - before)
    if not stretch.requests or stretch.cpu <= 0:
        raise Wrong(f"{proxy.name}: {stretch}")
    return stretch


async def _wrk(proxy: Proxy, connections: int, seconds: float) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_LUA % clients.body().decode())
        script.flush()
        host, port = proxy.address
        process = await asyncio.create_subprocess_exec(
            "wrk", "-t1", f"-c{connections}", f"-d{round(seconds)}s", "--timeout", "30s", "-s", script.name,
            f"http://{host}:{port}/v1/chat/completions", stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        machine.pin(process.pid, machine.cores()[0])
        said, _ = await process.communicate()
    text = said.decode()
    bad = _BAD.search(text)
    found = _DONE.search(text)
    if process.returncode or bad is not None or found is None:
        raise Wrong(f"{proxy.name}: wrk ended with {process.returncode}: {text}")
    return int(found[1])


def raise_descriptors() -> int:
    """Allow as many open files as the system lets us; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for this measurement; it is deleted with what is in it."""
    return tempfile.TemporaryDirectory(prefix="relume-bench-", dir=os.environ.get("TMPDIR"), ignore_cleanup_errors=True)


ROOT: Final = Path(__file__).resolve().parent.parent
