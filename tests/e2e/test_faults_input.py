"""Bad input against a whole relume: each is a clear 4xx, costs bounded memory, disturbs nobody, and leaves no trace."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import psutil
import pytest
import pytest_asyncio

from tests.support.faults import Whole, faulty
from tests.support.raw_client import CHAT, RawClient, Reply, post
from tests.support.running import Running, simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("faults-input"),
]

MIB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relume(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """One warm model; the checks at its end (no traceback, exit code, no process left) are part of each test."""
    whole = Whole(tmp_path_factory.mktemp("input"), simulated(keepAlive="10m", options="startTime: 50ms"))
    async with faulty(whole) as one:
        assert (await one.chat()).status == 200
        yield one
        assert (await one.chat()).status == 200


@contextlib.asynccontextmanager
async def connection(relume: Running) -> AsyncIterator[RawClient]:
    """A connection to the data port that sends any bytes."""
    client = await RawClient.open(int(urlsplit(relume.gateway).port or 0))
    try:
        yield client
    finally:
        client.writer.transport.abort()


async def refused(relume: Running, data: bytes) -> Reply:
    """The answer to some bytes, which must be an error of the client's in OpenAI's form."""
    async with connection(relume) as client:
        reply = await client.ask(data)
    error = json.loads(reply.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["code"]
    assert b"Traceback" not in reply.body
    assert b".py" not in reply.body
    return reply


def memory(relume: Running) -> int:
    """Bytes that the relume process has in memory."""
    assert isinstance(relume.server, Whole)
    return psutil.Process(relume.server.pid).memory_info().rss


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x01\x02\x03\r\n\r\n", 400),
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET /v1/models HTTP/9.9\r\nHost: x\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\nHost: x\n\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS to a plain port
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            400,
        ),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"BREW /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"X-Filler: y\r\n" * 5000 + b"\r\n", 431),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n", 431),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
    ],
    ids=lambda value: value[:40].hex()[:24] if isinstance(value, bytes) else str(value),
)
async def test_malformed_http(relume: Running, data: bytes, status: int) -> None:
    """What is no request, or no unambiguous one, is refused by status and reason."""
    assert (await refused(relume, data)).status == status


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "empty_body"),
        (b"{", 400, "invalid_json"),
        (b'{"model": "echo"} trailing', 400, "invalid_json"),
        (b'{"model": "\xff\xfe", "messages": []}', 400, "invalid_json"),
        (b'{"model": "echo", "messages": "\xc3"}', 400, "invalid_json"),
        (b'{"model": "\\ud800"}', 400, "invalid_json"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "invalid_json"),
        (b'{"model": "echo", "x": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", 400, "invalid_json"),
        (b'{"model": "echo", "x": [' + b"[]," * 700_000 + b"[]]}", 400, "json_too_complex"),
        (b'{"model": "echo", "messages": [], "model": "other"}', 400, "duplicate_key"),
        (b'{"model": "echo", "messages": [], "mod\\u0065l": "other"}', 400, "duplicate_key"),
        (b'{"messages": []}', 400, "missing_model"),
        (b'{"model": null}', 400, "missing_model"),
        (b'{"model": ["echo"]}', 400, "invalid_model"),
        (b'{"model": ""}', 400, "invalid_model"),
        (b'{"model": "' + b"x" * 300 + b'"}', 400, "invalid_model"),
        (b'{"model": "echo", "stream": "yes"}', 400, "invalid_stream"),
        (b'"model"', 400, "invalid_json"),
        (b'{"model": "nobody"}', 404, "model_not_found"),
        (b'{"model": "../../etc/passwd"}', 404, "model_not_found"),
        (b'{"model": "echo\\u0000"}', 404, "model_not_found"),
    ],
    ids=lambda value: str(value[:30]) if isinstance(value, bytes) else str(value),
)
async def test_bad_bodies(relume: Running, body: bytes, status: int, code: str) -> None:
    """A body that names no model, two, or none that is declared, is refused with a code that says which."""
    reply = await refused(relume, post(body))
    assert reply.status == status
    assert json.loads(reply.body)["error"]["code"] == code
    assert reply.headers["x-should-retry"] == "false"


async def test_a_body_of_100_mb(relume: Running) -> None:
    """413 before or while it is sent, declared or in chunks, ten at a time; memory grows by less than 64 MiB."""
    before = memory(relume)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

    async def declared() -> None:
        async with connection(relume) as client:
            await client.send(head + b"Content-Length: 104857600\r\n\r\n")
            await _check_too_large(client)

    async def sent() -> None:
        async with connection(relume) as client:
            sending = asyncio.create_task(_send_much(client, head + b"Content-Length: 104857600\r\n\r\n", bytes(MIB)))
            await _check_too_large(client)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def chunked() -> None:
        async with connection(relume) as client:
            chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
            sending = asyncio.create_task(_send_much(client, head + b"Transfer-Encoding: chunked\r\n\r\n", chunk))
            await _check_too_large(client)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    highest = before
    for _ in range(3):
        await asyncio.gather(*(declared() for _ in range(10)), *(sent() for _ in range(10)))
        highest = max(highest, memory(relume))
    await chunked()
    highest = max(highest, memory(relume))
    assert highest - before < 64 * MIB, f"{(highest - before) / MIB:.0f} MiB"
    assert (await relume.chat()).status == 200


async def _check_too_large(client: RawClient) -> None:
    reply = await client.reply()
    assert reply.status == 413
    assert json.loads(reply.body)["error"]["code"] == "request_too_large"


async def _send_much(client: RawClient, head: bytes, piece: bytes) -> None:
    await client.send(head)
    for _ in range(100):
        await client.send(piece)


async def test_slow_loris(relume: Running) -> None:
    """500 connections with half a head, or half a body, that trickle on: others are served as before, memory stays, and
    each is told 408 in the end."""
    before = memory(relume)
    halves = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX: ", post(CHAT)[:-20])
    slow = [await RawClient.open(int(urlsplit(relume.gateway).port or 0)) for _ in range(500)]
    try:
        for number, client in enumerate(slow):
            await client.send(halves[number % 2])
        for _ in range(20):
            for client in slow[::2]:
                client.writer.write(b"y")
            assert (await asyncio.wait_for(relume.chat(), 10)).status == 200
        assert memory(relume) - before < 64 * MIB
        reply = await asyncio.wait_for(slow[0].reply(), 20)
        assert reply.status == 408
        assert json.loads(reply.body)["error"]["code"] == "request_timeout"
    finally:
        for client in slow:
            client.writer.transport.abort()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("kind: Model", "apiVersion"),
        ("just text", ""),
        ("{", ""),
        ("a: &a [*a, *a]", ""),
        (simulated().replace("scaling", "scalling"), "spec.scalling"),
        (simulated(maxReplicas="many"), "spec.scaling.maxReplicas"),
        (simulated(keepAlive="soon"), "spec.scaling.keepAlive"),
        (simulated(options="startTimes: 1s"), "spec.engine.options.startTimes"),
        (simulated("Not_A_Name"), "metadata.name"),
        (simulated().replace("relume.dev/v1alpha1", "relume.dev/v9"), "apiVersion"),
        (simulated(minReplicas=5, maxReplicas=2), "spec.scaling"),
    ],
    ids=lambda value: str(value)[-30:].replace("\n", " "),
)
async def test_bad_declarations(relume: Running, text: str, path: str) -> None:
    """A declaration with an unknown field, a wrong type or a wrong value is refused whole, as problem+json that says
    where and what to do."""
    headers = {"Content-Type": "application/yaml"}
    async with relume.session.post(f"{relume.admin}/models", data=text.encode(), headers=headers) as answer:
        said = await answer.text()
        assert answer.status in (400, 422), said
        assert answer.content_type == "application/problem+json"
        assert path in said
        assert "Traceback" not in said
    async with relume.session.get(f"{relume.admin}/models") as answer:
        assert [item["metadata"]["name"] for item in (await answer.json())["items"]] == ["echo"]


async def test_bad_requests_to_the_admin_port(relume: Running) -> None:
    """What the admin port does not know is 4xx in problem+json: paths, methods, parameters, too large bodies."""
    session, admin = relume.session, relume.admin
    for method, url, body, status in (
        ("GET", f"{admin}/nothing", b"", 404),
        ("GET", f"{admin}/models/none", b"", 404),
        ("DELETE", f"{admin}/models", b"", 405),
        ("GET", f"{admin}/events?limit=many", b"", 400),
        ("GET", f"{admin}/events?topic=../../etc", b"", 400),
        ("PUT", f"{admin}/models/echo/scale", b"\xff\xfe", 422),
        ("POST", f"{admin}/events", b"[" * 100_000, 400),
        ("POST", f"{admin}/models", b" " * (100 * MIB), 413),  # told by its length
    ):
        headers = {"Content-Type": "application/json"} if body else {}
        async with session.request(method, url, data=io.BytesIO(body) if body else None, headers=headers) as answer:
            said = await answer.text()
            assert answer.status == status, (method, url, answer.status, said)
            assert answer.content_type == "application/problem+json"
            assert "Traceback" not in said
