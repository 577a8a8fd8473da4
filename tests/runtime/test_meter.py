"""Windows of demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.requests import Levels, RequestWindow
from events.units import Instant, Seconds
from runtime.core.meter import AT_ONCE, NOBODY_WAITS, Meter, MeterKey, Meters, Waiting, merged
from runtime.core.sketch import quantile
from runtime.ports import Ending, Outcome
from tests.support.slots import DONE, START

KEY = MeterKey("llama", "u1", 1)


def at(seconds: float) -> Instant:
    return Instant(START + seconds)


def tick(meters: Meters, seconds: float) -> list[RequestWindow]:
    windows: list[RequestWindow] = []
    while meters.tick_at is not None and meters.tick_at <= at(seconds):
        windows += meters.tick(at(seconds), lambda _: NOBODY_WAITS)
    return windows


def test_integrals_levels_and_peaks() -> None:
    """Two run for a quarter each, one waits for half a second: exactly so many request-seconds."""
    meter = Meter(KEY, "g", START)
    meter.wait(at(0.0))
    meter.start(at(0.25), 0.0)
    meter.start(at(0.5), 0.0)
    meter.unwait(at(0.5))
    meter.finish(at(0.75), START, DONE)
    window = meter.window(at(1.0), NOBODY_WAITS)
    assert (window.running_seconds, window.waiting_seconds) == (1.0, 0.5)
    assert (window.now, window.peak) == (Levels(running=1, waiting=0), Levels(running=2, waiting=1))
    assert (window.started_at, window.ended_at) == (START, START + 1)


def test_an_interval_begins_with_the_levels_of_the_last() -> None:
    """Peaks count what runs when it begins; counts and sketches begin anew."""
    meter = Meter(KEY, "g", START)
    meter.arrive(START)
    meter.start(START, 0.2)
    meter.close(at(1.0), NOBODY_WAITS)
    window = meter.window(at(2.0), NOBODY_WAITS)
    assert (window.started_at, window.running_seconds, window.arrivals, window.starts) == (START + 1, 1.0, 0, 0)
    assert (window.peak.running, window.held.count) == (1, 0)


@pytest.mark.parametrize(
    ("outcome", "field"),
    [
        (DONE, "finishes"),
        (Outcome(Ending.FINISHED, status=404), "finishes"),
        (Outcome(Ending.FINISHED, status=500), "failures"),
        (Outcome(Ending.UNREACHABLE), "failures"),
        (Outcome(Ending.BROKEN, status=200), "failures"),
        (Outcome(Ending.TIMED_OUT), "failures"),
        (Outcome(Ending.CLIENT_LEFT), "abandoned"),
    ],
)
def test_how_a_request_ended_is_counted_once(outcome: Outcome, field: str) -> None:
    """Each ending is a finish, a failure, or abandoned."""
    meter = Meter(KEY, "g", START)
    meter.start(START, 0.0)
    meter.finish(at(0.5), START, outcome)
    window = meter.window(at(1.0), NOBODY_WAITS)
    counted = {name: getattr(window, name) for name in ("finishes", "failures", "abandoned")}
    assert counted == dict.fromkeys(counted, 0) | {field: 1}


def test_latencies_count_from_the_arrival() -> None:
    """What the client saw: also the time it was held. Tokens and bytes are summed."""
    meter = Meter(KEY, "g", START)
    meter.start(at(3.0), 3.0)
    outcome = Outcome(
        DONE.ending, status=200, first_byte_at=at(3.5), tokens_in=5, tokens_out=7, bytes_in=11, bytes_out=13
    )  # fmt: skip
    meter.finish(at(5.0), START, outcome)
    window = meter.window(at(5.0), NOBODY_WAITS)
    assert quantile(window.held, 1.0) == pytest.approx(3.0, rel=0.05)
    assert quantile(window.first_byte, 1.0) == pytest.approx(3.5, rel=0.05)
    assert quantile(window.total, 1.0) == pytest.approx(5.0, rel=0.05)
    assert (window.tokens_in, window.tokens_out, window.bytes_in, window.bytes_out) == (5, 7, 11, 13)


def test_an_edge_is_first_activity_the_first_that_waits_and_growth_by_half() -> None:
    """And nothing else: a steady or falling backlog waits for the end of the interval."""
    meter = Meter(KEY, "g", START)
    edges = []
    for waiting in range(1, 20):
        meter.wait(at(waiting / 100))
        if meter.edge:
            edges.append(waiting)
            meter.window(at(waiting / 100), NOBODY_WAITS, edge=True)
    assert edges == [1, 2, 3, 5, 8, 12, 18]
    meter.unwait(at(0.5))
    assert not meter.edge


def test_a_backlog_that_comes_and_goes_is_one_edge_an_interval() -> None:
    """A model at its limit has a request waiting now and then: that is no news each time."""
    meter = Meter(KEY, "g", START)
    edges = 0
    for index in range(100):
        meter.wait(at(index / 1000))
        if meter.edge:
            edges += 1
            meter.window(at(index / 1000), NOBODY_WAITS, edge=True)
        meter.unwait(at(index / 1000))
    assert edges == 1
    meter.close(at(1.0), NOBODY_WAITS)
    meter.wait(at(1.1))
    assert meter.edge


def test_an_edge_window_is_replaced_by_the_whole_interval() -> None:
    """Same start, more in it: whoever keeps the last of each start counts nothing twice."""
    meter = Meter(KEY, "g", START)
    meter.arrive(START)
    meter.wait(START)
    early = meter.window(at(0.0), Waiting(START, at(60.0)), edge=True)
    late = meter.close(at(1.0), Waiting(START, at(60.0)))
    assert (early.edge, late.edge) == (True, False)
    assert early.started_at == late.started_at
    assert (early.arrivals, late.arrivals, late.waiting_seconds) == (1, 1, 1.0)
    assert (late.oldest_waiting_since, late.earliest_deadline) == (START, START + 60)


def test_a_model_that_goes_quiet_is_told_once_with_zeros_and_then_costs_nothing() -> None:
    """The last window is all zeros; after it there is no meter and no tick."""
    meters = Meters("g")
    meter = meters.get(KEY, START)
    meter.start(START, 0.0)
    meter.finish(at(0.2), START, DONE)
    (busy,) = tick(meters, 1.0)
    (zeros,) = tick(meters, 2.0)
    assert busy.running_seconds == pytest.approx(0.2)
    assert zeros == RequestWindow(
        model="llama", uid="u1", revision=1, gateway="g", started_at=START + 1, ended_at=START + 2
    )  # fmt: skip
    assert len(meters) == 0
    assert meters.tick_at is None
    assert tick(meters, 3.0) == []


def test_what_runs_is_told_each_second_also_when_nothing_else_happens() -> None:
    """A long answer is demand the whole time."""
    meters = Meters("g")
    meters.get(KEY, START).start(START, 0.0)
    seen = [window.running_seconds for second in range(1, 6) for window in tick(meters, float(second))]
    assert seen == [1.0] * 5
    assert meters.tick_at == START + 6


def test_ten_thousand_quiet_models_cost_no_tick() -> None:
    """Only the one that has something going on is looked at."""
    meters = Meters("g")
    for index in range(10_000):
        meters.get(MeterKey(f"m{index}", "u", 1), START).arrive(START)
    assert len(tick(meters, 1.0)) == 10_000
    assert len(tick(meters, 2.0)) == 10_000
    meters.get(KEY, at(2.5)).wait(at(2.5))
    asked: list[MeterKey] = []

    def waiting(key: MeterKey) -> Waiting:
        asked.append(key)
        return NOBODY_WAITS

    assert [window.model for window in meters.tick(at(3.5), waiting)] == ["llama"]
    assert asked == [KEY]


def test_the_windows_of_many_models_are_made_in_portions() -> None:
    """So that whatever else is due comes in between; each interval is told once, also when it is told late."""
    meters = Meters("g")
    for index in range(3 * AT_ONCE + 1):
        meters.get(MeterKey(f"m{index}", "u", 1), START).start(START, 0.0)
    portions = [meters.tick(at(1.0 + late / 100), lambda _: NOBODY_WAITS) for late in range(6)]
    assert [len(portion) for portion in portions] == [AT_ONCE] * 3 + [1, 0, 0]
    assert len({window.model for portion in portions for window in portion}) == 3 * AT_ONCE + 1
    assert meters.tick_at == START + 2


def test_intervals_end_on_a_grid() -> None:
    """Models that become active within 50 ms are told at one instant; no interval is shorter than a second."""
    meters = Meters("g")
    for index in range(100):
        now = at(0.25 + index / 1000)
        meters.get(MeterKey(f"m{index}", "u", 1), now).start(now, 0.0)
    alarms = []
    while len(meters) and meters.tick_at is not None and meters.tick_at <= at(2.0):
        alarms.append(meters.tick_at)
        for window in meters.tick(meters.tick_at, lambda _: NOBODY_WAITS):
            assert 1.0 <= window.ended_at - window.started_at <= 1.05 + 1e-9
    assert len(alarms) == 3


def test_requests_that_wait_move_to_the_new_revision() -> None:
    """The demand for a model does not stay with a revision that is no more."""
    meters = Meters("g")
    old, new = meters.get(KEY, START), meters.get(KEY._replace(revision=2), START)
    old.wait(START, 3)
    old.move_waiting(new, at(0.5))
    by_revision = {window.revision: window for window in tick(meters, 1.0)}
    assert by_revision[1].waiting_seconds == pytest.approx(1.5)
    assert by_revision[2].waiting_seconds == pytest.approx(1.5)
    assert by_revision[2].now.waiting == 3


def test_merging_windows_adds_them_up() -> None:
    """Of two intervals the sums, the larger peaks and the later levels; of one interval the later one."""
    meter = Meter(KEY, "g", START)
    meter.arrive(START)
    meter.start(START, 0.0)
    first = meter.close(at(1.0), NOBODY_WAITS)
    meter.finish(at(1.5), START, DONE)
    second = meter.window(at(2.0), NOBODY_WAITS)
    both = merged(first, second)
    assert (both.started_at, both.ended_at, both.running_seconds) == (START, START + 2, 1.5)
    assert (both.arrivals, both.starts, both.finishes, both.now.running, both.peak.running) == (1, 1, 1, 0, 1)
    assert (both.held.count, both.total.count) == (1, 1)
    assert merged(replace(second, ended_at=START + 1.7), second) is second


def test_a_tick_that_is_late_is_a_longer_interval() -> None:
    """No time is lost when the loop was blocked."""
    meters = Meters("g")
    meters.get(KEY, START).start(START, 0.0)
    (window,) = tick(meters, 4.0)
    assert window.running_seconds == 4.0
    assert meters.tick_at == START + 4 + Seconds(1.0)
