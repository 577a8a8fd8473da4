"""The plan of a fetch: chunks cover the file, readers do not write twice, the digest is fed in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.plan import Board, Cursor, spans
from events.units import Instant


@given(st.integers(0, 10_000), st.integers(1, 700))
def test_chunks_cover_the_file_once(size: int, chunk: int) -> None:
    """Contiguous, in order, none empty, all but the last of the same length."""
    made = spans(size, chunk)
    assert sum(span.length for span in made) == size
    at = 0
    for index, span in enumerate(made):
        assert (span.index, span.start) == (index, at)
        assert 0 < span.length <= chunk
        assert span.length == chunk or span is made[-1]
        at = span.end


@pytest.mark.parametrize(("size", "chunk"), [(-1, 8), (8, 0)])
def test_nonsense_is_refused(size: int, chunk: int) -> None:
    """A negative size, and chunks of nothing."""
    with pytest.raises(ValueError, match="chunk_bytes"):
        spans(size, chunk)


@given(st.permutations(range(9)))
def test_the_cursor_feeds_in_order(order: list[int]) -> None:
    """Whatever the order in which chunks come, each is fed once, in order."""
    cursor, fed = Cursor(9), []
    for index in order:
        cursor.add(index)
        assert cursor.waiting > 0
        while (ready := cursor.advance()) is not None:
            fed.append(ready)
    assert fed == list(range(9))
    assert cursor.waiting == 0
    assert cursor.done


def test_a_chunk_comes_once() -> None:
    """A second time is a bug of the caller."""
    cursor = Cursor(3)
    cursor.add(1)
    with pytest.raises(ValueError, match="twice"):
        cursor.add(1)


@given(st.lists(st.integers(0, 11), max_size=60))
def test_each_chunk_is_written_by_one_reader(steps: list[int]) -> None:
    """Readers take, fail and finish in any order: every chunk is written exactly once, and the board ends."""
    board = Board(spans(70, 10), written={2, 5})
    reading, written, now = [], [2, 5], 0.0
    for step in [*steps, *[8] * 40]:
        now += 1.0
        if step < 6 or not reading:
            if len(reading) < 6 and (taken := board.take(Instant(now), 3.0)) is not None:
                reading.append(taken)
            continue
        span = reading.pop(step % len(reading))
        if step == 11:
            board.give_back(span)
        elif board.claim(span, Instant(now)):
            written.append(span.index)
    assert board.done
    assert sorted(written) == list(range(7))


def test_a_late_chunk_is_asked_for_again_and_written_once() -> None:
    """In the tail, after three times the median since it was asked for last; never by more than three."""
    board = Board(spans(30, 10))
    first, second, third = (board.take(Instant(0.0), 3.0) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert board.claim(first, Instant(1.0))
    assert board.claim(second, Instant(1.0))
    assert board.take(Instant(2.9), 3.0) is None
    hedge = board.take(Instant(3.1), 3.0)
    assert hedge == third
    assert board.take(Instant(6.0), 3.0) is None
    assert board.take(Instant(6.2), 3.0) == third
    assert board.take(Instant(19.0), 3.0) is None
    assert board.claim(third, Instant(19.0))
    assert not board.claim(third, Instant(19.1))
    assert not board.claim(third, Instant(19.2))
    assert board.done


def test_what_is_failed_by_one_of_two_readers_stays_with_the_other() -> None:
    """It is open again when both have failed."""
    board = Board(spans(20, 10))
    first, last = board.take(Instant(0.0), 3.0), board.take(Instant(0.0), 3.0)
    assert first is not None
    assert last is not None
    board.claim(first, Instant(1.0))
    assert board.take(Instant(8.0), 3.0) == last
    board.give_back(last)
    assert board.take(Instant(3.0), 3.0) is None
    board.give_back(last)
    assert board.take(Instant(3.0), 3.0) == last
