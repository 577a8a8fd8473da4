"""Request smuggling: bytes whose end two parsers could see at different places; at most one request goes through."""

from __future__ import annotations

import pytest

from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, post
from tests.support.raw_engine import RawEngine, always, answer
from tests.support.scripted_slots import ScriptedSlots

_START = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n"
_EVIL = b'POST /v1/evil HTTP/1.1\r\nHost: t\r\nContent-Length: 16\r\n\r\n{"model":"echo"}'
_BODY = b'{"model":"echo"}'
_CHUNKS = b"10\r\n" + _BODY + b"\r\n0\r\n\r\n"


def _te(coding: bytes, more: bytes = b"") -> bytes:
    return _START + b"Transfer-Encoding: " + coding + b"\r\n" + more + b"\r\n" + _CHUNKS + _EVIL


def _cl(lines: bytes) -> bytes:
    return _START + lines + b"\r\n" + _BODY + _EVIL


REFUSED = {
    "CL and TE": _te(b"chunked", b"Content-Length: 4\r\n"),
    "TE and CL": _START + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + _CHUNKS + _EVIL,
    "two CL": _cl(b"Content-Length: 16\r\nContent-Length: 0\r\n"),
    "two equal CL": _cl(b"Content-Length: 16\r\nContent-Length: 16\r\n"),
    "CL list": _cl(b"Content-Length: 16, 16\r\n"),
    "CL with plus": _cl(b"Content-Length: +16\r\n"),
    "CL in hex": _cl(b"Content-Length: 0x10\r\n"),
    "CL negative": _cl(b"Content-Length: -1\r\n"),
    "CL empty": _cl(b"Content-Length: \r\n"),
    "CL huge": _cl(b"Content-Length: 18446744073709551632\r\n"),
    "CL with space": _cl(b"Content-Length: 1 6\r\n"),
    "space before colon": _cl(b"Content-Length : 16\r\n"),
    "tab before colon": _te(b"chunked").replace(b"Encoding:", b"Encoding\t:"),
    "TE identity": _te(b"identity"),
    "TE xchunked": _te(b"xchunked"),
    "TE gzip, chunked": _te(b"gzip, chunked"),
    "TE chunked, identity": _te(b"chunked, identity"),
    "TE twice": _te(b"chunked", b"Transfer-Encoding: identity\r\n"),
    "TE chunked twice": _te(b"chunked", b"Transfer-Encoding: chunked\r\n"),
    "TE quoted": _te(b'"chunked"'),
    "TE with vertical tab": _te(b"\x0bchunked"),
    "TE with NUL": _te(b"chunked\x00"),
    "TE folded": _te(b"\r\n chunked"),
    "TE in 1.0": _te(b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "folded header": _cl(b"X: a\r\n b\r\nContent-Length: 16\r\n"),
    "bare LF": _cl(b"X: a\nContent-Length: 16\r\n"),
    "bare CR": _cl(b"X: a\rContent-Length: 16\r\n"),
    "only LF": _cl(b"Content-Length: 16\r\n").replace(b"\r\n", b"\n"),
    "NUL in a value": _cl(b"X: a\x00b\r\nContent-Length: 16\r\n"),
    "NUL in the path": _cl(b"Content-Length: 16\r\n").replace(b"/v1/completions", b"/v1/comp\x00"),
    "header without name": _cl(b": x\r\nContent-Length: 16\r\n"),
    "header without colon": _cl(b"Content-Length\r\n"),
    "first header folded": _START.replace(b"\r\nHost", b"\r\n Host") + b"Content-Length: 16\r\n\r\n" + _BODY + _EVIL,
    "two hosts": _cl(b"Host: u\r\nContent-Length: 16\r\n"),
    "no host": _cl(b"Content-Length: 16\r\n").replace(b"Host: t\r\n", b"", 1),
    "bad chunk size": _te(b"chunked").replace(b"10\r\n", b"0x10\r\n"),
    "negative chunk size": _te(b"chunked").replace(b"10\r\n", b"-10\r\n"),
    "huge chunk size": _te(b"chunked").replace(b"10\r\n", b"10000000000000010\r\n"),
    "chunk ends with LF": _te(b"chunked").replace(b"10\r\n", b"10\n"),
    "chunk without its CRLF": _te(b"chunked").replace(b"}\r\n0", b"}0"),
    "chunk longer than said": _te(b"chunked").replace(b"10\r\n", b"f\r\n"),
    "chunk extension with CR": _te(b"chunked").replace(b"10\r\n", b"10;a\rb\r\n"),
    "long chunk extension": _te(b"chunked").replace(b"10\r\n", b"10;" + b"a" * 1000 + b"\r\n"),
    "bad trailer": _te(b"chunked").replace(b"0\r\n\r\n", b"0\r\nContent-Length : 1\r\n\r\n"),
    "trailer with LF": _te(b"chunked").replace(b"0\r\n\r\n", b"0\r\nX: 1\n\r\n\r\n"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _EVIL,
    "HTTP/0.9": b"GET /v1/models\r\n\r\n" + _EVIL,
    "HTTP/1.2": _cl(b"Content-Length: 16\r\n").replace(b"HTTP/1.1", b"HTTP/1.2", 1),
    "unknown method": _cl(b"Content-Length: 16\r\n").replace(b"POST", b"FROB", 1),
    "lower case method": _cl(b"Content-Length: 16\r\n").replace(b"POST", b"post", 1),
    "space in the path": _cl(b"Content-Length: 16\r\n").replace(b"/v1/comp", b"/v1/ comp", 1),
    "TLS on the plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}

REFUSED_ALONE = {
    "dot segments": post(_BODY, b"/v1/../admin"),
    "escaped dot segments": post(_BODY, b"/v1/%2e%2E/admin"),
    "backslash": post(_BODY, b"/v1/..\\admin"),
    "escaped NUL": post(_BODY, b"/v1/a%00"),
    "bad escape": post(_BODY, b"/v1/%zz"),
    "fragment": post(_BODY, b"/v1/a#b"),
    "foreign scheme": post(_BODY, b"ftp://host/v1/a"),
    "user info": post(_BODY, b"http://a@b/v1/a"),
    "no path": post(_BODY, b"v1/a"),
    "CONNECT": b"CONNECT engine:80 HTTP/1.1\r\nHost: t\r\n\r\n",
    "OPTIONS *": b"OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n",
    "websocket": b"GET /v1/realtime HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n",
}


@pytest.mark.parametrize("wire", [*REFUSED.values(), *REFUSED_ALONE.values()], ids=[*REFUSED, *REFUSED_ALONE])
async def test_ambiguous_requests_are_refused(gateways: Gateways, wire: bytes) -> None:
    """A 4xx or 5xx in OpenAI's form, the connection closed, and nothing of it reaches an engine."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        reply = await client.ask(wire)
        assert 400 <= reply.status <= 505
        assert reply.body.startswith(b'{"error":{"message":"')
        assert reply.headers["connection"] == "close"
        assert reply.headers["x-should-retry"] == "false"
        assert await client.at_end()
        assert not slots.tickets
        assert not engine.requests


ONE_REQUEST = {
    "shorter CL": (_START + b"Content-Length: 16\r\n\r\n" + _BODY + b"GET /x", 1),
    "empty line before": (b"\r\n" + post(_BODY), 1),
    "chunks in capitals": (_te(b"CHUNKED"), 2),
    "chunk size with zeros": (_te(b"chunked").replace(b"10\r\n", b"0010\r\n"), 2),
    "chunk with extension": (_te(b"chunked").replace(b"10\r\n", b'10;a="b;c"\r\n'), 2),
    "trailer that looks like framing": (_te(b"chunked").replace(b"0\r\n\r\n", b"0\r\nContent-Length: 99\r\n\r\n"), 2),
    "h2c upgrade": (post(_BODY, headers=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"), 1),
    "hop-by-hop length": (post(_BODY, headers=b"Connection: Content-Length, Host\r\n"), 1),
}


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (REFUSED["TLS on the plain port"], 400),
        (b"NONSENSE\r\n\r\n", 400),
        (b"\x00\x01 / HTTP/1.1\r\n\r\n", 400),
        (REFUSED["unknown method"], 501),
    ],
)
async def test_what_is_no_http_is_a_bad_request(gateways: Gateways, wire: bytes, status: int) -> None:
    """501 is for methods that we do not know, not for bytes that are no method."""
    client = await gateways.client(await gateways.start(ScriptedSlots([])))
    assert (await client.ask(wire)).status == status


@pytest.mark.parametrize(("wire", "requests"), ONE_REQUEST.values(), ids=ONE_REQUEST.keys())
async def test_unusual_requests_are_framed_once(gateways: Gateways, wire: bytes, requests: int) -> None:
    """Odd but lawful requests reach the engine in a plain form: one Content-Length, a whole body, no more."""
    async with RawEngine(always(answer())) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        await client.send(wire)
        for _ in range(requests):
            assert (await client.reply()).status == 200
        assert len(engine.requests) == requests
        for request in engine.requests:
            head, _, body = request.partition(b"\r\n\r\n")
            assert body == _BODY
            assert (head.lower() + b"\r\n").count(b"\r\ncontent-length: 16\r\n") == 1
            assert head.lower().count(b"length") == 1
            assert b"transfer-encoding" not in head.lower()
            assert b"upgrade" not in head.lower()


async def test_a_refused_method_does_not_end_the_connection(gateways: Gateways) -> None:
    """What is well framed but wrong is answered, and the next request on the connection is served."""
    async with RawEngine(always(answer())) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for wire, status in (
            (b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n", 405),
            (b"DELETE /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n", 405),
            (post(CHAT, b"/v2/models/echo/load"), 404),
            (post(CHAT, b"/admin"), 404),
            (post(b"{"), 400),
            (post(b""), 400),
            (post(b'{"model":"nobody"}'), 404),
            (post(CHAT, headers=b"Content-Encoding: gzip\r\n"), 415),
            (post(CHAT, headers=b"x-relume-timeout: soon\r\n"), 400),
            (post(CHAT, headers=b"x-relume-timeout: 0s\r\n"), 400),
            (post(CHAT), 200),
        ):
            assert (await client.ask(wire)).status == status
