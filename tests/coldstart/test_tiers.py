"""Tiers by expected cost: one row a rule, then what holds for any prices, starts and chances."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.tiers import (
    GB,
    Coming,
    Rung,
    StartTimes,
    Tier,
    choose,
    gpus_of,
    ladder,
    least_chance,
    saves,
    second_worth,
    weights_worth,
)
from events.units import Bytes, Seconds

MINUTE, HOUR = Seconds(60.0), Seconds(3600.0)
STARTS = StartTimes(cold=30.0, fetch=60.0, wake=2.0, asleep_bytes=int(16 * GB))


def ahead(now: float, hour: float = 0.0) -> tuple[Coming, ...]:
    """Needed with this chance in the coming minute, and within the hour, through which it would be held."""
    return Coming(MINUTE, now, MINUTE), Coming(HOUR, max(now, hour), HOUR)


TABLE = [
    ("likely at once", 600.0, STARTS, ahead(0.9), Tier.WARM),
    ("a wake is nearly as good", 600.0, STARTS, ahead(0.5), Tier.ASLEEP),
    ("no sleeper was ever measured: warm by decision 60", 600.0, StartTimes(cold=30.0), ahead(0.5), Tier.WARM),
    ("a wake as slow as a start is none", 600.0, replace(STARTS, wake=30.0), ahead(0.5), Tier.WARM),
    ("within the hour, not within the minute", 600.0, STARTS, ahead(0.0, 0.5), Tier.ASLEEP),
    ("its memory costs 86 an hour, and saves 56 by that chance", 600.0, STARTS, ahead(0.0, 0.1), Tier.WEIGHTS),
    ("the dearer start", 1200.0, STARTS, ahead(0.0, 0.1), Tier.ASLEEP),
    ("weights cost next to nothing", 600.0, STARTS, ahead(0.0, 0.01), Tier.WEIGHTS),
    ("never again", 600.0, STARTS, ahead(0.0), Tier.NOTHING),
    ("what a fetch takes is not known: they stay", 600.0, StartTimes(cold=30.0), ahead(0.0), Tier.WEIGHTS),
    ("nothing was measured: by the declared cost alone", 600.0, None, ahead(0.11), Tier.WARM),
    ("as above, less likely", 600.0, None, ahead(0.08), Tier.WEIGHTS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "starts", "coming", "tier"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_tier(cost: float, starts: StartTimes | None, coming: tuple[Coming, ...], tier: Tier) -> None:
    """One row a rule: a replica of one GPU, weights of 16 GB."""
    assert choose(ladder(Seconds(cost), 1.0, starts, Bytes(int(16 * GB))), MINUTE, coming) is tier


def test_what_a_replica_takes_in_gpus() -> None:
    """Cards count as they are, whatever else it takes; one without any by its cores and memory, and never nothing."""
    assert gpus_of(4, 64.0, Bytes(1 << 40)) == 4
    assert gpus_of(0, 8.0, Bytes(int(32 * GB))) == pytest.approx(0.08 + 0.048)
    assert gpus_of(0, 0.0, Bytes(0)) == 0.01


def test_a_second_is_worth_what_was_measured() -> None:
    """A start of 30 s that is worth ten minutes of four GPUs: 80 GPU-seconds each second. Unknown without one."""
    assert second_worth(Seconds(600.0), 4.0, STARTS) == 80.0
    assert second_worth(Seconds(600.0), 4.0, StartTimes(wake=2.0)) is None


def test_weights_are_worth_the_seconds_that_they_save() -> None:
    """Within an hour: by chance, seconds and price, less the disk; never less than nothing."""
    assert weights_worth(0.5, 20.0, Seconds(10.0), Bytes(int(16 * GB))) == pytest.approx(100.0 - 3600 * 16 * 0.00004)
    assert weights_worth(0.0001, 20.0, Seconds(10.0), Bytes(int(16 * GB))) == 0.0


seconds = st.floats(0.01, 600.0)
chances = st.floats(0.0, 1.0)
made_starts = st.builds(
    StartTimes, cold=seconds, fetch=st.none() | seconds, wake=st.none() | seconds,
    asleep_bytes=st.integers(0, int(2000 * GB)),
)  # fmt: skip
prices = st.floats(1.0, 604_800.0)
takes = st.floats(0.01, 64.0)


@given(st.tuples(prices, prices), takes, made_starts, chances, chances)
def test_a_dearer_start_is_never_answered_by_a_colder_tier(
    costs: tuple[float, float], gpus: float, starts: StartTimes, now: float, hour: float
) -> None:
    """Whatever was measured and is expected."""
    tiers = [
        choose(ladder(Seconds(cost), gpus, starts, Bytes(int(GB))), MINUTE, ahead(now, hour)) for cost in sorted(costs)
    ]
    assert tiers == sorted(tiers)


@given(prices, takes, made_starts, st.tuples(chances, chances), st.tuples(chances, chances))
def test_what_is_likelier_is_never_in_a_colder_tier(
    cost: float, gpus: float, starts: StartTimes, now: tuple[float, float], hour: tuple[float, float]
) -> None:
    """Likelier in the coming minute, and in the hour."""
    rungs = ladder(Seconds(cost), gpus, starts, Bytes(int(GB)))
    tiers = [choose(rungs, MINUTE, ahead(some, more)) for some, more in zip(sorted(now), sorted(hour), strict=True)]
    assert tiers == sorted(tiers)


def expected(rung: Rung, chance: float, warm: float) -> float:
    """What a minute in this tier is expected to cost: holding it, and if it is needed the start, and half the minute of
    the replica that came."""
    return rung.rate * MINUTE + chance * (rung.start + (warm * MINUTE / 2 if rung.start else 0.0))


@given(prices, takes, made_starts, chances)
def test_for_one_minute_it_is_the_cheapest(cost: float, gpus: float, starts: StartTimes, chance: float) -> None:
    """Where nothing beyond the coming minute is known, no other tier has a lower expected cost."""
    rungs = ladder(Seconds(cost), gpus, starts, Bytes(int(GB)))
    there = {Tier.WARM: rungs.warm, Tier.ASLEEP: rungs.asleep, Tier.WEIGHTS: rungs.cold, Tier.NOTHING: rungs.nothing}
    disk = rungs.cold.rate * MINUTE
    costs = {
        tier: expected(rung, chance, gpus) + (disk if tier >= Tier.ASLEEP else 0.0)
        for tier, rung in there.items() if rung is not None
    }  # fmt: skip
    chosen = choose(rungs, MINUTE, (Coming(MINUTE, chance, MINUTE),))
    if chosen >= Tier.ASLEEP:  # these are held against what lies on disk, and lie there too
        costs = {tier: cost for tier, cost in costs.items() if tier is not Tier.NOTHING}
    assert costs[chosen] <= min(costs.values()) * (1 + 1e-9) + 1e-9


@given(prices, takes)
def test_without_sleep_it_is_the_rule_of_decision_60(cost: float, gpus: float) -> None:
    """Held warm above grain / (cost + grain / 2), however many GPUs a replica takes."""
    assert least_chance(ladder(Seconds(cost), gpus, None), MINUTE) == pytest.approx(60 / (cost + 30))


@given(st.floats(0.0, 100.0), st.floats(0.0, 1e6), st.floats(0.0, 1e6), chances)
def test_holding_never_saves_less_than_nothing(rate: float, start: float, below: float, chance: float) -> None:
    """It need not be held; and it never saves more than the start that it spares."""
    assert 0.0 <= saves(Rung(rate, start), below, ahead(chance)) <= max(0.0, below - start)
