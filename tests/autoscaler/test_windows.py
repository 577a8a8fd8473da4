"""Demand from windows: levels, exact averages, replacement, silence, gaps, clocks."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.gateways import Gateways, World
from autoscaler.core.model import Demand
from autoscaler.core.signals import NO_SIGNALS
from autoscaler.core.sources import SILENCE
from autoscaler.core.windows import SOURCES_MOST, Windows
from events.types.requests import Levels
from events.units import Instant, Seconds
from tests.support.autoscaling import T0, window


class Desk:
    """A model's windows and the world around them."""

    def __init__(self, stable: float = 60.0, panic: float = 6.0) -> None:
        self.windows = Windows(Seconds(stable), Seconds(panic))
        self.world = World(Gateways(), Instant(T0 - 3600))

    def put(self, begin: float, end: float, running: int = 0, waiting: int = 0, **fields: object) -> None:
        """A window (times since T0) that is appended when it ends, or at `at`."""
        at = fields.pop("at", end)
        assert isinstance(at, float | int)
        gateway = str(fields.get("gateway", "g"))
        told = window(T0 + begin, T0 + end, running, waiting, **fields)
        self.windows.window(f"relume/gateway/{gateway}", told, Instant(T0 + at), self.world)

    def at(self, seconds: float, remembered: float | None = None) -> Demand:
        """Demand so long after T0."""
        return self.windows.measure(Instant(T0 + seconds), self.world, NO_SIGNALS, remembered)


def test_constant_concurrency_is_its_average() -> None:
    """Three in flight for a whole window average to three, to the last digits, at any instant between windows."""
    desk = Desk()
    for second in range(100):
        desk.put(second, second + 1, running=2, waiting=1)
        for part in (0.0, 0.3, 0.999):
            demand = desk.at(second + 1 + part)
            assert (demand.running, demand.waiting) == (2, 1)
            if second >= 60:
                assert demand.stable == pytest.approx(3.0, abs=1e-9)
            if second >= 6:
                assert demand.panic == pytest.approx(3.0, abs=1e-9)


def test_averages_are_weighted_by_time() -> None:
    """Half a second at ten in a window of sixty is five request-seconds."""
    desk = Desk()
    desk.put(0, 1, running_seconds=5.0, running=0)
    demand = desk.at(5)
    assert demand.stable == pytest.approx(5 / 60)
    assert demand.panic == pytest.approx(5 / 6)
    assert desk.at(8).panic == pytest.approx(0.0)
    assert desk.at(61.5).stable == pytest.approx(0.0, abs=1e-9)


def test_a_window_with_the_same_start_replaces() -> None:
    """An edge and the windows that grew from it count once."""
    desk = Desk()
    desk.put(0, 0, now=Levels(waiting=1), edge=True, arrivals=1)
    desk.put(0, 0.25, waiting=1, now=Levels(waiting=5), arrivals=5)
    desk.put(0, 1, waiting_seconds=4.0, now=Levels(), arrivals=5)
    demand = desk.at(1)
    assert demand.stable == pytest.approx(4.0 / 60)
    assert demand.arrivals_per_second == pytest.approx(5 / 60, rel=0.05)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(lambda desk: desk.put(0, 1, running=4, at=1), id="the same once more"),
        pytest.param(lambda desk: desk.put(0, 1, running=4, at=1.2), id="the same, appended later"),
        pytest.param(lambda desk: desk.put(0, 0.5, running=4, at=1.1), id="an older version of it, late"),
        pytest.param(lambda desk: desk.put(0, 1, running_seconds=9, at=0.5), id="from before, by the log's time"),
    ],
)
def test_repeated_news_count_once(again: Callable[[Desk], None]) -> None:
    """News may be repeated: nothing is added twice."""
    desk = Desk()
    desk.put(0, 1, running=4)
    before = desk.at(1.5).stable
    again(desk)
    after = desk.at(1.5).stable
    assert before is not None
    assert after is not None
    assert 0.85 * before <= after <= before + 1e-9  # what gathers since the newest window may begin anew


