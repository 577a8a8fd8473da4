"""Peers: who is asked, what is served to whom, and that a peer is a shortcut and never a truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from coldstart.adapters.http_source import HttpSource
from coldstart.adapters.peer_server import PeerServer
from coldstart.adapters.peer_source import Peers, PeerSource
from coldstart.cache.layout import Layout
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import SourceRefused, Throttled
from coldstart.core.cache.peers import Peer, choose
from coldstart.core.cache.policy import RoomPolicy
from events.clock import SystemClock
from tests.coldstart.adapters.conftest import made
from tests.support.flaky_origin import Origin, served
from tests.support.web_thread import served as served_in_thread
from tests.support.weight_origins import CHUNK, QUICK, sha256

CONTENT = made(9, 6 * CHUNK + 3)
DIGEST = sha256(CONTENT)
TOKEN = "hush-hush"


@contextmanager
def serving(layout: Layout, streams: int = 64) -> Iterator[str]:
    """A peer's agent's port."""
    app = web.Application()
    PeerServer(layout, TOKEN, streams).add_to(app)
    with served_in_thread(app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Where the content comes from."""
    with served(Origin(CONTENT)) as running:
        running.vouch = True
        yield running


def cache(folder: Path) -> WeightCache:
    return WeightCache(folder, QUICK, RoomPolicy(), SystemClock())


@pytest.fixture
def peer(tmp_path: Path, origin: Origin) -> Iterator[tuple[str, Layout]]:
    """Another node that has it."""
    there = cache(tmp_path / "peer")
    there.fetch(Wanted(origin.url), HttpSource(origin.url, {}, QUICK, SystemClock()), Progress()).use.end()
    origin.sent = 0
    with serving(there.layout) as address:
        yield address, there.layout


def fetched(folder: Path, origin: Origin, *peers: str, token: str = TOKEN) -> tuple[Got, PeerSource]:
    before = HttpSource(origin.url, {}, QUICK, SystemClock())
    source = PeerSource(before, Peers(lambda _: peers, token), QUICK, SystemClock())
    got = cache(folder).fetch(Wanted(origin.url), source, Progress())
    got.use.end()
    return got, source


def test_bytes_come_from_the_peer(tmp_path: Path, origin: Origin, peer: tuple[str, Layout]) -> None:
    """The origin is asked what there is, and gives nothing."""
    got, source = fetched(tmp_path / "own", origin, peer[0])
    assert got.path.read_bytes() == CONTENT
    assert (origin.sent, source.given) == (0, len(CONTENT))


@pytest.mark.parametrize("wrong", ["token", "gone", "dead", "busy"])
def test_a_peer_that_cannot_is_passed_over(
    tmp_path: Path, origin: Origin, peer: tuple[str, Layout], wrong: str
) -> None:
    """Another token, a blob that was evicted, nobody there, too many streams: the origin gives it."""
    address, layout = peer
    if wrong == "gone":
        layout.discard(layout.blob(DIGEST))
    if wrong == "busy":
        with serving(layout, streams=0) as busy:
            got, source = fetched(tmp_path / "own", origin, busy)
    else:
        place = "http://127.0.0.1:1" if wrong == "dead" else address
        got, source = fetched(tmp_path / "own", origin, place, token="another" if wrong == "token" else TOKEN)
    assert got.path.read_bytes() == CONTENT
    assert (source.given, origin.sent) == (0, len(CONTENT))


def test_a_peer_that_lies_is_found_out(tmp_path: Path, origin: Origin, peer: tuple[str, Layout]) -> None:
    """Its bytes have another digest: the second try asks the origin alone."""
    blob = peer[1].blob(DIGEST)
    blob.chmod(0o644)
    blob.write_bytes(bytes(len(CONTENT)))
    blob.chmod(0o444)
    got, source = fetched(tmp_path / "own", origin, peer[0])
    assert got.path.read_bytes() == CONTENT
    assert source.given >= len(CONTENT)
    assert origin.sent == len(CONTENT)


def test_the_second_peer_is_asked_when_the_first_is_gone(
    tmp_path: Path, origin: Origin, peer: tuple[str, Layout]
) -> None:
    """In the order given; none of it comes from the origin."""
    got, source = fetched(tmp_path / "own", origin, "http://127.0.0.1:1", peer[0])
    assert got.path.read_bytes() == CONTENT
    assert source.given == len(CONTENT)
    assert origin.sent == 0


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        (f"/blobs/sha256/{DIGEST[7:]}", "", 401), (f"/blobs/sha256/{DIGEST[7:]}", "Bearer no", 401),
        (f"/blobs/sha256/{DIGEST[7:]}", f"Basic {TOKEN}", 401), ("/blobs/sha256/..%2Flock", f"Bearer {TOKEN}", 400),
        ("/blobs/sha256/abc", f"Bearer {TOKEN}", 400), (f"/blobs/sha256/{'0' * 64}", f"Bearer {TOKEN}", 404),
        (f"/blobs/sha256/{DIGEST[7:]}", f"Bearer {TOKEN}", 200),
    ],
)  # fmt: skip
def test_who_is_served_what(peer: tuple[str, Layout], path: str, token: str, status: int) -> None:
    """Those with the token, blobs by their digest, nothing else of the disk."""
    headers = {"Authorization": token} if token else {}
    source = HttpSource(peer[0] + path, headers, QUICK, SystemClock())
    if status == 200:
        (found,) = source.describe().files
        assert (found.bytes, found.digest, found.ranges) == (len(CONTENT), DIGEST, True)
        return
    with pytest.raises(SourceRefused, match=str(status)):
        source.describe()


def test_a_busy_peer_says_when_to_come_back(peer: tuple[str, Layout]) -> None:
    """503 with Retry-After."""
    with serving(peer[1], streams=0) as address:
        source = HttpSource(
            f"{address}/blobs/sha256/{DIGEST[7:]}", {"Authorization": f"Bearer {TOKEN}"}, QUICK, SystemClock()
        )
        with pytest.raises(Throttled) as told:
            source.describe()
    assert told.value.retry_after == 1.0


def test_a_server_without_a_token_is_refused() -> None:
    """What a node has is not for all."""
    with pytest.raises(ValueError, match="token"):
        PeerServer(Layout(Path("/nowhere")), "")


PEERS = st.lists(
    st.builds(
        Peer, st.sampled_from("abcdefgh"), st.just("http://x"), st.integers(0, 2), st.none() | st.integers(0, 80)
    ),
    max_size=8, unique_by=lambda peer: peer.name,
)  # fmt: skip


@given(PEERS, st.sampled_from("abc"))
def test_the_nearest_then_the_least_busy(peers: list[Peer], own: str) -> None:
    """Never oneself, nor who is full; the unknown after the known; whatever the order in which they are given."""
    chosen = choose(DIGEST, peers, own, 64)
    assert {peer.name for peer in chosen} == {
        peer.name for peer in peers if peer.name != own and (peer.streams is None or peer.streams < 64)
    }
    ranks = [(peer.distance, peer.streams is None, peer.streams or 0) for peer in chosen]
    assert ranks == sorted(ranks)
    assert choose(DIGEST, reversed(peers), own, 64) == chosen


def test_equals_are_spread_over_digests() -> None:
    """The blobs of one model are not all asked of one peer."""
    peers = [Peer(name, "http://x") for name in "abcd"]
    firsts = {choose(f"sha256:{number:064x}", peers, "", 64)[0].name for number in range(40)}
    assert firsts == set("abcd")
