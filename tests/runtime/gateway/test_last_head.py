"""Heads that come again on a connection: recalled only when nothing but the digits of the length differs."""

from __future__ import annotations

import pytest

from runtime.gateway.errors import Refused
from runtime.gateway.last_head import LastHead
from runtime.gateway.request_head import parse_request_head
from runtime.gateway.routing import find_target
from runtime.gateway.settings import GatewaySettings

SETTINGS = GatewaySettings(port=0)


def head(length: str = "12", rest: str = "Content-Type: application/json\r\n", name: str = "Content-Length") -> bytes:
    return f"POST /v1/completions HTTP/1.1\r\nHost: a\r\n{name}: {length}\r\n{rest}\r\n".encode("latin-1")


def remembered(raw: bytes) -> LastHead:
    """A connection on which `raw` came last."""
    last = LastHead()
    parsed = parse_request_head(raw, SETTINGS)
    last.remember(raw, parsed, find_target(parsed))
    return last


@pytest.mark.parametrize("length", ["12", "0", "7", "123456"])
def test_another_length_is_the_same_head(length: str) -> None:
    """What is recalled is what parsing would have given."""
    found = remembered(head()).recall(head(length), SETTINGS)
    assert found is not None
    fresh = parse_request_head(head(length), SETTINGS)
    assert (found[0].length, found[0].target, found[0].keep_alive, found[0].chunked) == (
        fresh.length, fresh.target, fresh.keep_alive, fresh.chunked,
    )  # fmt: skip
    assert found[0].forwarded() == fresh.forwarded()


@pytest.mark.parametrize("raw", [
    head(rest="Content-Type: application/jsoN\r\n"),
    head(rest=""),
    head(rest="Content-Type: application/json\r\nContent-Length: 12\r\n"),
    head(rest="Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"),
    head(name="Content-Length "),
    head(name="content-length"),
    head(length="1 2"),
    head(length="+12"),
    head(length="12\r\nX: y"),
    head(length="1" * 19),
    head(length=str(SETTINGS.max_body_bytes + 1)),
])  # fmt: skip
def test_anything_else_is_parsed(raw: bytes) -> None:
    """Every other difference goes to the parser and its rules."""
    assert remembered(head()).recall(raw, SETTINGS) is None


def test_a_head_without_a_length() -> None:
    """Is recalled when it comes again whole, and only then."""
    raw = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    last = remembered(raw)
    assert last.recall(raw, SETTINGS) is not None
    assert last.recall(raw.replace(b"a\r", b"b\r"), SETTINGS) is None
    assert last.recall(head(), SETTINGS) is None


def test_nothing_is_recalled_at_first() -> None:
    """A refused head is not remembered, so it is refused again."""
    last = LastHead()
    with pytest.raises(Refused):
        parse_request_head(head(length="x"), SETTINGS)
    assert last.recall(head(length="x"), SETTINGS) is None
