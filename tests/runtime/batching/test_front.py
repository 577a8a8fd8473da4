"""The front before an engine of the test's own: who goes together, and that one's trouble is not another's."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from events.clock import SystemClock
from events.units import Seconds
from runtime.batching.batcher import Batcher, Tuned
from runtime.batching.serving import Engine, Front
from runtime.core.batching.formats import STATUS_PATH
from runtime.core.batching.tuning import adaptive, begin
from tests.support.kafka_broker import free_port

WITHIN = 60.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Origin:
    """An engine that embeds: the length of each text. "bad" is refused, "slow" takes for ever, "die" cuts the line."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def embed(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/embeddings."""
        given = (await request.json())["input"]
        texts = given if isinstance(given, list) else [given]
        self.calls.append(texts)
        try:
            await self.gate.wait()
            if "slow" in texts:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if "die" in texts:
            assert request.transport is not None
            request.transport.abort()
        if "bad" in texts:
            return web.json_response({"error": {"message": "no"}}, status=400)
        if "short" in texts and len(texts) > 1:
            return web.json_response({"data": []})
        data = [{"index": index, "embedding": [len(one)]} for index, one in enumerate(texts)]
        return web.json_response({"data": data, "usage": {"prompt_tokens": len(data), "total_tokens": len(data)}})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions: three chunks."""
        await request.read()
        told = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await told.prepare(request)
        for index in range(3):
            await told.write(f"data: {index}\n\n".encode())
        await told.write_eof()
        return told

    async def echo(self, request: web.Request) -> web.StreamResponse:
        """Anything else: what came."""
        body = (await request.read()).decode()
        return web.json_response({"method": request.method, "path": request.path_qs, "body": body}, status=207)


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[int]:
    """The application on a free port."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


class World:
    """A client of the front."""

    def __init__(self, origin: Origin, batcher: Batcher, session: aiohttp.ClientSession) -> None:
        self.origin, self.batcher, self.session = origin, batcher, session

    async def embed(self, text: str, **headers: str) -> tuple[int, object]:
        """The status, and the vector or what was said instead."""
        async with self.session.post("/v1/embeddings", json={"model": "m", "input": text}, headers=headers) as answer:
            told = await answer.json()
            return answer.status, told["data"][0]["embedding"] if answer.status == 200 else told["error"]["message"]

    async def gathered(self, count: int) -> None:
        """So many gather."""
        async with asyncio.timeout(WITHIN):
            while self.batcher.waiting != count:  # noqa: ASYNC110 - they come over a connection
                await asyncio.sleep(0.01)

    async def together(self, *texts: str) -> list[tuple[int, object]]:
        """Asked while the engine is busy, so that they gather."""
        self.origin.gate.clear()
        first = asyncio.create_task(self.embed("first"))
        async with asyncio.timeout(WITHIN):
            while not self.origin.calls:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        others = []
        for count, text in enumerate(texts, 1):
            others.append(asyncio.create_task(self.embed(text)))
            await self.gathered(count)
        self.origin.gate.set()
        answers = await asyncio.gather(*others)
        await first
        return answers


@asynccontextmanager
async def world(within: float = WITHIN, most: int = 8) -> AsyncIterator[World]:
    """An engine, a front before it, and a client."""
    origin = Origin()
    app = web.Application()
    app.router.add_post("/v1/embeddings", origin.embed)
    app.router.add_post("/v1/chat/completions", origin.stream)
    app.router.add_route("*", "/{rest:.*}", origin.echo)
    async with listening(app) as port:
        engine = Engine(f"http://127.0.0.1:{port}", Seconds(within))
        tuned = Tuned(adaptive, Seconds(30.0))
        batcher = Batcher(SystemClock(), engine.send, begin(Seconds(0.02), most), tuned)
        await engine.open()
        async with listening(Front(engine, batcher).app()) as front:
            timeout = aiohttp.ClientTimeout(total=WITHIN)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{front}", timeout=timeout) as session:
                yield World(origin, batcher, session)
        await batcher.close()
        await engine.close()


async def test_who_waits_goes_together_and_gets_their_own() -> None:
    """Five while the engine is busy: one request of five inputs, in their order, and each has its own vector."""
    async with world() as made:
        answers = await made.together("a", "bb", "ccc", "dddd", "eeeee")
        assert answers == [(200, [count]) for count in range(1, 6)]
        assert made.origin.calls == [["first"], ["a", "bb", "ccc", "dddd", "eeeee"]]
        async with made.session.get(STATUS_PATH) as answer:
            told = await answer.json()
        assert (told["batches"], told["requests"], told["waiting"]) == (2, 6, 0)


