"""The programs that choose: they forecast as the live one does, and judge what they say they judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from autoscaler.core.forecast.features import GROUPS
from autoscaler.core.forecast.hold import Outlook, Past
from autoscaler.core.forecast.prior import AGES, MEAN, SCALE, WEIGHTS
from deploy.simulation import choosing, pacing
from deploy.simulation.budgeting import LADDER, Pace
from deploy.simulation.choosing import PRICES, Variant, chances, judged, quarter, regrets, streams
from deploy.simulation.learning import MANY, OFTEN, TOGETHER, YOUNG, Prior, added, lessons, together
from deploy.simulation.minutes import MinuteTrace
from tests.support.needs import traces_folder


@pytest.fixture
def made() -> Callable[[int], MinuteTrace]:
    """Four models over two hours, by seed."""

    def of(seed: int) -> MinuteTrace:
        chance = np.random.default_rng(seed)
        rows = [
            (np.arange(120) % (3 + model) == 0) * (1 + model % 2) + (chance.random(120) < 0.1) for model in range(4)
        ]
        return MinuteTrace(tuple("abcd"), np.array(rows, dtype=np.int64), chance.uniform(0.1, 0.5, 4))

    return of


def test_over_all_levels_at_once_it_says_what_the_forecast_says(made: Callable[[int], MinuteTrace]) -> None:
    """Level by level, for as long as the live one looks at the level too. (It begins one with the weights of what stood
    for it, and writes four bytes a number: hence the tolerance.)"""
    trace = made(1)
    found = streams(trace)
    said = chances(found, Prior(np.array(MEAN), np.array(SCALE), np.array(WEIGHTS), np.array(AGES)))
    for model, needed in enumerate(trace.needed.tolist()):
        outlook = Outlook(Past())
        for minute, now in enumerate(needed):
            first = said[(found.model == model) & (found.place == 0), minute]
            assert outlook.chances()[0] == pytest.approx(float(first[0]), abs=1e-3)
            outlook = Outlook(outlook.after(now))


def test_what_knows_it_has_no_regret_and_ignorance_has(made: Callable[[int], MinuteTrace]) -> None:
    """At a price for which anything pays."""
    found = streams(made(2))
    known = regrets(found, found.happened.astype(np.float64))
    assert known.shape == (2, len(PRICES))
    assert known[0, -1] == 0.0
    assert regrets(found, np.zeros(found.happened.shape))[0].min() > 0.0


def test_a_group_that_is_left_out_says_nothing(made: Callable[[int], MinuteTrace]) -> None:
    """Only its features become noughts."""
    found = streams(made(3))
    columns = GROUPS["periods"]
    without = found.without(columns)
    assert not without.seen[:, :, columns.start : columns.stop].any()
    assert (np.delete(without.seen, columns, axis=2) == np.delete(found.seen, columns, axis=2)).all()
    assert set(found.ageless().cases.ravel().tolist()) <= set(range(32))


def test_functions_are_added_up_as_apps_have_several() -> None:
    """Each round has each of them once, but for the rest of a division and those that are needed nearly always or by
    many; the same each time."""
    needed = np.zeros((13, 40), dtype=np.int64)
    needed[np.arange(13), np.arange(13)] = 1
    needed[11, : int(OFTEN * 40)] = 1
    needed[12, 0] = int(MANY * 40)
    sums = together(needed)
    assert (sums == together(needed)).all()
    assert (sums != together(needed, seed=1)).any()
    assert len(sums) == sum(11 // count for count in TOGETHER)
    for count in TOGETHER:
        this, sums = sums[: 11 // count], sums[11 // count :]
        assert this.sum(axis=1).tolist() == [count] * (11 // count)
        assert this.sum(axis=0).max() == 1


def test_what_is_taught_besides_is_not_judged(made: Callable[[int], MinuteTrace]) -> None:
    """Without it a quarter is the same but for what it teaches; without a feature neither says it."""
    whole = quarter(made(6))
    alone = Variant("", more=False).of(whole)
    assert (alone.alone.seen == whole.alone.seen).all()
    assert len(alone.more.happened) == 0 < len(whole.more.happened)
    columns = GROUPS["periods"]
    without = Variant("", without=columns, ageless=True).of(whole)
    assert not without.more.seen[:, columns.start : columns.stop].any()
    assert set(without.more.cases.tolist()) <= set(range(32))


def test_a_function_teaches_again_as_if_it_were_first_seen_later() -> None:
    """Two functions with two levels, from each of three minutes on; only the last sees what is needed. And added up."""
    needed = np.zeros((2, 480), dtype=np.int64)
    needed[:, 470] = 2
    rows = added(needed)
    assert len(rows.happened) == 3 * YOUNG * 4 + len(lessons(together(needed)).happened)
    assert np.flatnonzero(rows.happened[: 3 * YOUNG * 4]).tolist() == [
        2 * YOUNG * 4 + k * YOUNG + 190 for k in range(4)
    ]


@pytest.mark.slow
def test_each_is_judged_by_what_the_other_taught(made: Callable[[int], MinuteTrace]) -> None:
    """The same each time, and not as by another seed."""
    quarters = quarter(made(4)), quarter(made(5))
    once = judged(quarters, Variant("", epochs=1))
    assert (judged(quarters, Variant("", epochs=1)) == once).all()
    assert (judged(quarters, Variant("", epochs=1, seed=1)) != once).any()


def test_a_budget_is_judged_against_the_price_that_nobody_knows() -> None:
    """One price for all minutes that comes to the share: as many cold starts as the best, and the budget not passed."""
    minutes = 480
    spent = np.linspace(0.5, 2.0, len(LADDER))[:, None] * np.ones(minutes)
    cold = np.linspace(9.0, 1.0, len(LADDER))[:, None] * np.ones(minutes)
    case = pacing.Case(spent, cold, np.ones(minutes), spent[:, 0])
    for part, passed in pacing.judged(case, 1.0, Pace()):
        assert part == pytest.approx(1.0, abs=0.05)
        assert abs(passed) <= 0.001


def test_a_day_is_the_recording_and_hours_of_its_second_half() -> None:
    """The same each time, and all prices and figures have the same minutes."""
    minutes = np.arange(480.0)
    recorded = pacing.Case(np.array([minutes, minutes + 0.5]), np.array([minutes + 0.25] * 2), minutes, np.ones(2))
    day = pacing.a_day_of(recorded, 3)
    assert day.plain.size == pacing.ENDS[-1]
    assert (day.plain[:480] == minutes).all()
    hours = day.plain[480:].reshape(-1, 60)
    assert (hours == hours[:, :1] + np.arange(60)).all()
    assert set(hours[:, 0].tolist()) <= {240.0, 300.0, 360.0, 420.0}
    assert (day.spent == [day.plain, day.plain + 0.5]).all()
    assert (day.cold == day.plain + 0.25).all()
    assert (pacing.a_day_of(recorded, 3).plain == day.plain).all()
    assert pacing.a_day_of(day, 4).plain.size == pacing.ENDS[-1]


@pytest.mark.slow
@pytest.mark.needs("traces")
def test_a_budget_is_kept_on_what_was_recorded() -> None:
    """Azure's quarters and halves of these, after six hours, eight, twelve and a day: no budget is passed by more than
    three thousandths in the mean, none of any by more than a hundredth and a half, after a day half a hundredth either
    way; and two hundredths more cold starts at the most than by the price that nobody knows."""
    found = [case for _, case in pacing.cases(traces_folder())]
    told = np.array([[list(pacing.judged(case, share, Pace())) for share in pacing.BUDGETS] for case in found])
    cold, passed = told[..., 0], told[..., 1]
    assert passed.mean(axis=(0, 2)).max() <= 0.003
    assert passed.max() <= 0.015
    assert np.abs(passed[..., -1]).max() <= 0.005
    assert np.exp(np.log(cold).mean()) <= 1.02


@pytest.mark.parametrize("lines", [choosing.variants, pacing.paces])
def test_the_tables_begin_with_what_there_is(lines: Callable[[], Iterator[object]]) -> None:
    """And each line is tried once, but for that."""
    tried = list(lines())
    assert tried[0] in (Variant("as it is"), Pace())
    assert len(set(tried[1:])) == len(tried) - 1
