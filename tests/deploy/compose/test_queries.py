"""Asking Prometheus: what real and broken servers answer, what is told of it, and what must not be told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
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
from tests.support.waiting import until

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
        ({"data": {"result": [{"metric": {}, "value": [1, 10**400]}]}}, 200, "none of Prometheus'"),
        ({"data": {"result": [{"metric": {}, "value": []}]}}, 200, "none of Prometheus'"),
        ({"data": {"result": [{"metric": {}, "value": [1, None]}]}}, 200, "none of Prometheus'"),
        ({"data": {"result": [1, 2, 3]}}, 200, "none of Prometheus'"),
        ({"data": {"result": {"a": 1}}}, 200, "none of Prometheus'"),
        ({"data": None}, 200, "none of Prometheus'"),
        ("text", 200, "none of Prometheus'"),
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
    assert "(host=" not in str(unknown.value)


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


@asynccontextmanager
async def raw(*pieces: bytes, every: float = 0.0, again: bool = False) -> AsyncIterator[str]:
    """A server that writes these bytes, whatever it is asked, with so long between them; `again`: the last for ever."""

    writers: list[asyncio.StreamWriter] = []
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in chain(pieces, repeat(pieces[-1])) if again else pieces:
                writer.write(piece)
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), every)
                    break
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
        over.set()
        for writer in writers:
            writer.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ((HEAD + b"Content-Length: 99\r\n\r\n{",), "cannot be asked"),
        ((HEAD + b"Content-Length: 8\r\n\r\n[[[[[[[[",), "no JSON"),
        ((HEAD + b"Connection: close\r\n\r\n" + b'{"data":' + b"[" * 100_000,), "none of Prometheus'"),
        ((HEAD + b"Connection: close\r\n\r\n" + b'{"data": {"result": [1, NaN]}}',), "nan"),
        (
            (HEAD + b"Connection: close\r\n\r\n<html><h1>Sign in</h1></html>",),
            "no JSON; is this the URL of a Prometheus",
        ),
        ((HEAD + b"Connection: close\r\n\r\n\xff\xfe\x00",), "no JSON"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "cannot be asked"),
        ((b"",), "cannot be asked"),
        ((HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\nplain",), "cannot be asked"),
        ((HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n{}",), "cannot be asked"),
        ((HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), "cannot be asked"),
    ],
)
async def test_what_no_prometheus_would_say(pieces: tuple[bytes, ...], words: str) -> None:
    """Half answers, other protocols, deep and endless nesting: no number, a reason, and nothing else."""
    async with raw(*pieces) as url:
        try:
            told = f"{(await asked(url)).values}"
        except QueryUnknown as unknown:
            told = str(unknown)
    assert words in told


async def test_a_head_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header now and then for ever, or nothing at all: its thread is free after the patience, so it keeps relume from
    nothing; and what is told is that it was too slow, not that it went away."""
    monkeypatch.setattr(queries, "PATIENCE", Seconds(1.0))
    for pieces in (HEAD, b"X: y\r\n"), (b"",):
        async with raw(*pieces, every=0.1, again=True) as url:
            with pytest.raises(QueryUnknown, match="no answer within"):
                await asked(url)
    await until(lambda: not [one for one in threading.enumerate() if one.name.startswith("prometheus")])


async def test_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few to the same host, never to another one, which must not be told secrets; and none in a circle."""
    told: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        told.append(request.headers.get("X-Secret", ""))
        return web.json_response(result("3"))

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.query["query"] == "circle":
            raise web.HTTPFound(request.path_qs)
        if request.query["query"] == "moved":
            raise web.HTTPMovedPermanently(f"/api/v1/query?query=there&{request.query_string.partition('&')[2]}")
        if request.query["query"] == "away":
            raise web.HTTPFound(other.replace("127.0.0.1", "localhost"))
        return web.json_response(result("4.5"))

    async with serving(elsewhere) as other, serving(handler) as url:
        assert (await asked(url, query("moved"))).values == (4.5,)
        with pytest.raises(QueryUnknown, match=r"redirects to http://localhost.*name that as its url"):
            await asked(url, query("away"))
        with pytest.raises(QueryUnknown, match="redirects more than 3 times"):
            await asked(url, query("circle"))
    assert not told


async def test_a_token_that_is_renewed(tmp_path: Path) -> None:
    """Refused with the old one, it is read anew: no restart is needed."""
    token = tmp_path / "token"
    token.write_text("old", encoding="utf-8")

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer new":
            return web.Response(status=401, text="go away")
        return web.json_response(result("4.5"))

    async with serving(handler) as url:
        servers = tmp_path / "servers.yaml"
        servers.write_text(f"main: {{url: '{url}', bearerTokenFile: {token}}}\n", encoding="utf-8")
        made = PrometheusQueries(Settings.model_validate({"prometheus_servers": str(servers)}), SystemClock())
        try:
            with pytest.raises(QueryUnknown, match="401"):
                await made.ask(query("q", "main"))
            token.write_text("new", encoding="utf-8")
            assert (await made.ask(query("q", "main"))).values == (4.5,)
            token.write_text("\u6a21", encoding="utf-8")
            assert (await made.ask(query("q", "main"))).values == (4.5,)  # no reason to read it
        finally:
            made.close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("tlsCa: /nowhere/ca.pem", "/nowhere/ca.pem"), ("tlsCert: /nowhere/cert.pem", "/nowhere/cert.pem"),
        ("bearerTokenFile: {folder}/strange", "cannot be"), ("bearerTokenFile: {folder}", "secrets cannot be read"),
        ("tlsCa: {folder}/strange", "cannot be asked"),
    ],
)  # fmt: skip
async def test_files_that_are_gone_or_strange(tmp_path: Path, fields: str, words: str) -> None:
    """Said of the signal, and asked again: they may come back."""
    (tmp_path / "strange").write_text("\u6a21\u578b", encoding="utf-8")
    servers = tmp_path / "servers.yaml"
    servers.write_text(f"main: {{url: 'https://127.0.0.1:9', {fields.format(folder=tmp_path)}}}\n", encoding="utf-8")
    made = PrometheusQueries(Settings.model_validate({"prometheus_servers": str(servers)}), SystemClock())
    for _ in range(2):
        with pytest.raises(QueryUnknown) as unknown:
            await made.ask(query("q", "main"))
        assert words in str(unknown.value)
    made.close()


async def test_more_servers_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All asked at once: each has its answer, though the connections of the first make room meanwhile."""
    monkeypatch.setattr(queries, "SERVERS_MOST", 2)
    gate = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return web.json_response(result("4.5"))

    async with serving(handler) as url:
        made = PrometheusQueries(Settings.model_validate({}), SystemClock())
        asks = [asyncio.create_task(made.ask(query("q", f"{url}/{'/' * at}"))) for at in range(8)]
        await asyncio.sleep(0)
        gate.set()
        assert [answer.delay for answer in await asyncio.gather(*asks)] == [4.5] * 8
        made.close()


async def test_a_server_that_is_slow_to_say_how_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers count all the same."""
    monkeypatch.setattr(queries, "DELAY_PATIENCE", Seconds(0.2))
    monkeypatch.setattr(queries, "PATIENCE", Seconds(1.0))

    async def handler(request: web.Request) -> web.StreamResponse:
        if "timestamp(" in request.query["query"]:
            await asyncio.sleep(3600)
        return web.json_response(result("7"))

    async with serving(handler) as url:
        assert await asked(url) == Answer((7.0,), None)


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
