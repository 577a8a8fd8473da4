"""Heads of answers: our reading against a plain one, over generated heads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.gateway.chunks import BadFraming, ChunkedBody, CloseBody, LengthBody, NoBody
from runtime.gateway.response_head import parse_response_head

_NAMES = st.sampled_from(["Server", "X-A", "Set-Cookie", "Content-Type", "Keep-Alive", "X-Relume-Replica", "Upgrade"])
_VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
_HOPS = {"keep-alive", "upgrade", "x-relume-replica"}


@settings(deadline=None)
@given(st.integers(200, 599), st.lists(st.tuples(_NAMES, _VALUES), max_size=8), st.booleans())
def test_headers_pass_in_their_order(status: int, headers: list[tuple[str, str]], to_head: bool) -> None:
    """End-to-end headers come out as they went in, hop-by-hop ones do not, a second Content-Type is refused."""
    raw = f"HTTP/1.1 {status} Reason\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    kept = [f"{name}: {value}\r\n".encode() for name, value in headers if name.lower() not in _HOPS]
    if sum(name == "Content-Type" for name, _ in headers) > 1:
        with pytest.raises(BadFraming):
            parse_response_head(raw.encode(), 100, to_head)
        return
    head = parse_response_head(raw.encode(), 100, to_head)
    assert head.lines == kept
    assert head.status == status
    assert isinstance(head.body, NoBody if to_head or status in {204, 304} else CloseBody)


@pytest.mark.parametrize(
    ("lines", "body", "keep"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", LengthBody, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", NoBody, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n", ChunkedBody, True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n", LengthBody, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n", LengthBody, False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n", LengthBody, True),
        (b"HTTP/1.1 200\r\n", CloseBody, False),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", NoBody, True),
    ],
)
def test_framing_of_answers(lines: bytes, body: type, keep: bool) -> None:
    """How an answer ends, and whether its connection lives on."""
    head = parse_response_head(lines + b"\r\n", 100, False)
    assert type(head.body) is body
    assert head.keep_alive is keep