def test_a_merged_window_adds_only_what_is_new() -> None:
    """A window that goes back behind the end of the last one adds the part after it."""
    desk = Desk()
    desk.put(0, 1, running=2)
    desk.put(1, 2, running=2)
    desk.put(0.5, 3, running=2)
    assert desk.at(3).stable == pytest.approx(6 / 60)


def test_gateways_and_revisions_add() -> None:
    """Each gateway and each revision counts by itself, and all together."""
    desk = Desk()
    for second in range(10):
        desk.put(second, second + 1, running=1, gateway="a")
        desk.put(second, second + 1, running=2, gateway="b")
        desk.put(second, second + 1, waiting=3, gateway="b", revision=2)
    demand = desk.at(10)
    assert (demand.running, demand.waiting) == (3, 3)
    assert demand.panic == pytest.approx(6.0)


def test_zero_is_known_and_silence_is_not() -> None:
    """A gateway that closed with zeros is known; one that stops while it has requests makes the demand unknown."""
    closed = Desk()
    closed.put(0, 1, running=1)
    closed.put(1, 2)
    assert closed.at(50).silent == 0
    assert closed.at(50).stable is not None
    silent = Desk()
    silent.put(0, 1, running=1, waiting=2)
    assert silent.at(1 + SILENCE).silent == 0
    demand = silent.at(1.01 + SILENCE)
    assert (demand.silent, demand.stable, demand.panic) == (1, None, None)
    assert (demand.running, demand.waiting) == (0, 0)


@pytest.mark.parametrize("delay", [3.0, 14.0, 50.0])
def test_what_a_slow_log_takes_at_once_is_no_burst(delay: float) -> None:
    """Two in flight all along, and the log takes nothing for a while, then all of it within a tenth of a second: it is
    two in flight, over a minute and over six seconds, and as many arrivals a second as there were."""
    desk, told = Desk(), 0.0
    for second in range(200):
        away = 100 <= second < 99 + delay
        told = 100 + delay + 0.001 * (second - 100) if away else max(told, second + 1.0)
        desk.put(second, second + 1, running=2, arrivals=5, at=told)
        if second + 1 >= 100 + delay:
            demand = desk.at(told + 0.05)
            assert demand.panic == pytest.approx(2.0, rel=0.05)
            assert demand.stable == pytest.approx(2.0, rel=0.05)


def test_the_first_that_a_slow_log_takes_is_no_burst_either() -> None:
    """A source that was never heard before: one waited for fourteen seconds, and fourteen windows come at once."""
    desk = Desk()
    for second in range(14):
        desk.put(second, second + 1, waiting=1, at=14 + second / 1000)
    demand = desk.at(14.1)
    assert demand.panic == pytest.approx(1.0, rel=0.02)
    assert demand.waiting == 1


@given(st.lists(st.floats(0.0, 2.5), min_size=30, max_size=90), st.integers(1, 9))
def test_however_late_each_window_is_none_is_counted_twice(late: list[float], level: int) -> None:
    """No average is more than what is in flight all along, whenever the log takes what is said of it, in order."""
    desk, told = Desk(stable=20.0, panic=5.0), 0.0
    for second, more in enumerate(late):
        told = max(told, second + 1 + more)
        desk.put(second, second + 1, running=level, at=told)
    demand = desk.at(told)
    for average in (demand.stable, demand.panic):
        assert average is None or average <= level * 1.05


@pytest.mark.parametrize("span", [1.0, 2.0, 6.0])
def test_a_window_that_is_late_makes_no_average_larger_than_what_ran(span: float) -> None:
    """The last level goes on, in an average over a second as in one over a minute."""
    desk = Desk(stable=span, panic=span)
    for second in range(10):
        desk.put(second, second + 1, running=4)
    demand = desk.at(10 + SILENCE)
    assert (demand.stable, demand.panic) == (pytest.approx(4.0), pytest.approx(4.0))


def test_one_silent_gateway_hides_no_other() -> None:
    """What the others say stands: it may raise the wish."""
    desk = Desk()
    desk.put(0, 1, running=1, gateway="a")
    desk.put(8, 9, waiting=7, gateway="b")
    demand = desk.at(9)
    assert (demand.silent, demand.waiting, demand.stable) == (1, 7, None)