@pytest.mark.parametrize(("bad", "status"), [("bad", 400), ("die", 502)])
async def test_one_that_is_refused_does_not_fail_the_others(bad: str, status: int) -> None:
    """The engine refuses the whole, or cuts the line: each is asked again alone, and only one gets the error."""
    async with world() as made:
        answers = await made.together("a", bad, "ccc")
        assert [one[0] for one in answers] == [200, status, 200]
        assert [one[1] for one in answers if one[0] == 200] == [[1], [3]]
        assert made.origin.calls == [["first"], ["a", bad, "ccc"], ["a"], [bad], ["ccc"]]


async def test_an_answer_that_cannot_be_taken_apart_is_asked_for_again() -> None:
    """Fewer vectors than texts: nobody gets another's."""
    async with world() as made:
        assert await made.together("short", "bb") == [(200, [5]), (200, [2])]


async def test_who_leaves_is_left_out_and_one_that_all_left_is_given_up() -> None:
    """A client that closes its connection while it waits is in no batch; one that was alone at the engine frees it."""
    async with world() as made:
        alone = asyncio.create_task(made.embed("slow"))
        async with asyncio.timeout(WITHIN):
            while not made.origin.calls:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        leaves = asyncio.create_task(made.embed("leaves"))
        await made.gathered(1)
        leaves.cancel()
        await made.gathered(0)
        stays = asyncio.create_task(made.embed("stays"))
        await made.gathered(1)
        alone.cancel()
        assert await stays == (200, [5])
        assert made.origin.calls == [["slow"], ["stays"]]
        async with asyncio.timeout(WITHIN):
            while not made.origin.cancelled:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)


async def test_an_engine_that_does_not_answer_is_an_error_in_time() -> None:
    """Within its bound the batch is given up; each is tried alone, and only the slow one gets 504."""
    async with world(within=1.0) as made:
        answers = await made.together("slow", "bb")
        assert answers[0][0] == 504
        assert answers[1] == (200, [2])


async def test_other_credentials_do_not_share() -> None:
    """A batch has the credentials of all its members."""
    async with world() as made:
        made.origin.gate.clear()
        first = asyncio.create_task(made.embed("first"))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(made.embed(f"t{who}", Authorization=f"Bearer {who}")) for who in "aab"]
        await made.gathered(3)
        made.origin.gate.set()
        await asyncio.gather(first, *others)
        assert sorted(len(one) for one in made.origin.calls) == [1, 1, 2]


async def test_everything_else_passes_through() -> None:
    """Streams, other paths and methods, what is no JSON: byte by byte."""
    async with world() as made:
        async with made.session.post("/v1/chat/completions", json={"stream": True}) as answer:
            assert await answer.read() == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
            assert answer.content_type == "text/event-stream"
        async with made.session.put("/other?x=1", data=b"raw") as answer:
            assert answer.status == 207
            assert await answer.json() == {"method": "PUT", "path": "/other?x=1", "body": "raw"}
        async with made.session.post(
            "/v1/completions", data=b"{", headers={"Content-Type": "application/json"}
        ) as answer:
            assert (await answer.json())["body"] == "{"


async def test_the_program_starts_the_engine_and_ends_with_it() -> None:
    """Health and embeddings of the simulated engine through the front's port; SIGTERM ends both."""
    port, inner = free_port(), free_port()
    engine = ["-m", "runtime.engines.simulated_server", "--model", "m", "--port", str(inner), "--host", "127.0.0.1"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runtime.batching.front", "--host", "127.0.0.1", "--port", str(port), "--engine-port",
        str(inner), "--", sys.executable, *engine,
    )  # fmt: skip
    try:
        async with asyncio.timeout(WITHIN), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get("/health") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.05)

            async def embed(text: str) -> dict[str, object]:
                async with session.post("/v1/embeddings", json={"model": "m", "input": text}) as answer:
                    found: dict[str, object] = json.loads(await answer.read())
                    return found

            for told in await asyncio.gather(*(embed(f"text {index}") for index in range(9))):
                assert isinstance(told["data"], list)
                assert len(told["data"]) == 1
            process.terminate()
            assert await process.wait() in (0, 143)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
