"""Holding by expected cost: what is learned, what it costs, and what never changes."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.forecast.hold import GRAIN, LEVELS, Level, Outlook, Past
from events.units import Seconds

needs = st.lists(st.integers(0, 14), max_size=40)


def after(needed: list[int]) -> Outlook:
    """What is expected after these grains."""
    outlook = Outlook(Past())
    for now in needed:
        outlook = Outlook(outlook.after(now))
    return outlook


def test_what_is_never_needed_is_soon_not_held() -> None:
    """Of a model that nobody knows one replica may be worth holding; after a while of quiet none is."""
    assert after([]).hold(Seconds(3600.0)) <= 1
    assert after([0] * 60).hold(Seconds(3600.0)) == 0


def test_what_is_needed_each_minute_is_held_at_a_low_price() -> None:
    """A cold start that is worth two minutes is enough."""
    assert after([3] * 60).hold(Seconds(120.0)) == 3


def test_a_rhythm_is_learned() -> None:
    """Needed each fifth minute: held in that minute alone, at the price of a few minutes."""
    period, held = [1, 0, 0, 0, 0], []
    outlook = after(period * 30)
    for now in period * 3:
        held.append(outlook.hold(Seconds(300.0)))
        outlook = Outlook(outlook.after(now))
    assert held == period * 3


def test_a_cold_start_that_costs_half_a_grain_is_never_avoided() -> None:
    """Then a replica that is held costs more than it can save."""
    assert after([2] * 100).hold(Seconds(GRAIN / 2)) == 0


@pytest.mark.parametrize("needed", [1, 8, 9, 11, 12, 40, 1000])
def test_between_and_beyond_the_levels_the_last_grain_counts(needed: int) -> None:
    """What was needed last stays, as long as the level below it does."""
    assert after([needed] * 30).hold(Seconds(600.0)) == needed


@settings(max_examples=30)
@given(needs, st.floats(31, 1e5), st.floats(31, 1e5))
def test_a_dearer_cold_start_never_holds_less(needed: list[int], one: float, other: float) -> None:
    """Monotone in the price."""
    outlook = after(needed)
    assert outlook.hold(Seconds(min(one, other))) <= outlook.hold(Seconds(max(one, other)))


@settings(max_examples=30)
@given(needs)
def test_chances_are_chances_of_every_level_so_far_and_one_more(needed: list[int]) -> None:
    """Between nought and one."""
    chances = after(needed).chances()
    assert len(chances) == 1 + sum(level <= max(needed, default=0) for level in LEVELS)
    assert all(0 < chance < 1 for chance in chances)


@settings(max_examples=20)
@given(needs, needs)
def test_it_goes_on_from_what_was_written_down(before: list[int], then: list[int]) -> None:
    """A restart in between changes nothing: what was learned survives JSON."""
    raw = json.loads(json.dumps(asdict(after(before).past)))
    levels = tuple(Level(**level) for level in raw.pop("levels"))
    resumed = Outlook(Past(levels=levels, **raw))
    for now in then:
        resumed = Outlook(resumed.after(now))
    assert resumed.past == after([*before, *then]).past


@pytest.mark.parametrize("needed", [[1] * 1500, [0, 1] * 750])
def test_memory_is_bounded(needed: list[int]) -> None:
    """A model of one replica at a time is remembered in 4 KiB after more than a day of minutes."""
    past = after(needed).past
    assert len(json.dumps(asdict(past))) <= 4096


def test_what_was_learned_of_other_features_is_forgotten_and_the_past_is_not() -> None:
    """A record of an earlier release has other weights: they say nothing of today's features."""
    was = after([0, 1, 0, 0, 1] * 8).past
    other = tuple(Level(bits=level.bits, own=level.own[8:], moved=level.moved[8:]) for level in was.levels)
    nothing = tuple(Level(bits=level.bits) for level in was.levels)
    found = Outlook(Past(grains=was.grains, needed=was.needed, levels=other))
    assert found.chances() == Outlook(Past(grains=was.grains, needed=was.needed, levels=nothing)).chances()
    assert found.chances() != Outlook(was).chances()