def test_no_average_without_history() -> None:
    """Before the past is read, levels are known and averages are not; nor before enough of it is."""
    desk = Desk()
    desk.world = World(Gateways(), None)
    desk.put(0, 1, waiting=1)
    demand = desk.at(1)
    assert (demand.waiting, demand.stable, demand.panic) == (1, None, None)
    desk.world = World(Gateways(), Instant(T0 - 10))
    demand = desk.at(1)
    assert demand.stable is None
    assert demand.panic is not None


def test_a_short_gap_is_filled_and_a_long_one_makes_the_average_unknown() -> None:
    """One lost window is bridged by the last level; more are a hole, until it has left the window."""
    short = Desk()
    short.put(0, 1, running=3)
    short.put(3, 4, running=3)
    assert short.at(4).stable == pytest.approx(12 / 60)
    long = Desk()
    long.put(0, 1, running=3)
    long.put(11, 12, running=3)
    demand = long.at(12)
    assert demand.stable is None
    assert demand.coverage == pytest.approx(50 / 60)
    long.put(12, 13)
    assert long.at(70).stable is None
    assert long.at(71.5).stable is not None
    assert long.at(71.5).coverage == 1.0


def test_idle_keeps_nothing_but_when_it_was_active() -> None:
    """After a stable window of zeros the rings and sources are gone."""
    desk = Desk()
    desk.put(0, 1, running=3)
    desk.put(1, 2)
    busy = footprint(desk.windows)
    demand = desk.at(62)
    assert demand.stable == pytest.approx(0.0, abs=1e-9)
    assert demand.last_active_at == T0 + 1
    assert footprint(desk.windows) < busy / 3
    assert busy < 4096


def test_places_in_time_come_from_the_log() -> None:
    """A gateway whose clock is an hour off is measured as any other."""
    desk = Desk()
    for second in range(20):
        desk.put(second + 3600, second + 3601, running=2, at=second + 1)
    assert desk.at(20).panic == pytest.approx(2.0)
    assert desk.at(20).age == 0.0


def test_a_clock_set_back_starts_a_new_count() -> None:
    """After a restart with an earlier clock the gateway is heard at once."""
    desk = Desk()
    desk.put(0, 1, running=2)
    desk.put(-3600, -3600, at=2, now=Levels(waiting=1))
    assert (desk.at(2).running, desk.at(2).waiting) == (0, 1)


def test_ages_and_deadlines_are_moved_to_the_log_s_time() -> None:
    """How long the oldest waits, and until when the first may wait, do not depend on the gateway's clock."""
    desk = Desk()
    told = {"oldest_waiting_since": T0 + 995.0, "earliest_deadline": T0 + 1010.0}
    desk.put(999, 1000, waiting=1, at=10, **told)
    demand = desk.at(12)
    assert demand.oldest_waiting == pytest.approx(7.0)
    assert demand.earliest_deadline == T0 + 20


def test_seconds_per_request() -> None:
    """Measured from what ran and what finished; unknown before anything did."""
    desk = Desk()
    desk.put(0, 1, running=2, arrivals=2)
    assert desk.at(1).seconds_per_request is None
    for second in range(1, 30):
        desk.put(second, second + 1, running=2, arrivals=4, finishes=4)
    assert desk.at(30).seconds_per_request == pytest.approx(0.5, rel=0.05)


def test_the_first_to_end_of_a_burst_are_not_its_mean() -> None:
    """Sixteen begin at once and take from one to sixteen seconds: nothing is said before half as many have ended as
    run. What is remembered stands as long as those that run may still make it true."""
    desk = Desk()
    desk.put(0, 1, running=15, arrivals=16, finishes=1)
    desk.put(1, 2, running=14, finishes=1)
    assert desk.at(2).seconds_per_request is None
    assert desk.at(2, remembered=8.5).seconds_per_request == 8.5
    assert desk.at(2, remembered=2.0).seconds_per_request == 2.0
    for second in range(2, 12):
        desk.put(second, second + 1, running=15 - second, finishes=1)
    assert desk.at(12).seconds_per_request == pytest.approx(114 / 12, rel=0.1)
    assert desk.at(12, remembered=2.0).seconds_per_request == pytest.approx((114 + 16) / (12 + 4 + 8), rel=0.1)
    assert Desk().at(0, remembered=8.5).seconds_per_request == 8.5


