"""Where a body ends, whatever the pieces it comes in."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.gateway.chunks import MORE, BadFraming, ChunkedBody, CloseBody, LengthBody, NoBody

_CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
_EXTENSIONS = st.sampled_from([b"", b";a", b" ;a=b", b';a="b c"'])
_TRAILERS = st.lists(st.sampled_from([b"X: 1\r\n", b"Content-Length: 5\r\n", b"Y:\r\n"]), max_size=3)


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """(a chunked body, its payload)."""
    chunks = draw(_CHUNKS)
    wire = b"".join(b"%x%b\r\n%b\r\n" % (len(part), draw(_EXTENSIONS), part) for part in chunks)
    return wire + b"0\r\n" + b"".join(draw(_TRAILERS)) + b"\r\n", b"".join(chunks)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@settings(deadline=None)
@given(chunked(), st.lists(st.integers(0, 500), max_size=10), st.binary(max_size=10))
def test_the_end_is_found_in_any_pieces(body: tuple[bytes, bytes], cuts: list[int], behind: bytes) -> None:
    """The offset of the end is exact, the payload is whole, and what follows is left alone."""
    wire, payload = body
    scanner = ChunkedBody()
    into = bytearray()
    consumed = 0
    for piece in _pieces(wire + behind, cuts):
        end = scanner.feed(piece, into)
        if end != MORE:
            consumed += end
            break
        consumed += len(piece)
    assert consumed == len(wire)
    assert into == payload


class _Ends:
    def __init__(self) -> None:
        self.complete = False

    def on_message_complete(self) -> None:
        self.complete = True


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"5", b"0", b"\r\n", b"\n", b"hello", b";x", b"X: 1", b"a", b"g", b"-"]), max_size=14))
def test_accepts_nothing_that_llhttp_refuses(words: list[bytes]) -> None:
    """A second implementation: a body that ends here also ends there, at the same place or by the same bytes."""
    wire = b"".join(words)
    try:
        end = ChunkedBody().feed(wire)
    except BadFraming:
        return
    if end == MORE:
        return
    ends = _Ends()
    parser = httptools.HttpRequestParser(ends)
    parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    parser.feed_data(wire[:end])
    assert ends.complete


@pytest.mark.parametrize(
    "wire",
    [
        b"\r\n", b"x\r\n", b"0x5\r\n", b"+5\r\n", b"1_0\r\n", b" 5\r\n", b"5\n", b"5\r\nhelloX", b"5\r\nhello\n",
        b"0\r\nX\r\n", b"0\r\nX : 1\r\n", b"5;" + b"a" * 600 + b"\r\n", b"1" * 20 + b"\r\n",
        b"0\r\n" + b"X: 1\r\n" * 3000, b"5;a\x00\r\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 1000000])
def test_bad_framing(wire: bytes, step: int) -> None:
    """Refused, also when it comes byte by byte."""
    with pytest.raises(BadFraming):
        _feed_all(wire, step)


def _feed_all(wire: bytes, step: int) -> None:
    scanner = ChunkedBody()
    for at in range(0, len(wire), step):
        scanner.feed(wire[at : at + step])


def test_many_long_extensions_are_refused() -> None:
    """Extensions are bounded in sum, so a body cannot be mostly framing for ever."""
    one = b"1;" + b"a" * 200 + b"\r\nx\r\n"
    with pytest.raises(BadFraming):
        _feed_all(one * 1000, len(one))


def test_other_bodies() -> None:
    """By length, by close, and none."""
    body = LengthBody(5)
    assert [body.feed(b"abc"), body.left, body.feed(b"dexx")] == [MORE, 2, 2]
    assert CloseBody().feed(b"abc") == MORE
    assert NoBody().feed(b"abc") == 0


@settings(deadline=None)
@given(chunked(), st.integers(0, 500))
def test_between_chunks(body: tuple[bytes, bytes], cut: int) -> None:
    """Wherever it says so, a further chunk written there keeps the framing right."""
    wire, _ = body
    scanner = ChunkedBody()
    upto = cut % len(wire)
    scanner.feed(wire[:upto])
    if scanner.between_chunks:
        rest = ChunkedBody()
        assert rest.feed(wire[:upto] + b"3\r\nxyz\r\n" + wire[upto:]) == len(wire) + 8
