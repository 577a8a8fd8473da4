"""Fractions with hard limits of memory: HAMi's rules one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preemption.core.gpus.sharing import MEBIBYTE, Asked, Refusal, Share, SharedCard

USABLE = 40_000 * MEBIBYTE


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        (Asked(), Share(USABLE, exclusive=True)),
        (Asked(memory_percent=101), Share(USABLE, exclusive=True)),
        (Asked(memory_percent=100), Share(USABLE, exclusive=True)),
        (Asked(memory_percent=25), Share(USABLE // 4)),
        (Asked(memory_mebibytes=1000, memory_percent=50), Share(1000 * MEBIBYTE)),
        (Asked(memory_mebibytes=1000, cores=30), Share(1000 * MEBIBYTE, 30)),
        (Asked(memory_mebibytes=1000, cores=100), Share(1000 * MEBIBYTE, 100, exclusive=True)),
    ],
)
def test_what_is_asked_for(asked: Asked, share: Share) -> None:
    """No memory is all of it; MiB count before percent; all of either is exclusive."""
    assert asked.share(USABLE) == share


@pytest.mark.parametrize("asked", [Asked(memory_percent=102), Asked(cores=101), Asked(cores=-1)])
def test_impossible_percentages_are_refused(asked: Asked) -> None:
    """With what to write."""
    with pytest.raises(ValueError, match="write 1 to 100"):
        asked.share(USABLE)


QUARTER = Share(USABLE // 4, 25)


@pytest.mark.parametrize(
    ("held", "share", "refusal"),
    [
        ([], Share(USABLE, exclusive=True), None),
        ([QUARTER], Share(USABLE, exclusive=True), Refusal.IN_USE),
        ([Share(USABLE, exclusive=True)], QUARTER, Refusal.EXCLUSIVE),
        ([Share(1, 1)] * 10, Share(1, 1), Refusal.SHARERS),
        ([Share(USABLE - 5)], Share(6), Refusal.MEMORY),
        ([Share(1, 80)], Share(1, 30), Refusal.CORES),
        ([Share(1, 50), Share(1, 50)], Share(1), Refusal.CORES),  # no limit of cores, and all are sold
        ([Share(1, 80)], Share(1), None),
    ],
)
def test_a_share_is_refused_with_its_reason(held: list[Share], share: Share, refusal: Refusal | None) -> None:
    """One rule a row."""
    card = SharedCard(USABLE, sharers={str(index): one for index, one in enumerate(held)})
    assert card.refusal(share) == refusal


def test_memory_that_is_unknown_is_not_zero_and_not_shared() -> None:
    """Such a card is given out whole only."""
    assert SharedCard(0).refusal(Share(1)) is Refusal.MEMORY_UNKNOWN
    assert SharedCard(0).refusal(Share(0, exclusive=True)) is None


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 100)), max_size=30))
def test_memory_is_never_sold_twice(asked: list[tuple[int, int]]) -> None:
    """Whatever comes: sharers together have no more memory and cores than the card, and its thousandths cover them."""
    card = SharedCard(USABLE)
    for index, (mebibytes, cores) in enumerate(asked):
        share = Asked(memory_mebibytes=mebibytes, cores=cores).share(USABLE)
        if card.refusal(share) is None:
            card.take(str(index), share)
        else:
            with pytest.raises(ValueError, match="cannot take its share"):
                card.take(str(index), share)
    assert card.free_bytes >= 0
    assert card.free_cores >= 0
    assert len(card.held) <= 10
    for share in card.held.values():
        assert share.milli(USABLE) * USABLE >= share.memory_bytes * 1000


def test_a_share_is_given_back_once() -> None:
    """A name that holds nothing gives nothing."""
    card = SharedCard(USABLE)
    card.take("a", QUARTER)
    with pytest.raises(ValueError, match="it has one"):
        card.take("a", Share(1))
    card.give("a")
    card.give("a")
    assert card.free_bytes == USABLE
