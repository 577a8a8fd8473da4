"""Asking Prometheus: what real and broken servers answer, what is told of it, and what must not be told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.core.policy import QueryPolicy, Series
from autoscaler.core.query import Answer
from autoscaler.ports import QueryUnknown
from deploy.compose import queries
from deploy.compose.queries import PrometheusQueries
from deploy.settings.settings import Settings, SettingsRefused
from events.clock import SystemClock
from events.units import Seconds
from tests.support.prometheus import prometheus

pytestmark = pytest.mark.needs("prometheus")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def query(text: str = "q", server: str = "") -> QueryPolicy:
    """A query as it is declared."""
    return QueryPolicy(query=text, server=server, every=Seconds(15.0), series=Series.SUM, empty_is_zero=False)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server of our own; its URL."""
    app = web.Application()
    app.router.add_get("/api/v1/query", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def asked(url: str, policy: QueryPolicy | None = None, **settings: object) -> Answer:
    """One question."""
    made = PrometheusQueries(Settings.model_validate({"prometheus": url, **settings}), SystemClock())
    try:
        return await made.ask(policy or query())
    finally:
        made.close()


def result(*values: str) -> dict[str, object]:
    """What Prometheus says to an instant query."""
    vector = [{"metric": {"n": str(index)}, "value": [1.0, value]} for index, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": vector}}


def answering(body: object, status: int = 200) -> Handler:
    """Always the same."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if "timestamp(" in request.query["query"]:
            return web.json_response(result("4.5"))
        return web.json_response(body, status=status)

    return handler


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (result("3"), (3.0,)),
        (result("1", "2.5"), (1.0, 2.5)),
        (result(), ()),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1.0, "7"]}}, (7.0,)),
    ],
)
async def test_numbers(body: object, values: tuple[float, ...]) -> None:
    """Vectors and scalars, with how late they are."""
    async with serving(answering(body)) as url:
        assert await asked(url) == Answer(values, Seconds(4.5))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"status": "error", "errorType": "bad_data", "error": "parse error: unclosed"}, 400, "400: parse error"),
        ({"status": "error", "error": "query timed out"}, 503, "503: query timed out"),
        ("go away", 401, "401"),
        ({"data": {}}, 200, "none of Prometheus'"),
        ([1, 2], 200, "none of Prometheus'"),
        ({"data": {"result": [{"metric": {}, "values": [[1, "2"]]}]}}, 200, "max_over_time"),
        ({"data": {"result": [{"metric": {}, "value": [1, "many"]}]}}, 200, "none of Prometheus'"),
    ],
)
async def test_refusals(body: object, status: int, words: str) -> None:
    """What the server says is wrong reaches the person who wrote the query; nonsense is called nonsense."""
    async with serving(answering(body, status)) as url:
        with pytest.raises(QueryUnknown) as unknown:
            await asked(url)
    assert words in str(unknown.value)


async def test_a_server_that_is_away() -> None:
    """The reason is told without the insides of the client."""
    with pytest.raises(QueryUnknown) as unknown:
        await asked("http://127.0.0.1:9")
    assert "refused" in str(unknown.value)
    assert "object at 0x" not in str(unknown.value)


async def test_an_answer_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not hold us longer than the patience; nor does one that never ends its megabytes."""
    monkeypatch.setattr(queries, "PATIENCE", Seconds(1.0))

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with pytest.raises(ConnectionError):  # noqa: PT012 - it goes on until the client leaves
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.2)
        return response

    async with serving(drip) as url:
        with pytest.raises(QueryUnknown, match="no answer within"):
            await asked(url)


async def test_an_answer_that_is_too_long() -> None:
    """Its bytes are bounded."""
    async with serving(answering(result(*(["1"] * 40_000)))) as url:
        with pytest.raises(QueryUnknown, match="more than"):
            await asked(url)


async def test_named_servers_sign_in_with_what_stands_in_files(tmp_path: Path) -> None:
    """Headers and the token reach the server, and are read from their files."""
    seen: dict[str, str] = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.update(request.headers)
        return web.json_response(result("1"))

    (tmp_path / "token").write_text("s3cret\n")
    async with serving(handler) as url:
        (tmp_path / "servers.yaml").write_text(
            f"main: {{url: '{url}', bearerTokenFile: {tmp_path / 'token'}, headers: {{X-Scope-OrgID: team}}}}\n"
        )
        await asked(url, query(server="main"), prometheus_servers=tmp_path / "servers.yaml")
        with pytest.raises(QueryUnknown, match="no server other"):
            await asked(url, query(server="other"), prometheus_servers=tmp_path / "servers.yaml")
    assert (seen["Authorization"], seen["X-Scope-OrgID"]) == ("Bearer s3cret", "team")


@pytest.mark.parametrize(
    ("text", "words"),
    [("main: {url: x}", "url"), ("main: {}", "url"), ("[]", "dictionary"), ("a: [", "cannot be read"),
     ("m: {url: 'http://h', username: u}", "belong together")],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """At the start, with the place and the reason."""
    file = tmp_path / "servers.yaml"
    file.write_text(text)
    with pytest.raises(SettingsRefused) as refused:
        PrometheusQueries(Settings(prometheus_servers=file), SystemClock())
    assert words in str(refused.value)


async def test_without_a_server() -> None:
    """The remedy is told."""
    made = PrometheusQueries(Settings(), SystemClock())
    with pytest.raises(QueryUnknown, match="--prometheus URL"):
        await made.ask(query())


async def test_a_real_prometheus(tmp_path: Path) -> None:
    """A scraped number is found, and it is about as late as the scrapes are apart; what has no series is empty, and a
    wrong query is refused in its words."""

    async def metrics(_: web.Request) -> web.StreamResponse:
        return web.Response(text="waiting_requests 12\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    async with TestServer(app) as engine, prometheus(tmp_path, engine.port or 0) as url:
        made = PrometheusQueries(Settings(prometheus=url), SystemClock())
        try:
            async with asyncio.timeout(30):
                while not (answer := await made.ask(query("waiting_requests"))).values:
                    await asyncio.sleep(0.2)
                    made.close()  # the delay is asked anew
            assert answer.values == (12.0,)
            assert answer.delay is not None
            assert 0.0 <= answer.delay < 10.0
            assert (await made.ask(query("sum(waiting_requests) * 2"))).values == (24.0,)
            assert (await made.ask(query("nothing_like_it"))).values == ()
            with pytest.raises(QueryUnknown, match=r"400: .*parse error"):
                await made.ask(query("sum("))
        finally:
            made.close()
