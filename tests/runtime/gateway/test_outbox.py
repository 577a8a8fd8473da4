"""What is written in a turn leaves together at its end: in order, not for those who are gone, and bounded in memory."""

from __future__ import annotations

import asyncio

import pytest

from runtime.gateway.outbox import DIRECT, FEW, MOST_WRITES, Outbox
from tests.runtime.gateway.test_call_count import ANSWER, MANY, REQUEST, Pair, RecordingTransport


class Closable(RecordingTransport):
    """A transport that may be closed before the turn ends."""

    closing = False

    def is_closing(self) -> bool:
        return self.closing


async def test_what_is_written_leaves_at_the_end_of_the_turn_in_order() -> None:
    """Of one connection; and so in the next turn."""
    outbox, one, other = Outbox(asyncio.get_running_loop(), MANY), Closable(), Closable()
    outbox.write(one, b"a")
    outbox.write(other, b"b")
    outbox.write(one, b"c")
    assert one.writes == other.writes == []
    await asyncio.sleep(0)
    assert (one.writes, other.writes) == ([b"a", b"c"], [b"b"])
    outbox.write(one, b"d")
    await asyncio.sleep(0)
    assert one.writes == [b"a", b"c", b"d"]


async def test_of_few_requests_nothing_is_kept() -> None:
    """Unless something waits already: the order stays."""
    under_way = list(MANY)
    outbox, one, closed = Outbox(asyncio.get_running_loop(), under_way), Closable(), Closable()
    closed.closing = True
    outbox.write(one, b"a")
    del under_way[FEW:]
    outbox.write(one, b"b")
    assert one.writes == []
    outbox.flush()
    outbox.write(one, b"c")
    outbox.write(closed, b"d")
    assert (one.writes, closed.writes) == ([b"a", b"b", b"c"], [])


async def test_whoever_closed_meanwhile_is_not_written_to() -> None:
    """And keeps nobody else from what is theirs."""
    outbox, gone, there = Outbox(asyncio.get_running_loop(), MANY), Closable(), Closable()
    outbox.write(gone, b"a")
    outbox.write(there, b"b")
    gone.closing = True
    await asyncio.sleep(0)
    assert (gone.writes, there.writes) == ([], [b"b"])


@pytest.mark.parametrize(("pieces", "size"), [(MOST_WRITES, 1), (2, DIRECT)])
async def test_much_leaves_at_once(pieces: int, size: int) -> None:
    """Many pieces, or a large one, are not kept until all of a large turn is read."""
    outbox, one = Outbox(asyncio.get_running_loop(), MANY), Closable()
    for _ in range(pieces):
        outbox.write(one, b"x" * size)
    assert len(one.writes) == pieces


async def test_what_an_engine_says_before_it_was_asked_is_no_answer() -> None:
    """It comes in the turn in which its connection is used again. Its client does not see it; a new one is opened."""
    pair = Pair()
    closed: list[bool] = []
    pair.to_replica.abort = lambda: closed.append(True)  # type: ignore[attr-defined]  # as transports have it
    pair.client.data_received(REQUEST)
    pair.replica.data_received(ANSWER)
    pair.outbox.flush()
    assert closed == [True]
    assert pair.to_client.writes == []
    assert pair.pool.connecting == 1
    pair.client.connection_lost(None)
    await pair.pool.close()
    pair.wheel.close()
