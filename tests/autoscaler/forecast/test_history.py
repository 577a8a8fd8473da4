"""Histories as bits: each mask of occasions is compared with a slow look through the past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.forecast.history import (
    GRAINS_MOST,
    RUN_MOST,
    Evidence,
    after_gaps,
    after_suffixes,
    evidence,
    pushed,
    runs,
)

pasts = st.lists(st.booleans(), max_size=80)


def history(past: list[bool]) -> int:
    """The bits of a past, oldest first."""
    bits = 0
    for needed in past:
        bits = pushed(bits, needed)
    return bits


def occasions(mask: int) -> set[int]:
    """How many grains ago."""
    return {at for at in range(mask.bit_length()) if mask >> at & 1}


@given(pasts)
def test_suffixes_find_exactly_the_grains_before_which_it_was_as_now(past: list[bool]) -> None:
    """An occasion j grains ago is one whose preceding grains equal the last ones, all of them known."""
    newest_first = past[::-1]
    lengths = (1, 2, 5, 9)
    for length, mask in zip(lengths, after_suffixes(history(past), len(past), lengths), strict=True):
        slow = {
            at for at in range(len(past) - length) if newest_first[at + 1 : at + 1 + length] == newest_first[:length]
        }
        assert occasions(mask) == slow


@given(pasts)
def test_runs_are_counted_from_the_newest(past: list[bool]) -> None:
    """Quiet and needed in turns; the first count is of quiet, and may be 0."""
    found = runs(history(past), len(past))
    rebuilt: list[bool] = []
    for count, needed in zip(found, (False, True, False), strict=True):
        rebuilt += [needed] * count
    assert rebuilt == past[::-1][: len(rebuilt)]
    assert len(rebuilt) == len(past) or len(rebuilt) < len(past)


@given(pasts)
def test_gaps_find_the_same_quiet_after_being_needed(past: list[bool]) -> None:
    """While it is quiet: as many quiet grains and then one that was needed. While it goes on: as long a run."""
    bits, newest_first = history(past), past[::-1]
    found = runs(bits, len(past))
    same = occasions(after_gaps(bits, len(past), found)[0])
    slow = set()
    for at in range(len(past)):
        before = newest_first[at + 1 :]
        if found.gap:
            wanted = [False] * found.gap
            if before[: found.gap] == wanted and before[found.gap : found.gap + 1] == [True]:
                slow.add(at)
        elif found.run:
            run = min(found.run, RUN_MOST)
            longer = before[run : run + 1] == [True]
            if before[:run] == [True] * run and (found.run >= RUN_MOST or not longer):
                slow.add(at)
    assert same == slow


@given(pasts, st.integers(0, 1 << 80))
def test_evidence_counts_what_followed(past: list[bool], mask: int) -> None:
    """Of the occasions given, and the last three one by one."""
    mask &= (1 << len(past)) - 1
    newest_first = past[::-1]
    outcomes = [int(newest_first[at]) for at in sorted(occasions(mask))]
    assert evidence(history(past), mask) == Evidence(sum(outcomes), len(outcomes), tuple(outcomes[:3]))


def test_the_oldest_is_forgotten() -> None:
    """A history has a bound."""
    bits = history([True] + [False] * GRAINS_MOST)
    assert bits == 0
