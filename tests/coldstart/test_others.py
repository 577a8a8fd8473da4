"""What agents of other nodes tell: who has what, and who goes first where several fetch the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.others import AVOIDED, SILENT, STALL, UNTOLD, Others
from events.types.caches import CachedWeights, CacheObserved, WeightsFetching
from events.units import Instant

NOW = Instant(1000.0)
SOURCE = "hf://org/name@main"
DIGEST = f"sha256:{'1' * 64}"


def state(node: str, *, has: bool = False, done: int | None = None, peer: str | None = None) -> CacheObserved:
    """What a node tells: it has the weights, or so much of them, or neither."""
    contents = (CachedWeights(source=SOURCE, digest=DIGEST, bytes=9),) if has else ()
    fetching = () if done is None else (WeightsFetching(source=SOURCE, bytes=9, done=done),)
    address = f"http://{node}:1" if peer is None else peer
    return CacheObserved(
        node=node, used_bytes=0, capacity_bytes=9, contents=contents, fetching=fetching, peer=address
    )  # fmt: skip


def at(seconds: float) -> Instant:
    return Instant(NOW + seconds)


def test_who_has_them_is_asked() -> None:
    """By the digest or by the source; nobody else, not oneself, and not who serves nothing."""
    others = Others("a")
    for one in (state("a", has=True), state("b", has=True), state("c"), state("d", has=True, peer="")):
        others.told(one, NOW)
    assert others.holders(SOURCE, "sha256:other", NOW) == ("http://b:1",)
    assert others.holders("https://elsewhere", DIGEST, NOW) == ("http://b:1",)
    assert others.holders("https://elsewhere", "sha256:other", NOW) == ()


def test_a_fetch_that_ended_is_known_before_the_state_says_so() -> None:
    """News come at once, states once a second."""
    others = Others("a")
    others.told(state("b"), NOW)
    others.started("b", SOURCE, NOW, NOW)
    others.ended("b", SOURCE, DIGEST)
    assert others.holders(SOURCE, DIGEST, NOW) == ("http://b:1",)


def test_a_peer_that_was_of_no_use_rests() -> None:
    """It is asked again after a while; one that is silent for minutes is not."""
    others = Others("a")
    others.told(state("b", has=True), NOW)
    others.lost("http://b:1", NOW)
    assert others.holders(SOURCE, DIGEST, at(AVOIDED - 1)) == ()
    assert others.holders(SOURCE, DIGEST, at(AVOIDED)) == ("http://b:1",)
    assert others.holders(SOURCE, DIGEST, at(SILENT)) == ()
    assert not others.alone(at(SILENT - 1))
    assert others.alone(at(SILENT))


def test_the_earlier_goes_first() -> None:
    """By the times in their words; who has not said where it is cannot be read from, and is not waited for."""
    others = Others("b")
    others.told(state("a"), NOW)
    others.told(state("c"), NOW)
    others.told(state("d", peer=""), NOW)
    others.started("b", SOURCE, at(0.2), NOW)
    others.started("c", SOURCE, at(0.3), NOW)
    others.started("d", SOURCE, at(0.0), NOW)
    assert others.ahead(SOURCE, NOW) is None
    others.started("a", SOURCE, at(0.1), NOW)
    ahead = others.ahead(SOURCE, NOW)
    assert ahead is not None
    assert ahead.node == "a"


def test_who_gets_on_no_more_is_waited_for_no_more() -> None:
    """Ten seconds without a byte; each byte begins them anew."""
    others = Others("b")
    others.told(state("a"), NOW)
    others.started("a", SOURCE, NOW, NOW)
    others.started("b", SOURCE, at(1.0), at(1.0))
    others.told(state("a", done=3), at(8.0))
    assert others.ahead(SOURCE, at(8.0 + STALL - 1)) is not None
    others.told(state("a", done=3), at(8.0 + STALL))
    assert others.ahead(SOURCE, at(8.0 + STALL)) is None


def test_who_failed_without_our_hearing_is_told_by_its_state() -> None:
    """A state that does not name the fetch any more, some seconds after its start; one from before it not."""
    others = Others("b")
    others.told(state("a"), NOW)
    others.started("a", SOURCE, NOW, NOW)
    others.started("b", SOURCE, at(1.0), at(1.0))
    others.told(state("a"), at(1.0))
    assert others.ahead(SOURCE, at(1.0)) is not None
    others.told(state("a"), at(UNTOLD + 0.1))
    assert others.ahead(SOURCE, at(UNTOLD + 0.1)) is None


def test_a_fetch_from_before_we_listened_goes_first() -> None:
    """Its beginning is not known, only that it is on its way."""
    others = Others("b")
    others.started("b", SOURCE, NOW, NOW)
    others.told(state("a", done=1), NOW)
    assert others.ahead(SOURCE, NOW) is not None


NODES = ("a", "b", "c", "d")


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_never_do_all_wait(times: list[int], unheard: set[tuple[int, int]]) -> None:
    """Whoever has heard of whom: from each that waits a chain leads to one that fetches, and nobody waits in a ring."""
    waits: dict[str, str | None] = {}
    for index, own in enumerate(NODES):
        others = Others(own)
        for other, node in enumerate(NODES):
            others.told(state(node), NOW)
            if other == index or (index, other) not in unheard:
                others.started(node, SOURCE, at(times[other]), NOW)
        ahead = others.ahead(SOURCE, NOW)
        waits[own] = None if ahead is None else ahead.node
    for start in NODES:
        seen, here = set(), start
        while (onward := waits[here]) is not None:
            assert here not in seen
            seen.add(here)
            here = onward
    assert None in waits.values()
