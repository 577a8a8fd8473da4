"""Answers of a real vLLM, recorded once and replayed in tests.

``python -m tests.support.vllm_recording URL MODEL > FILE`` puts a running vLLM to sleep and wakes it at both levels, as
a cluster does, through a proxy that notes what is asked and answered; then it asks for what may go wrong. How the one
that is recorded was started: `tests/deploy/local/recorded/README.md`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.prober import HttpProber
from deploy.local.sleeping import Bed
from events.clock import SystemClock
from events.names import ModelName, ReplicaName
from events.units import Seconds
from runtime.adapters.command import Command
from runtime.adapters.sleeping import VLLM_SLEEPS
from runtime.core.golden import Said, said
from runtime.ports import Call, LaunchRequest, Probe

FOLDER = Path(__file__).parents[1] / "deploy" / "local" / "recorded"
HELD_FOR = 3.0
"""Seconds after which a request to a sleeping engine counts as held."""
PATIENCE = Seconds(600.0)
ASIDES = (
    Call("/sleep?level=3"), Call("/wake_up?tags=nothing"), Call("/wake_up"), Call("/no_such_path"),
    Call("/collective_rpc", b'{"method":"no_such_method"}'),
)  # fmt: skip
"""What relume never asks, and people do."""


@dataclass(frozen=True)
class Exchange:
    """What was asked and what came back."""

    method: str
    path: str
    body: str
    status: int
    type: str
    answer: str


class Proxy:
    """Passes everything on, and notes it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.heard: list[Exchange] = []
        self._url = url
        self._session = session

    async def pass_on(self, request: web.Request) -> web.Response:
        """One request."""
        body = await request.read()
        kind = {"Content-Type": request.content_type} if body else {}
        asked = self._session.request(request.method, f"{self._url}{request.path_qs}", data=body or None, headers=kind)
        async with asked as answer:
            got = await answer.text()
        kind_of = answer.content_type if got else ""
        self.heard.append(Exchange(request.method, request.path_qs, body.decode(), answer.status, kind_of, got))
        return web.Response(status=answer.status, text=got, content_type=answer.content_type)

    def taken(self) -> list[dict[str, object]]:
        """What was noted since the last time."""
        heard, self.heard = self.heard, []
        return [asdict(exchange) for exchange in heard]


class Replay:
    """Answers as was recorded, in its order; 599 to what was never asked then, which `odd` tells."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self.left = list(exchanges)
        self.odd: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """One request."""
        body = (await request.read()).decode()
        now = self.left[0] if self.left else None
        if now is None or (now.method, now.path, now.body) != (request.method, request.path_qs, body):
            self.odd.append(f"{request.method} {request.path_qs} {body}")
            return web.Response(status=599)
        self.left.pop(0)
        return web.Response(status=now.status, text=now.answer, content_type=now.type or None)


def recorded(of: str = "vllm-0.32.0") -> dict[str, list[Exchange]]:
    """The conversations of a version, by name."""
    told = json.loads((FOLDER / f"{of}.json").read_text(encoding="utf-8"))
    return {name: [Exchange(**one) for one in exchanges] for name, exchanges in told["conversations"].items()}


def addressed(model: str, host: str, port: int) -> tuple[LaunchRequest, Probe]:
    """How a replica of this model is addressed, and its one-token request."""
    body = {"model": model, "prompt": "The", "max_tokens": 1, "temperature": 0}
    options = {"command": ["any", "{port}"], "warmupBody": body}
    wanted = LaunchRequest(ModelName(model), ReplicaName(f"{model}-r1-0"), host, port, 1, options=options)
    return wanted, Command().probe(wanted)


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[tuple[str, int]]:
    """It listens on a port of its own."""
    async with TestServer(app) as server:
        yield str(server.host), int(server.port or 0)


async def record(url: str, model: str) -> dict[str, object]:
    """All conversations with the vLLM at `url`."""
    clock = SystemClock()
    prober = HttpProber(clock)
    connector, timeout = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        async with session.get(f"{url}/version") as answer:
            version = (await answer.json())["version"]
        proxy, app = Proxy(url, session), web.Application()
        app.router.add_route("*", "/{path:.*}", proxy.pass_on)
        async with serving(app) as (host, port):
            wanted, probe = addressed(model, host, port)
            bed = Bed(prober, clock, wanted, PATIENCE)
            heard: list[bytes] = []
            _must(await prober.warm_up(host, port, probe, heard.append))
            told = await _levels(bed, proxy, probe, said(heard[0]) or ("nothing",))
            told["asleep"] = await _asleep(bed, proxy, probe, session, f"http://{host}:{port}")
            for call in ASIDES:
                await prober.tell(host, port, call, PATIENCE)
            told["asides"] = proxy.taken()
    await prober.close()
    return {"vllm": version, "conversations": told}


async def _levels(bed: Bed, proxy: Proxy, probe: Probe, golden: Said) -> dict[str, list[dict[str, object]]]:
    told = {}
    for way in VLLM_SLEEPS:
        proxy.taken()
        _must(await bed.sleep(way) or await bed.wake(way) or await bed.compare(probe, golden))
        told[f"level {way.level}"] = proxy.taken()
    return told


async def _asleep(
    bed: Bed, proxy: Proxy, probe: Probe, session: aiohttp.ClientSession, here: str
) -> list[dict[str, object]]:  # fmt: skip
    """Asked while it sleeps: its health, and a completion, which must come after the wake."""
    _must(await bed.sleep(VLLM_SLEEPS[0]))
    proxy.taken()
    async with session.get(f"{here}/health"):
        pass
    headers = {"Content-Type": "application/json"}

    async def complete() -> None:
        async with session.post(f"{here}{probe.warmup_path}", data=probe.warmup_body, headers=headers) as answer:
            await answer.read()

    asking = asyncio.create_task(complete())
    await asyncio.wait({asking}, timeout=HELD_FOR)
    _must(await bed.wake(VLLM_SLEEPS[0]))
    await asking
    return proxy.taken()


def _must(wrong: str) -> None:
    if wrong:
        raise SystemExit(wrong)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(record(*sys.argv[1:3])), indent=1) + "\n")
