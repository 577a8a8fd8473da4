"""The small parts of the fold: rings, gateways, foreign requests, the agenda."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.agenda import SLACK, Agenda
from autoscaler.core.foreign import EARLY_FOR, OPEN_FOR, OPEN_MOST, Foreign
from autoscaler.core.gateways import (
    DEAD_AFTER,
    FORGOTTEN_AFTER,
    GATEWAYS_KEPT,
    QUIET_AFTER,
    SETTLED_AFTER,
    Gateways,
)
from autoscaler.core.rings import Ring
from events.units import Instant, Seconds
from tests.support.autoscaling import T0


def at(seconds: float) -> Instant:
    """An instant of the test."""
    return Instant(T0 + seconds)


class TestRing:
    """Amounts by time."""

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 2), st.floats(0, 100)), max_size=40))
    def test_it_agrees_with_a_list(self, pieces: list[tuple[float, float, float]]) -> None:
        """A dumb twin that keeps every piece gives the same sum, but for the oldest cell's evenness."""
        ring, kept, now = Ring(Seconds(10.0), 20), [], 0.0
        for gap, length, amount in pieces:
            start, now = now + gap, now + gap + length
            ring.add(T0 + start, T0 + now, amount)
            kept.append((start, now, amount))
        inside = sum(amount * part(start, end, now - 10.0) for start, end, amount in kept)
        edge = sum(amount * part(start, end, now - 10.5) for start, end, amount in kept) - inside
        low = sum(amount * part(start, end, now - 9.5) for start, end, amount in kept)
        total = ring.total(at(now))
        assert low - 1e-6 <= total <= inside + edge + 1e-6

    def test_what_is_older_than_the_span_is_gone(self) -> None:
        """Also what is added late."""
        ring = Ring(Seconds(6.0), 12)
        ring.add(T0, T0 + 1, 5.0)
        assert ring.total(at(1)) == pytest.approx(5.0)
        assert ring.total(at(7.5)) == pytest.approx(0.0)
        ring.add(T0, T0 + 1, 5.0)
        assert ring.total(at(7.5)) == pytest.approx(0.0)
        ring.add(T0, T0 + 8, 8.0)
        assert ring.total(at(8)) == pytest.approx(6.0)

    @given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=30), st.integers(0, 30))
    def test_its_cells_are_those_of_a_list(self, pieces: list[tuple[int, int]], later: int) -> None:
        """Cell by cell back from now, and the sum since any of them: as a list that keeps all seconds has it."""
        ring, seconds = Ring(Seconds(10.0), 10), [0.0] * 20
        for gap, amount in pieces:
            seconds += [0.0] * gap
            seconds[-1] += amount
            ring.add(T0 + len(seconds) - 0.5, T0 + len(seconds) - 0.5, float(amount))
        seconds += [0.0] * later
        now = at(len(seconds) - 0.5)
        assert ring.back(now) == seconds[:-12:-1]
        for back in range(11):
            assert ring.since(now - back, now) == sum(seconds[-1 - back :])


def part(start: float, end: float, since: float) -> float:
    """The part of [start, end] that lies after `since`."""
    if end <= start:
        return float(end > since)
    return max(0.0, end - max(start, since)) / (end - start)


class TestGateways:
    """When the requests of a gateway are surely over."""

    def test_silence_is_not_death(self) -> None:
        """While it beats, and while nobody can see it beat, nothing is over."""
        gateways = Gateways()
        for second in range(10):
            gateways.beat("g", "boot-1", at(second))
        assert gateways.over("g", at(5), at(9)) is None
        assert gateways.over("g", at(5), at(5000)) is None  # the log has not gone on: we may be cut off

    def test_unseen_while_the_log_goes_on_is_dead(self) -> None:
        """Five seconds of the log's own time."""
        gateways = Gateways()
        gateways.beat("g", "boot-1", at(0))
        gateways.passed(at(DEAD_AFTER))
        assert gateways.over("g", at(0), at(6)) is None
        gateways.passed(at(DEAD_AFTER + 0.1))
        assert gateways.over("g", at(0), at(6)) == at(DEAD_AFTER)

    def test_a_new_start_ends_what_was_before(self) -> None:
        """Requests die with the process that held them; what it has now is told anew within seconds."""
        gateways = Gateways()
        gateways.beat("g", "boot-1", at(0))
        gateways.beat("g", "boot-2", at(10))
        assert gateways.over("g", at(9), at(11)) is None
        gateways.beat("g", "boot-2", at(10 + SETTLED_AFTER))
        assert gateways.over("g", at(9), at(14)) == at(10)
        assert gateways.over("g", at(12), at(14)) is None

    def test_a_lost_closing_window_is_understood_after_a_minute_of_beats(self) -> None:
        """Sixty beats without a window: it has no requests of this model."""
        gateways = Gateways()
        for second in range(int(QUIET_AFTER) + 10):
            gateways.beat("g", "boot-1", at(second))
        assert gateways.over("g", at(8), at(69)) == at(8 + QUIET_AFTER)
        assert gateways.over("g", at(20), at(69)) is None

    def test_one_that_never_beats_is_forgotten_in_the_end(self) -> None:
        """After the longest time that a request may take by default."""
        assert Gateways().over("g", at(0), at(FORGOTTEN_AFTER - 1)) is None
        assert Gateways().over("g", at(0), at(FORGOTTEN_AFTER)) == at(FORGOTTEN_AFTER)

    def test_they_are_bounded(self) -> None:
        """The one unseen for longest makes room."""
        gateways = Gateways()
        for number in range(GATEWAYS_KEPT + 1):
            gateways.beat(f"g{number}", "boot", at(number / 1000))
        assert gateways.over("g0", at(0), at(9)) is None
        gateways.passed(at(100))
        assert gateways.over("g0", at(0), at(9)) is None
        assert gateways.over("g1", at(0), at(9)) is not None


