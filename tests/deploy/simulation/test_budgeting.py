"""A budget over all models: kept to from the past alone, by the prices that a replay at each of them would have."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autoscaler.core.forecast.hold import LEVELS
from deploy.simulation.budgeting import LADDER, PACE, Pace, RelumeWithin, replicas, rung_path, rungs_of, spent_by
from deploy.simulation.minutes import MinuteTrace
from deploy.simulation.naming import read_policy
from deploy.simulation.replaying import Outcome, replay


def over(trace: MinuteTrace, *typed: str) -> dict[str, Outcome]:
    """What these policies do."""
    return replay(trace, {text: read_policy(text) for text in typed}, 1, lambda _: None)


def drawn(models: int, minutes: int, seed: int) -> MinuteTrace:
    """Models that are asked now and then, some by the clock; of different sizes."""
    chance = np.random.default_rng(seed)
    rows = [
        (chance.random(minutes) < rate) * (1 + model % 2) + (np.arange(minutes) % (model + 4) == 0)
        for model, rate in enumerate(chance.uniform(0.01, 0.4, models))
    ]
    return MinuteTrace(tuple(f"m{model}" for model in range(models)), np.array(rows), chance.uniform(0.1, 1.0, models))


@pytest.mark.parametrize("needed", [[0, 1, 0, 2, 0] * 12, [9, 11, 0, 14] * 8, [200, 3, 150] * 9, [0] * 20])
def test_each_rung_holds_what_its_price_holds(needed: list[int]) -> None:
    """Replica by replica: found at once for all prices, or by a replay at one."""
    trace = MinuteTrace(("m",), np.array([needed]), np.array([0.4]))
    found = rungs_of(needed, 0.4)
    for rung in (0, 20, 37, 60, 95, len(LADDER) - 1):
        held = replicas(found, trace.needed[0], rung)
        alone = over(trace, f"relume:idleGb={LADDER[rung]:.9f}s")[f"relume:idleGb={LADDER[rung]:.9f}s"]
        assert spent_by(trace, held[None, :]).sum() == pytest.approx(alone.totals.memory_gb_seconds)
        assert np.maximum(0, trace.needed[0] - held).sum() == alone.totals.cold_starts
    assert found.shape[1] <= len(LEVELS)


def spending(minutes: int, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By rung and minute, and of a keep-alive: a world where what prices come to is `level` times what is expected."""
    chance = np.random.default_rng(1)
    plain = chance.uniform(50.0, 150.0, minutes)
    return level * Pace().shares()[:, None] * plain, plain


@pytest.mark.parametrize("level", [0.8, 1.0, 1.25])
@pytest.mark.parametrize("share", [0.9, 1.0, 1.4])
def test_it_comes_out_at_the_budget_whatever_prices_come_to(share: float, level: float) -> None:
    """At every minute after the eighth hour within three thousandths of what is aimed at, after a day within one."""
    spent, plain = spending(1440, level)
    path = rung_path(spent, plain, plain, share)
    parts = np.cumsum(spent[path, np.arange(1440)]) / (share * PACE.aim * np.cumsum(plain))
    assert np.abs(parts[480:] - 1.0).max() <= 0.003
    assert abs(parts[-1] - 1.0) <= 0.001


@pytest.mark.parametrize("share", [0.9, 1.0, 1.4])
def test_what_no_rung_costs_is_shared_by_its_neighbours(share: float) -> None:
    """Where every minute is like any other, but no price of the ladder comes to the share, both next to it are held in
    turn; taking always the cheaper would leave a debt or savings that stay."""
    plain = np.ones(1440)
    spent = 1.03 * Pace().shares()[:, None] * plain
    path = rung_path(spent, plain, plain, share)
    aimed = share * PACE.aim
    below = int(np.searchsorted(spent[:, 0], aimed, side="right")) - 1
    assert set(path[720:].tolist()) <= {below, below + 1}
    assert abs(spent[path, np.arange(1440)].sum() - aimed * 1440) < 0.25 * aimed


def test_a_budget_of_another_keep_alive_is_its_share() -> None:
    """Half of what costs twice as much is the whole, but for the first minutes."""
    spent, plain = spending(700, 1.1)
    one, other = rung_path(spent, plain, 2.0 * plain, 0.5), rung_path(spent, plain, plain, 1.0)
    assert spent[one, np.arange(700)].sum() == pytest.approx(spent[other, np.arange(700)].sum(), rel=1e-3)


@pytest.mark.parametrize("seen", [0, 1, 7, 150, 399])
def test_the_future_is_not_known(seen: int) -> None:
    """What comes after a minute changes nothing up to it."""
    spent, plain = spending(400, 1.1)
    other, changed = spent.copy(), plain.copy()
    other[:, seen:], changed[seen:] = 7.0 * other[:, seen:][::-1], 3.0 * changed[seen:]
    assert rung_path(spent, plain, plain, 0.96)[: seen + 1].tolist() == (
        rung_path(other, changed, changed, 0.96)[: seen + 1].tolist()
    )


def test_a_trace_where_nothing_happens_costs_nothing() -> None:
    """No division by what is not there."""
    trace = MinuteTrace(("m",), np.zeros((1, 90), dtype=np.int64), np.array([0.5]))
    totals = over(trace, "relume:budget=0.9")["relume:budget=0.9"].totals
    assert totals.cold_starts == 0


def test_more_budget_has_fewer_cold_starts_and_each_is_kept() -> None:
    """Twelve models, five hours: within two hundredths; and the same figures each time."""
    trace = drawn(12, 300, 3)
    typed = [f"relume:budget={share}" for share in ("0.9", "1.0", "1.2")]
    found = over(trace, "keepalive(1m)", *typed)
    plain = found["keepalive(1m)"].totals.memory_gb_seconds
    for share, name in zip((0.9, 1.0, 1.2), typed, strict=True):
        assert found[name].totals.memory_gb_seconds <= 1.02 * share * plain
    assert [found[name].totals.cold_starts for name in typed] == sorted(
        (found[name].totals.cold_starts for name in typed), reverse=True
    )
    assert over(trace, *typed) == {name: found[name] for name in typed}


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan")])
def test_a_budget_is_more_than_nothing(share: float) -> None:
    """And a number."""
    with pytest.raises(ValueError, match="a budget is a share"):
        RelumeWithin(share)
