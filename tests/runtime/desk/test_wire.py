"""Gateways' talk on a connection: what is said arrives, what is newer is skipped, what is garbled is refused."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.frames import (
    Ask,
    FromAuthority,
    GiveBack,
    Granted,
    Leave,
    Part,
    Ping,
    Present,
    Refused,
    Row,
    ToAuthority,
    Vow,
    Waits,
)
from runtime.core.members import Member, View
from runtime.desk import wire
from runtime.desk.handshake import Hello, Meeting, Unwelcome, read_hello
from runtime.desk.wire import FollowerReader, Garbled

TEXT = st.text(max_size=8)
SECONDS = st.floats(0, 1e6, allow_nan=False)
LEFT = st.none() | SECONDS
MEMBER = st.builds(Member, TEXT, TEXT)
ASK = st.builds(Ask, TEXT, TEXT, TEXT, SECONDS, SECONDS, st.integers(0, 1 << 40), st.booleans(), st.integers(0, 9))
ROW = st.builds(Row, TEXT, MEMBER, TEXT, TEXT, SECONDS, LEFT)
ROWS = st.lists(ROW, max_size=3).map(tuple)
PART = st.builds(Part, TEXT, ROWS, st.lists(ASK, max_size=3).map(tuple), st.none() | ROWS)
VIEW = st.builds(View, st.lists(MEMBER, max_size=3).map(tuple), st.lists(MEMBER, max_size=2).map(tuple))
VOW = st.builds(Vow, SECONDS, SECONDS)
VOWS = st.lists(st.tuples(MEMBER, SECONDS), max_size=3).map(tuple)
PRESENT = st.builds(Present, st.integers(0, 1 << 50), VIEW, st.lists(PART, max_size=3).map(tuple), VOW, VOWS)
TO_AUTHORITY = st.one_of(
    ASK, PRESENT, VOW, st.builds(Leave, TEXT, TEXT), st.builds(GiveBack, TEXT, TEXT, LEFT, st.booleans())
)
PORT = st.integers(1, 65535)
TURN = st.integers(0, 1 << 50)
FROM_AUTHORITY = st.one_of(
    st.builds(Ping, SECONDS),
    st.builds(Waits, TURN, TEXT, st.integers(0, 1000)),
    st.builds(Refused, TURN, TEXT, TEXT, TEXT, LEFT),
    st.builds(Granted, TURN, SECONDS, TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(0, 9), TEXT, PORT, TEXT),
)


def heard(lines: list[bytes]) -> list[ToAuthority]:
    reader = FollowerReader()
    frames = [reader.read(*wire.parse(line)) for line in lines]
    return [frame for frame in frames if frame is not None]


@given(frame=TO_AUTHORITY)
def test_what_a_follower_says_arrives(frame: ToAuthority) -> None:
    """Any frame, through its line."""
    lines = list(wire.to_authority(frame))
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines)
    assert heard(lines) == [frame]


@given(frame=FROM_AUTHORITY)
def test_what_an_authority_says_arrives(frame: FromAuthority) -> None:
    """Any frame, through its line."""
    assert wire.read_from_authority(*wire.parse(wire.from_authority(frame))) == frame


def test_a_large_presentation_takes_several_lines() -> None:
    """None of them too long; together they are the same, model by model."""
    row = Row("n" * 20, Member("g" * 63, "b" * 12), "r" * 63, "l" * 80, 1.0)
    ask = Ask("r" * 128, "m" * 63, "c" * 64, 1.0, 2.0, 3, True, 0)
    parts = (
        Part("one", (row,) * 2500, (ask,) * 4500, (row,) * 3000),
        *(Part(f"m{index}", (row,), (ask,), ()) for index in range(900)),
    )
    told = Present(1, View((Member("a", "1"),)), parts, Vow(1.0, 2.0))
    lines = list(wire.to_authority(told))
    assert len(lines) > 10
    assert max(map(len, lines)) < wire.LONGEST
    (got,) = heard(lines)
    assert isinstance(got, Present)
    for part in parts:
        pieces = [piece for piece in got.parts if piece.model == part.model]
        assert tuple(row for piece in pieces for row in piece.leases) == part.leases
        assert tuple(ask for piece in pieces for ask in piece.tickets) == part.tickets
        assert tuple(row for piece in pieces for row in piece.sold or ()) == part.sold


def test_what_is_newer_is_skipped() -> None:
    """A kind that is not known, and values that a newer minor version adds."""
    assert FollowerReader().read("sing", ["la"]) is None
    assert wire.read_from_authority("sing", []) is None
    assert FollowerReader().read("vow", [1.0, 2.0, "more"]) == Vow(1.0, 2.0)
    assert wire.read_from_authority("ping", [1.0, {"more": 1}]) == Ping(1.0)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"[1]", b"nonsense", b'["ask"]', b'["vow", "x", 1]', b'["present", 1]']
)
def test_what_is_garbled_is_refused(text: bytes) -> None:
    """Told as such, whatever it is."""
    with pytest.raises(Garbled):
        FollowerReader().read(*wire.parse(text))


def test_what_an_authority_garbles_is_refused() -> None:
    """As above."""
    with pytest.raises(Garbled, match="granted"):
        wire.read_from_authority("granted", [1, 2])


# The handshake


def greeted(meeting: Meeting) -> Hello:
    """What the other one reads of it."""
    return read_hello(orjson.loads(orjson.dumps(meeting.hello.values())))


@pytest.mark.parametrize(("ours", "theirs", "fits"), [
    (b"", b"", True), (b"s" * 16, b"s" * 16, True), (b"s" * 16, b"t" * 16, False), (b"s" * 16, b"", False),
    (b"", b"s" * 16, False),
])  # fmt: skip
def test_both_prove_that_they_know_the_secret(ours: bytes, theirs: bytes, fits: bool) -> None:
    """In both directions; a proof says nothing about the secret and serves once."""
    us, them = Meeting(Member("a", "1"), ours), Meeting(Member("b", "1"), theirs)
    proof = them.proof("asked", greeted(us))
    if fits:
        us.check("asked", greeted(them), proof)
        them.check("called", greeted(us), us.proof("called", greeted(them)))
    else:
        with pytest.raises(Unwelcome, match="give all gateways the same secret file"):
            us.check("asked", greeted(them), proof)
    if ours:
        with pytest.raises(Unwelcome):
            us.check("asked", greeted(Meeting(Member("b", "1"), ours)), proof)  # another nonce
        with pytest.raises(Unwelcome):
            us.check("called", greeted(them), proof)  # another role


def test_another_major_version_is_told_in_words() -> None:
    """A newer minor one is understood."""
    nonce = "0" * 32
    with pytest.raises(
        Unwelcome, match=r"it speaks version 2\.0 of the gateways' talk, this one 1\.0; update the older"
    ):
        read_hello([2, 0, "a", "1", nonce])
    assert read_hello([1, 7, "a", "1", nonce, "more"]) == Hello(1, 7, Member("a", "1"), nonce)
    with pytest.raises(Garbled):
        read_hello([1, 0, "a", 1, nonce])
    with pytest.raises(Garbled):
        read_hello(["1"])