def test_what_came_lately() -> None:
    """Those of the last `seconds_per_request`; None while that is not known, or not all of that time is."""
    desk = Desk()
    for second in range(30):
        desk.put(second, second + 1, waiting=3 * (second + 1), arrivals=3)
    assert desk.at(30).lately is None
    assert desk.at(30, remembered=5.0).lately == pytest.approx(15.0, abs=3.0)
    assert desk.at(30, remembered=120.0).lately == pytest.approx(180.0)
    desk.put(50, 51, waiting=90, arrivals=2)
    assert desk.at(51, remembered=5.0).lately is None


def test_foreign_requests_count_from_arrival_to_finish() -> None:
    """Arrived and finished one by one, weighted by time, forgotten when nobody finishes them."""
    desk = Desk()
    desk.windows.arrived("a", Instant(T0))
    desk.windows.arrived("a", Instant(T0))
    desk.windows.arrived("b", Instant(T0 + 1))
    assert desk.at(1).running == desk.windows.level == 2
    desk.windows.finished("a", Instant(T0 + 2))
    desk.windows.finished("unknown", Instant(T0 + 2))
    demand = desk.at(3)
    assert demand.running == 1
    assert demand.panic == pytest.approx((2 + 2) / 6)
    assert desk.at(700).running == desk.windows.level == 0


def test_a_new_length_of_the_windows_is_measured_anew() -> None:
    """Levels stay; the averages are unknown until the new window is full."""
    desk = Desk()
    desk.put(0, 1, running=3)
    desk.windows.resize(Seconds(10.0), Seconds(2.0), Instant(T0 + 1))
    assert (desk.at(1).running, desk.at(1).stable) == (3, None)
    for second in range(1, 12):
        desk.put(second, second + 1, running=3)
    assert desk.at(12).stable == pytest.approx(3.0)


def test_sources_are_bounded() -> None:
    """A flood of gateways keeps the newest, and the level is that of those that are kept."""
    desk = Desk()
    for number in range(SOURCES_MOST + 50):
        desk.put(0, 1, running=1, gateway=f"g{number}", at=1 + number / 1e6)
    assert desk.windows.level == desk.at(1.01).running == SOURCES_MOST


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 2.5), st.integers(0, 9), st.booleans()), min_size=1, max_size=60))
def test_the_average_is_the_integral(pieces: list[tuple[float, int, bool]]) -> None:
    """However time is cut into windows, edges included, the average is the integral of the level over the span."""
    desk, begin, opened, integral = Desk(stable=3600.0, panic=3600.0), 0.0, 0.0, 0.0
    whole = 0.0
    for length, level, edge in pieces:
        end = begin + length
        integral += level * length
        whole += level * length
        desk.put(opened, end, running_seconds=integral, now=Levels(running=level), edge=edge)
        if not edge:
            opened, integral = end, 0.0
        begin = end
    assert desk.at(begin).stable == pytest.approx(whole / 3600.0, rel=1e-9, abs=1e-12)


def footprint(root: object) -> int:
    """Bytes of an object and all that it alone refers to."""
    known: set[int] = set()

    def size(one: object) -> int:
        if id(one) in known or isinstance(one, type | str | int | float | None):
            return 0 if id(one) in known or isinstance(one, type) else sys.getsizeof(one)
        known.add(id(one))
        total = sys.getsizeof(one)
        if isinstance(one, dict):
            total += sum(size(key) + size(held) for key, held in one.items())
        elif isinstance(one, list | tuple):
            total += sum(size(held) for held in one)
        for name in getattr(type(one), "__slots__", ()):
            total += size(getattr(one, name, None))
        return total

    return size(root)