class TestForeign:
    """Requests told one by one."""

    def test_they_are_bounded_and_counted(self) -> None:
        """Beyond the names that are kept, requests are counted, and finished by count."""
        foreign = Foreign()
        for number in range(OPEN_MOST + 5):
            foreign.arrive(str(number), at(0))
        assert len(foreign) == OPEN_MOST + 5
        for number in range(OPEN_MOST + 5):
            assert foreign.finish(str(number), at(0))
        assert len(foreign) == 0
        assert not foreign.finish("1", at(0))

    def test_what_nobody_finishes_ends(self) -> None:
        """Named and nameless ones alike."""
        foreign = Foreign()
        for number in range(OPEN_MOST + 1):
            foreign.arrive(str(number), at(0))
        foreign.expire(at(OPEN_FOR - 1))
        assert len(foreign) == OPEN_MOST + 1
        foreign.expire(at(OPEN_FOR))
        assert len(foreign) == 0

    def test_a_finish_that_comes_first(self) -> None:
        """Its arrival is over when it comes; for a while, and for so many."""
        foreign = Foreign()
        assert not foreign.finish("early", at(0))
        assert not foreign.arrive("early", at(1))
        assert foreign.arrive("early", at(2)), "a name may be used again"
        foreign.finish("late", at(3))
        foreign.expire(at(3 + EARLY_FOR))
        assert foreign.arrive("late", at(64))
        for number in range(2 * OPEN_MOST):
            foreign.finish(f"x{number}", at(65))
        assert len(foreign._early) == OPEN_MOST

    @given(st.permutations(["+a", "-a", "+b", "-b", "+a", "-b"]))
    def test_any_order_ends_at_zero(self, told: list[str]) -> None:
        """Whatever is repeated or comes in another order: what has been finished is not in flight."""
        foreign = Foreign()
        for what in told:
            if what[0] == "+":
                foreign.arrive(what[1], at(0))
            else:
                foreign.finish(what[1], at(0))
        assert len(foreign) <= 1, "a repeated arrival after the end looks like a new request, until it expires"


class TestAgenda:
    """Who is looked at next."""

    def test_urgent_first_then_due_in_order(self) -> None:
        """Each model once, however often it was entered."""
        agenda = Agenda()
        for model, when in [("c", 3), ("a", 1), ("b", 2), ("b", 9), ("d", 50)]:
            agenda.at(model, at(when))
        agenda.urgent("c")
        agenda.urgent("c")
        assert agenda.next_at() == 0.0
        assert agenda.take(at(10), 10) == ["c", "a", "b"]
        assert agenda.next_at() == at(50)
        assert agenda.take(at(10), 10) == []

    def test_an_earlier_time_wins(self) -> None:
        """A model is only brought forward."""
        agenda = Agenda()
        agenda.at("a", at(9))
        agenda.at("a", at(5))
        agenda.at("a", at(7))
        assert agenda.next_at() == at(5)
        assert agenda.take(at(6), 9) == ["a"]
        assert agenda.next_at() is None

    def test_neither_starves_the_other(self) -> None:
        """With both in plenty, a quarter of a slice goes to the due ones, in the order of their time."""
        agenda = Agenda()
        for number in range(100):
            agenda.urgent(f"u{number:02}")
            agenda.at(f"d{number:02}", at(number))
        taken = agenda.take(at(1000), 32)
        assert taken == [f"u{number:02}" for number in range(24)] + [f"d{number:02}" for number in range(8)]

    def test_the_heap_stays_small(self) -> None:
        """Times that were brought forward a thousand times leave no trace."""
        agenda, draw = Agenda(), random.Random(1)
        for number in range(20_000):
            agenda.at(f"m{number % 10}", at(20_000 - number + draw.random()))
            agenda.urgent(f"m{number % 10}")
            agenda.take(at(0), 1)
        assert len(agenda._heap) <= 2 * 10 + SLACK + 1

    def test_edges_come_before_all_others(self) -> None:
        """Alone if asked for so, and at the head of a slice that holds others too."""
        agenda = Agenda()
        for number in range(9):
            agenda.urgent(f"u{number}")
        for model in ("e", "u3", "f"):
            agenda.edge(model)
        assert (agenda.has_edges, agenda.next_at()) == (True, 0.0)
        assert agenda.take_edges(2) == ["e", "u3"]
        assert agenda.take(at(1), 4) == ["f", "u0", "u1", "u2"]
        assert agenda.take(at(1), 2) == ["u4", "u5"]
        assert not agenda.has_edges

    def test_forgotten_is_gone(self) -> None:
        """A deleted model comes no more."""
        agenda = Agenda()
        agenda.at("a", at(1))
        agenda.urgent("a")
        agenda.forget("a")
        assert agenda.next_at() is None
        assert agenda.take(at(9), 9) == []
