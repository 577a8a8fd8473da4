"""News that the log does not take at once, and beats."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Position
from events.types.gateways import GatewayBeat
from events.types.phases import ReplicaDrained
from events.types.requests import RequestWindow
from events.writer import EventWriter
from runtime.desk import news as news_module
from runtime.desk.news import Heart, Newsagent
from tests.support.slots import START

BEAT = GatewayBeat(gateway="gw", boot="b")


class FullLog:
    """Takes no news until it is told to."""

    def __init__(self) -> None:
        self.full = True
        self.only_edges = False
        self.taken: list[object] = []

    def offer(self, envelope: AnyEnvelope) -> bool:
        if self.full or (self.only_edges and not envelope.data.edge):
            return False
        self.taken.append(envelope.data)
        return True


def agent(log: FullLog) -> Newsagent:
    return Newsagent(log, EventWriter("relume/test", SimulatedClock()))


def window(started_at: float, arrivals: int, *, edge: bool = False) -> RequestWindow:
    return RequestWindow(
        model="llama", uid="u", revision=1, gateway="gw", started_at=START + started_at,
        ended_at=START + started_at + 1, arrivals=arrivals, edge=edge,
    )  # fmt: skip


def test_windows_that_were_not_taken_become_one() -> None:
    """Of the intervals that are over; the one that goes on keeps its own identity, so that it can be replaced."""
    log = FullLog()
    news = agent(log)
    for one in (window(0, 1, edge=True), window(0, 2), window(1, 3), window(2, 4, edge=True)):
        news.tell(one)
    assert news.pending == 1
    log.full = False
    news.flush()
    over, last = log.taken
    assert isinstance(over, RequestWindow)
    assert (over.started_at, over.ended_at, over.arrivals) == (START, START + 2, 5)
    assert last == window(2, 4, edge=True)
    assert news.pending == 0


def test_the_next_window_takes_the_kept_ones_along() -> None:
    """There is no need to wait for a beat when the log takes news again."""
    log = FullLog()
    news = agent(log)
    news.tell(window(0, 1))
    log.full = False
    news.tell(window(1, 2))
    assert log.taken == [window(0, 1), window(1, 2)]


def test_an_edge_takes_the_kept_ones_along_as_soon() -> None:
    """A log that is behind takes edges only: what was kept before the edge goes first, as urgent as it is."""
    log = FullLog()
    news = agent(log)
    news.tell(window(0, 1))
    log.only_edges, log.full = True, False
    news.tell(window(1, 2))
    assert log.taken == []
    news.tell(window(2, 4, edge=True))
    over, last = log.taken
    assert isinstance(over, RequestWindow)
    assert (over.started_at, over.ended_at, over.arrivals, over.edge) == (START, START + 2, 3, True)
    assert last == window(2, 4, edge=True)
    assert news.pending == 0


def test_other_news_is_kept_in_order() -> None:
    """A drained replica is told, if late."""
    log = FullLog()
    news = agent(log)
    told = [ReplicaDrained(model="llama", replica=f"r{index}") for index in range(3)]
    news.tell(told[0])
    log.full = False
    news.tell(told[1])
    assert log.taken == []
    news.flush()
    news.tell(told[2])
    assert log.taken == told


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound news is dropped and counted."""
    monkeypatch.setattr(news_module, "MOST_PENDING", 2)
    news = agent(FullLog())
    for index in range(5):
        news.tell(ReplicaDrained(model="llama", replica=f"r{index}"))
    news.tell(window(0, 1))
    assert (news.pending, news.dropped) == (2, 4)


class BrokenLog(MemoryEventLog):
    """Fails, or never answers."""

    hangs = False

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        if self.hangs:
            await asyncio.Event().wait()
        raise LogUnavailable("no space left on device")


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_beat_that_the_log_does_not_take_is_counted(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It breaks nothing and waits for nothing longer than its time."""
    monkeypatch.setattr(news_module, "TAKEN_WITHIN", 0.02)
    clock = SimulatedClock()
    log = BrokenLog(clock)
    log.hangs = hangs
    heart = Heart(log, EventWriter("relume/gateway/gw", clock), BEAT)
    await heart.beat()
    assert heart.missed == 1
