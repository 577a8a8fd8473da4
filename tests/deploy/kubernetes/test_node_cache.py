"""Asking a node's agent: which pod that is, what its answers mean, how long it may be silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from coldstart.cache.wanting import Wanted
from coldstart.core.cache.transfer import Transferred
from deploy.kubernetes import node_cache
from deploy.kubernetes.agents import Agents
from deploy.kubernetes.node_cache import Bringing, NodeCache, NotBrought
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.views import ContainerView, PodView
from deploy.local.declared import Reason
from events.clock import SystemClock
from events.units import Seconds

LABELS = {"app.kubernetes.io/name": "relume", "app.kubernetes.io/component": "agent"}
WEIGHTS = Wanted("https://origin.test/model.gguf")
THERE = {"source": "", "bytes": 9, "done": 9, "rate": None, "snapshot": "snapshots/a", "file": "m.gguf",
         "tier": "disk", "leastSeconds": 0.5}  # fmt: skip


class Agent:
    """Answers in order what it is told to: a status and a body; the last one again and again."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: dict[str, str] = {}
        self.port = 0

    async def serve(self, request: web.Request) -> web.Response:
        """The next one."""
        self.asked.append((request.path.rpartition("/")[2], await request.json()))
        self.headers = dict(request.headers)
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.json_response(body, status=status)


@asynccontextmanager
async def running(agent: Agent, **changes: Any) -> AsyncIterator[NodeCache]:
    """An agent's pod on node n1, and who asks."""
    app = web.Application()
    app.router.add_post("/v1alpha1/cache/{operation}", agent.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    agent.port = runner.addresses[0][1]
    view: dict[str, Any] = {
        "name": "agent", "namespace": "models", "uid": "1", "node": "n1", "ip": "127.0.0.1", "running": True,
        "labels": LABELS, "containers": (ContainerView("agent", ((agent.port, ""),)),),
    } | changes  # fmt: skip
    agents = Agents(cast("PodStore", [PodView(**view)]), "models", "secret")
    try:
        yield NodeCache(agents, SystemClock())
    finally:
        await agents.close()
        await runner.cleanup()


async def have(cache: NodeCache, heard: list[Transferred | None] | None = None) -> node_cache.Brought:
    """Weights for a pod."""
    return await cache.have("n1", "models/pod-1", WEIGHTS, (heard if heard is not None else []).append)


async def test_a_fetch_is_told_until_the_weights_are_there() -> None:
    """With the holder and the token; each answer on the way is heard."""
    agent = Agent((200, THERE | {"snapshot": "", "done": 3, "rate": 2.0}), (200, THERE))
    heard: list[Transferred | None] = []
    async with running(agent) as cache:
        brought = await have(cache, heard)
    assert (brought.folder, brought.file, brought.bytes, brought.tier) == ("snapshots/a", "m.gguf", 9, "disk")
    assert brought.least == 0.5
    assert [(one.done, one.total, one.rate) for one in heard if one is not None] == [(3, 9, 2.0)]
    assert agent.asked[0][1]["holder"] == "models/pod-1"
    assert agent.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(("name", "reason"), [
    ("NoSpace", Reason.WEIGHTS_NO_SPACE), ("DigestMismatch", Reason.WEIGHTS_MISMATCH),
    ("SourceRefused", Reason.WEIGHTS_NOT_FOUND), ("UnsupportedSource", Reason.INVALID_SPEC),
    ("SourceUnavailable", Reason.WEIGHTS_UNAVAILABLE), ("unauthorized", Reason.WEIGHTS_UNAVAILABLE),
])  # fmt: skip
async def test_a_refusal_is_a_start_that_failed(name: str, reason: Reason) -> None:
    """With the agent's words and remedy."""
    said = {"type": f"urn:relume:problem:{name}", "detail": "no", "remedy": "do this"}
    async with running(Agent((502, said))) as cache:
        with pytest.raises(NotBrought, match="node n1: no; do this") as caught:
            await have(cache)
    assert caught.value.reason is reason


@pytest.mark.parametrize("changes", [
    {"node": "n2"}, {"namespace": "others"}, {"labels": {}}, {"running": False}, {"deleting": True}, {"containers": ()},
    {"ip": "127.0.0.9", "containers": (ContainerView("agent", ((1, ""),)),)},
])  # fmt: skip
async def test_a_missing_agent_is_waited_for_and_then_told(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node's, another namespace's, another program's, one that ends or does not answer is none."""
    monkeypatch.setattr(node_cache, "SILENT_FOR", Seconds(0.2))
    monkeypatch.setattr(node_cache, "AGAIN", Seconds(0.05))
    agent = Agent((200, THERE))
    async with running(agent, **changes) as cache:
        with pytest.raises(NotBrought, match="node n1") as caught:
            await have(cache)
        assert not await cache.hold("n1", "models/pod-1", held=True)
    assert caught.value.reason is Reason.WEIGHTS_UNAVAILABLE
    assert agent.asked == []


async def test_adapters_are_brought_and_held_beside_the_weights() -> None:
    """Each under a holder of its own; a folder of several files is given as it is."""
    folder = THERE | {"snapshot": "snapshots/b", "file": ""}
    agent = Agent((200, THERE), (200, folder), (200, {"holder": "h", "until": None}))
    async with running(agent) as cache:
        bringing = Bringing(cache, SystemClock(), "n1", "h", {"": WEIGHTS, "de": Wanted("hf://a/lora")})
        brought = await bringing.bring(lambda _: None)
        assert brought[""].within("/relume/weights") == "/relume/weights/m.gguf"
        assert brought["de"].within("/relume/adapters/de") == "/relume/adapters/de"
        await bringing.let_go()
    assert [body["holder"] for _, body in agent.asked] == ["h", "h/de", "h", "h/de"]


async def test_an_agent_that_has_forgotten_is_asked_for_the_weights_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prolonged again and again; let go in the end."""
    monkeypatch.setattr(Bringing, "PROLONG_EVERY", Seconds(0.02))
    no = {"type": "urn:relume:problem:no-holder", "detail": "holds none"}
    agent = Agent((200, {"holder": "h", "until": "x"}), (404, no), (200, THERE), (200, {"holder": "h", "until": "x"}))
    async with running(agent) as cache:
        bringing = Bringing(cache, SystemClock(), "n1", "h", {"": WEIGHTS})
        keeping = asyncio.create_task(bringing.keep())
        async with asyncio.timeout(30):
            while len(agent.asked) < 5:  # noqa: ASYNC110 - it happens in the server
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await bringing.let_go()
    asked = [operation for operation, _ in agent.asked]
    assert asked[:4] == ["hold", "hold", "have", "hold"]
    assert agent.asked[-1] == ("hold", {"holder": "h", "held": False})
