"""The simulated engine's HTTP: what clients may do to a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.simulated import Client, completion, simulated


def post(path: str, body: object, extra: str = "", version: str = "1.1") -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/{version}\r\nhost: x\r\n{extra}content-length: {len(data)}\r\n\r\n".encode() + data


@asynccontextmanager
async def connected(engine: Client) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = engine.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
    try:
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def answer_to(engine: Client, request: bytes) -> bytes:
    """All that comes until the engine closes."""
    async with asyncio.timeout(5), connected(engine) as (reader, writer):
        writer.write(request)
        return await reader.read()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (n, b"a" * 90) for n in range(1000)) + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", b"501"),
        (b"DELETE /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n", b"405"),
        (b"GET /nothing HTTP/1.1\r\nconnection: close\r\n\r\n", b"404"),
    ],
    ids=["garbage", "version", "length", "many headers", "upgrade", "method", "path"],
)
async def test_bad_requests_get_their_status_and_the_engine_lives(request_: bytes, status: bytes) -> None:
    """With an error object, and the connection closed."""
    async with simulated() as engine:
        answer = await answer_to(engine, request_)
        assert answer.split(b" ", 2)[1] == status, answer[:200]
        assert b'"error"' in answer
        assert (await engine.get("/health")).status == 200


async def test_a_header_without_an_end_is_cut_off() -> None:
    """The engine reads no more than it must to know."""
    async with simulated() as engine, asyncio.timeout(10), connected(engine) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nx-a: ")
        with pytest.raises(ConnectionError):
            await flood(writer)
        assert (await engine.get("/health")).status == 200


async def flood(writer: asyncio.StreamWriter) -> None:
    """100 MB, unless stopped."""
    for _ in range(10_000):
        writer.write(b"a" * 10_000)
        await writer.drain()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":3}', b"\xff\xfe"])
async def test_bodies_that_cannot_be_read_are_400(body: bytes) -> None:
    """Never a traceback."""
    async with simulated() as engine, engine.session.post(f"{engine.url}/v1/completions", data=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_pipelined_requests_are_answered_in_order() -> None:
    """One after the other on one connection."""
    async with simulated("--time-to-first-token", "5ms", "--mode", "echo") as engine:
        requests = [post("/v1/completions", completion(prompt=f"p{number}")) for number in range(5)]
        last = post("/v1/completions", completion(prompt="last"), "connection: close\r\n")
        answer = await answer_to(engine, b"".join(requests) + last)
        places = [answer.index(f'"text":"{word}"'.encode()) for word in ("p0", "p1", "p2", "p3", "p4", "last")]
        assert places == sorted(places)
        assert (await engine.stats())["peak"] == 1


async def test_http_1_0_gets_a_body_that_ends_with_the_connection() -> None:
    """No chunks for a client that knows none."""
    async with simulated() as engine:
        answer = await answer_to(engine, post("/v1/completions", completion(stream=True), version="1.0"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert body.startswith(b"data: {")
        assert body.endswith(b"data: [DONE]\n\n")


async def test_head_has_no_body() -> None:
    """But the length that GET would have."""
    async with simulated() as engine, engine.session.head(f"{engine.url}/health") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
        assert answer.headers["content-length"] == "15"


async def test_expect_100_continue_is_answered() -> None:
    """Before the body is sent."""
    async with simulated() as engine, asyncio.timeout(5), connected(engine) as (reader, writer):
        request = post("/v1/completions", completion(), "expect: 100-continue\r\nconnection: close\r\n")
        head, _, body = request.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(body)
        assert b"HTTP/1.1 200 OK" in await reader.read()


async def test_a_client_that_does_not_read_stops_its_own_stream_only() -> None:
    """The engine writes no further than the buffers and does not grow; another client is served meanwhile."""
    async with simulated("--max-model-len", "10000000") as engine, connected(engine) as (reader, writer):
        writer.write(post("/v1/completions", completion(stream=True, max_tokens=50_000)))
        await engine.until(running=1)
        before = -1
        async with asyncio.timeout(10):
            while (now := (await engine.stats())["generatedTokens"]) != before:
                before = now
                await asyncio.sleep(0.1)
        assert 0 < before < 50_000
        assert (await engine.post("/v1/completions", completion())).status == 200
        async with asyncio.timeout(10):
            got = b""
            while b"[DONE]" not in got[-200:]:
                got += await reader.read(1 << 20)
        await engine.until(running=0, finished=2)


async def test_a_request_that_comes_byte_by_byte_is_understood() -> None:
    """The parser keeps what it has."""
    async with simulated("--mode", "echo") as engine, asyncio.timeout(20), connected(engine) as (reader, writer):
        for byte in post("/v1/completions", completion(), "connection: close\r\n"):
            writer.write(bytes([byte]))
            await writer.drain()
        assert b'"text":"one two three"' in await reader.read()


async def test_clients_that_leave_at_any_byte_leave_nothing_behind() -> None:
    """No slot stays busy and no connection open."""
    flags = ("--time-to-first-token", "20ms", "--inter-token-latency", "20ms", "--max-num-seqs", "500")
    async with simulated(*flags) as engine:
        whole = post("/v1/completions", completion(stream=True, max_tokens=50))
        for size in range(0, len(whole) + 1, 7):
            async with connected(engine) as (reader, writer):
                writer.write(whole[:size])
                await writer.drain()
        for size in range(1, 1500, 100):
            async with connected(engine) as (reader, writer):
                writer.write(whole)
                await reader.readexactly(size)
        stats = await engine.until(running=0, waiting=0)
        assert stats["cancelled"] == stats["total"] >= 15
