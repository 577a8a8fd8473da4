"""Windows against brute force: exact integrals, no gap, no overlap, nothing counted twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.clock import SimulatedClock
from events.envelope import AnyEnvelope
from events.types.requests import RequestWindow
from events.units import Instant
from events.writer import EventWriter
from runtime.core.meter import NOBODY_WAITS, MeterKey, Meters
from runtime.desk.news import Newsagent
from runtime.ports import Ending, Outcome
from tests.support.slots import START

KEY = MeterKey("llama", "u1", 1)
STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "wait", "unwait", "start", "finish", "edge", "nothing"]), st.integers(0, 700)),
    max_size=80,
)
"""What happens, and milliseconds until the next."""


def run(steps: list[tuple[str, int]]) -> tuple[list[RequestWindow], float, float, int]:
    """All windows as they were sent, and the brute-force sums: waiting and running seconds, arrivals."""
    meters, sent = Meters("g"), []
    now = START
    waiting = running = arrivals = 0
    waited = ran = 0.0
    for what, millis in steps:
        if meters.tick_at is not None and meters.tick_at <= now:
            sent += meters.tick(now, lambda _: NOBODY_WAITS)
        if what == "arrive":
            meters.get(KEY, now).arrive(now)
            arrivals += 1
        elif what == "wait":
            meters.get(KEY, now).wait(now)
            waiting += 1
        elif what == "unwait" and waiting:
            meters.get(KEY, now).unwait(now)
            waiting -= 1
        elif what == "start":
            meters.get(KEY, now).start(now, 0.0)
            running += 1
        elif what == "finish" and running:
            meters.get(KEY, now).finish(now, START, Outcome(Ending.FINISHED, status=200))
            running -= 1
        elif what == "edge" and KEY in meters:
            sent.append(meters.get(KEY, now).window(now, NOBODY_WAITS, edge=True))
        waited += waiting * millis / 1000
        ran += running * millis / 1000
        now = Instant(now + millis / 1000)
    if KEY in meters:
        sent.append(meters.get(KEY, now).window(now, NOBODY_WAITS))
    return sent, waited, ran, arrivals


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_the_newest_windows_add_up_to_what_happened(steps: list[tuple[str, int]]) -> None:
    """Keep the last window of each start: their sums are the whole, and their intervals touch or are apart."""
    sent, waited, ran, arrivals = run(steps)
    newest = {window.started_at: window for window in sent}
    assert sum(window.waiting_seconds for window in newest.values()) == pytest.approx(waited, abs=1e-6)
    assert sum(window.running_seconds for window in newest.values()) == pytest.approx(ran, abs=1e-6)
    assert sum(window.arrivals for window in newest.values()) == arrivals
    ordered = sorted(newest.values(), key=lambda window: window.started_at)
    for before, after in itertools.pairwise(ordered):
        assert before.ended_at <= after.started_at
    assert all(window.started_at <= window.ended_at for window in sent)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
def test_a_window_only_grows(steps: list[tuple[str, int]]) -> None:
    """A later window of the same start has at least as much of everything."""
    newest: dict[float, RequestWindow] = {}
    for window in run(steps)[0]:
        before = newest.get(window.started_at, window)
        for name in ("ended_at", "running_seconds", "waiting_seconds", "arrivals", "starts", "finishes"):
            assert getattr(before, name) <= getattr(window, name)
        newest[window.started_at] = window


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, refusals=st.lists(st.booleans(), max_size=80))
def test_a_log_that_takes_news_now_and_then_gets_all_of_it_once(
    steps: list[tuple[str, int]], refusals: list[bool]
) -> None:
    """Whatever offers it refuses: the newest windows that it took add up to what happened."""
    sent, waited, ran, arrivals = run(steps)
    log = MoodyLog(refusals)
    agent = Newsagent(log, EventWriter("relume/test", SimulatedClock()))
    for window in sent:
        agent.tell(window)
    log.refusals.clear()
    agent.flush()
    newest = {window.started_at: window for window in log.taken}
    assert agent.pending == 0
    assert sum(window.waiting_seconds for window in newest.values()) == pytest.approx(waited, abs=1e-6)
    assert sum(window.running_seconds for window in newest.values()) == pytest.approx(ran, abs=1e-6)
    assert sum(window.arrivals for window in newest.values()) == arrivals


class MoodyLog:
    """Takes an offer or not, as it was told, in order; then takes all."""

    def __init__(self, refusals: list[bool]) -> None:
        self.refusals = list(refusals)
        self.taken: list[RequestWindow] = []

    def offer(self, envelope: AnyEnvelope) -> bool:
        if self.refusals and self.refusals.pop(0):
            return False
        self.taken.append(envelope.data)
        return True
