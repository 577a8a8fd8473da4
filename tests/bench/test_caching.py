"""The yardsticks of the cache's benchmark are what they are called: by hand, and none beats the bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.caching.bound import most
from bench.caching.keeping import Keeping, Ours, belady, gdsf, lfu, lru, play
from bench.caching.starts import GIB, Start, Starts, starts_of
from deploy.simulation.minutes import MinuteTrace
from events.units import Bytes

np = pytest.importorskip("numpy")


def starts(models: str, sizes: dict[str, int]) -> Starts:
    """One letter a model, a minute between starts; sizes in GiB."""
    names = sorted(sizes)
    return Starts(
        tuple(Start(names.index(model), 60.0 * number) for number, model in enumerate(models)),
        tuple(Bytes(sizes[name] * GIB) for name in names),
    )


@pytest.mark.parametrize(
    ("models", "make", "found"), [
        ("aabcaba", lru, 2), ("aabcaba", lfu, 3), ("aabcaba", belady, 3),
        ("aabcbcb", lru, 4), ("aabcbcb", lfu, 2), ("aabcbcb", belady, 4),
    ],
)  # fmt: skip
def test_by_hand(models: str, make: Callable[[Starts], Keeping], found: int) -> None:
    """Room for two of one size. LRU keeps what came last, LFU what came most (of two alike the later name), Belady what
    comes next."""
    played = starts(models, {"a": 4, "b": 4, "c": 4})
    assert play(played, make(played), 8 * GIB).bytes == pytest.approx(found / 7)


def test_greedy_dual_keeps_the_small() -> None:
    """Of a large and a small one that were asked for once the large one goes."""
    played = starts("lsml", {"l": 8, "m": 4, "s": 4})
    keeping = gdsf(played)
    for number, start in enumerate(played.starts[:3]):
        keeping.asked(start, number)
    assert keeping.room(played.starts[2], frozenset({0, 2}), 12 * GIB) == {0}


def test_what_comes_within_the_promise_is_kept_anyway() -> None:
    """A GiB comes in a second."""
    assert play(starts("ab", {"a": 1, "b": 1}), lru(starts("ab", {"a": 1, "b": 1})), GIB).promises == 1.0


def test_a_start_is_a_request_after_five_quiet_minutes() -> None:
    """Minute grain, as the keep-alive of a model would have it."""
    needed = np.array([[1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 2]])
    trace = MinuteTrace(("a",), needed, np.array([1.0]))
    assert [start.at / 60 for start in starts_of(trace, 1).starts] == [0, 6, 14]


@given(st.text(st.sampled_from("abcdef"), min_size=2, max_size=40), st.integers(4, 60))
def test_none_exceeds_the_bound(models: str, capacity: int) -> None:
    """Of what it keeps, in bytes and in promises."""
    played = starts(models, {"a": 1, "b": 2, "c": 5, "d": 8, "e": 13, "f": 40})
    bound = most(played, capacity * GIB)
    for make in (Ours, lru, lfu, gdsf, belady):
        kept = play(played, make(played), capacity * GIB)
        assert kept.bytes <= bound.bytes + 1e-9
        assert kept.promises <= bound.promises + 1e-9
