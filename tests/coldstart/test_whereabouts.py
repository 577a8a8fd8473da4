"""Where weights are, by what agents tell, and what that means for a start that begins now."""

from __future__ import annotations

import pytest

from coldstart.core.estimate import StartEstimate
from coldstart.core.whereabouts import HERE, MOST_NODES, STALE, ToFetch, Whereabouts
from events.types.caches import CacheObserved, ModelWarmth
from events.types.replicas import Phase, PhaseSpan
from events.units import Instant, Seconds
from tests.support.slots import START, observed, replica

MIB = 1 << 20


def node(name: str, network: float | None = None) -> CacheObserved:
    return CacheObserved(node=name, used_bytes=0, capacity_bytes=1 << 40, network=network)


def word(tier: str, missing: int | None = None, revision: int = 1) -> ModelWarmth:
    return ModelWarmth(model="llama", tier=tier, missing=missing, revision=revision)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], None),
        ([(None, word("disk", 0))], HERE),
        ([(None, word("memory", 0)), (8.0 * MIB, word("remote", 80 * MIB))], HERE),
        ([(8.0 * MIB, word("remote", 80 * MIB))], ToFetch(Seconds(10.0))),
        ([(8.0 * MIB, word("remote", 80 * MIB)), (4.0 * MIB, word("remote", 16 * MIB))], ToFetch(Seconds(4.0))),
        ([(8.0 * MIB, word("remote", 80 * MIB)), (None, word("remote", 80 * MIB))], ToFetch(None)),
        ([(8.0 * MIB, word("remote", None))], ToFetch(None)),
        ([(None, word("disk", 0, revision=2))], None),
        ([(None, word("disk", 0, revision=0))], HERE),
    ],
    ids=[
        "nobody", "here", "one-has-them", "bytes-by-network", "quickest-of-two", "one-does-not-know", "unknown-size",
        "another-revision", "revision-not-told",
    ],
)  # fmt: skip
def test_what_a_start_has_to_fetch(told: list[tuple[float | None, ModelWarmth]], expected: ToFetch | None) -> None:
    """Nothing where one node has them; the least where all know it; else it is unknown."""
    weights = Whereabouts()
    for at, (network, one) in enumerate(told):
        weights.hear(node(f"n{at}", network), one, START)
    assert weights.to_fetch(1, START) == expected


def test_a_silent_node_and_what_it_said_are_forgotten() -> None:
    """After three minutes its word counts no more; a newer word replaces an older one; nodes are bounded."""
    weights = Whereabouts()
    weights.hear(node("n1"), word("disk", 0), START)
    assert weights.to_fetch(1, Instant(START + STALE - 1)) == HERE
    assert weights.to_fetch(1, Instant(START + STALE)) is None
    weights.hear(node("n1", 1.0), word("remote", 5), Instant(START + 1))
    assert weights.to_fetch(1, Instant(START + 1)) == ToFetch(Seconds(5.0))
    for at in range(MOST_NODES):
        weights.hear(node(f"other{at}"), word("disk", 0), Instant(START + 2))
    weights.hear(node("n1", 1.0), word("remote", 5), Instant(START + 3))
    assert weights.to_fetch(1, Instant(START + 3)) == HERE


def started(*fetches: float) -> StartEstimate:
    """Starts that fetched so long, and then took 2 s."""
    estimate = StartEstimate()
    for life, seconds in enumerate(fetches, 1):
        spans = [PhaseSpan(phase=Phase.FETCH, started_at=START - seconds, ended_at=START)] if seconds else []
        spans.append(PhaseSpan(phase=Phase.LOAD, started_at=START, ended_at=START + 2))
        estimate.fold(observed(replica(life=life, phases=tuple(spans))))
    return estimate


@pytest.mark.parametrize(
    ("fetches", "fetch", "expected"),
    [
        ((), None, None),
        ((), HERE, None),
        ((), ToFetch(None), None),
        ((), ToFetch(Seconds(40.0)), 40.0),
        ((60.0,), None, 62.0),
        ((60.0,), HERE, 2.0),
        ((60.0,), ToFetch(Seconds(40.0)), 42.0),
        ((60.0, 0.0, 0.0), None, 2.0),
        ((60.0, 0.0, 0.0), ToFetch(None), 62.0),
        ((0.0, 0.0), ToFetch(None), 2.0),
    ],
)
def test_a_whole_start(fetches: tuple[float, ...], fetch: ToFetch | None, expected: float | None) -> None:
    """What earlier starts fetched counts where nothing better is known, and never where the weights are there."""
    assert started(*fetches).whole(fetch) == expected
