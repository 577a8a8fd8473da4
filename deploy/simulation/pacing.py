"""How a budget is best kept to, on Azure's functions alone: `python -m deploy.simulation.pacing --traces DIR`.

Quarters of the half that teaches the prior, each forecast by what the other taught (as in `choosing`), and halves of
them. The recording has eight hours; those of its second half, drawn by chance, make a day of it. Judged at several
ends: cold starts against those of the best price for the same budget, which nobody knows beforehand, and by how much
the budget is passed. Also prints `ELSEWHERE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import click
import numpy as np
from numpy.typing import NDArray

from deploy.simulation.budgeting import LADDER, Floats, Pace, replicas, rung_path, rungs, spent_by, spent_by_rung
from deploy.simulation.choosing import Streams, chances, quarter, quarters_of
from deploy.simulation.learning import Prior
from deploy.simulation.minutes import MinuteTrace, only

BUDGETS: Final = (0.92, 0.96, 1.0, 1.1, 1.2, 1.4)
ENDS: Final = (360, 480, 720, 1440)
"""Minutes after which a trace might be over."""

HOUR: Final = 60
SHOWN: Final = (1.0, 3.0, 6.0, 10.0, 17.0, 30.0, 60.0, 120.0, 300.0, 1000.0, 3000.0, 18000.0)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Some models: by rung and minute, memory and cold starts; and the memory of `keepalive(1m)`. `elsewhere`: what
    prices came to in the other quarter."""

    spent: Floats
    cold: Floats
    plain: Floats
    elsewhere: Floats

    def best(self, share: float, end: int) -> float:
        """Cold starts at the price that comes to this share after so many minutes."""
        shares = self.spent[:, :end].sum(axis=1) / self.plain[:end].sum()
        return float(np.exp(np.interp(share, shares, np.log(self.cold[:, :end].sum(axis=1) + 1.0))))


def a_day_of(case: Case, seed: int) -> Case:
    """It, and then hours of its second half, drawn by chance, until there are as many minutes as the last of `ENDS`."""
    minutes = case.plain.size
    more = -(-max(0, ENDS[-1] - minutes) // HOUR)
    begins = minutes // 2 + HOUR * np.random.default_rng(seed).integers(0, max(1, minutes // 2 // HOUR), more)
    each = np.concatenate([np.arange(minutes), (begins[:, None] + np.arange(HOUR)).ravel()])[: max(minutes, ENDS[-1])]
    return Case(case.spent[:, each], case.cold[:, each], case.plain[each], case.elsewhere)


def late_shares(spent: Floats, plain: Floats) -> Floats:
    """By rung, memory against `keepalive(1m)` in the second half."""
    late = slice(plain.size // 2, None)
    found: Floats = spent[:, late].sum(axis=1) / plain[late].sum()
    return found


def cases(folder: Path) -> Iterator[tuple[str, Case]]:
    """Both quarters, and halves of each; a day of each."""
    traces = quarters_of(folder)
    both = [quarter(trace) for trace in traces]
    found = [_rungs(judge.alone, teach.prior()) for teach, judge in (both[::-1], both)]
    elsewhere = [late_shares(spent_by_rung(*one), _plain(one[0])) for one in zip(traces, found, strict=True)]
    for number, (trace, of_models) in enumerate(zip(traces, found, strict=True)):
        for name, part in (("", slice(None)), (".0", slice(0, None, 2)), (".1", slice(1, None, 2))):
            some = only(trace, trace.names[part])
            yield f"{number}{name}", a_day_of(_case(some, of_models[part], elsewhere[1 - number]), number)


def _rungs(judge: Streams, prior: Prior) -> list[NDArray[np.uint8]]:
    said = chances(judge, prior)
    models = range(int(judge.model.max()) + 1)
    return [rungs(said[judge.model == model].T, float(judge.memory_gb[judge.model == model][0])) for model in models]


def _plain(trace: MinuteTrace) -> Floats:
    before = np.concatenate([np.zeros((len(trace.names), 1), dtype=np.int64), trace.needed[:, :-1]], axis=1)
    return spent_by(trace, before)


def _case(trace: MinuteTrace, of_models: list[NDArray[np.uint8]], elsewhere: Floats) -> Case:
    cold = np.zeros((len(LADDER), trace.minutes))
    for found, needed in zip(of_models, trace.needed, strict=True):
        for rung in range(len(LADDER)):
            cold[rung] += np.maximum(0, needed - replicas(found, needed, rung))
    return Case(spent_by_rung(trace, of_models), cold, _plain(trace), elsewhere)


def judged(case: Case, share: float, pace: Pace) -> Iterator[tuple[float, float]]:
    """At each end: cold starts against the best price's, and how far the budget is passed."""
    told = replace(pace, elsewhere=tuple(zip(LADDER, case.elsewhere.tolist(), strict=True)))
    path = rung_path(case.spent, case.plain, case.plain, share, told)
    paid, cold = case.spent[path, np.arange(path.size)], case.cold[path, np.arange(path.size)]
    for end in (end for end in ENDS if end <= path.size):
        passed = paid[:end].sum() / (share * case.plain[:end].sum()) - 1.0
        yield float((cold[:end].sum() + 1.0) / case.best(share, end)), float(passed)


def paces() -> Iterator[Pace]:
    """The table, line by line; the first is what there is."""
    yield Pace()
    yield from (Pace(believed=believed) for believed in (0, 60, 240))
    yield from (Pace(young=young, settles=settles) for young, settles in product((0, 240, 360, 480), (30, 45, 60, 120)))
    yield from (Pace(aim=aim) for aim in (1.0, 0.999))


@click.command()
@click.option("--traces", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
def main(traces: Path) -> None:
    """Print the table."""
    found = dict(cases(traces))
    shares = np.mean([case.elsewhere for case in found.values()], axis=0)
    pairs = ", ".join(f"({price:g}, {np.interp(np.log(price), np.log(LADDER), shares):.2f})" for price in SHOWN)
    click.echo(f"ELSEWHERE: {pairs}")
    for pace in paces():
        results = np.array([[list(judged(case, share, pace)) for share in BUDGETS] for case in found.values()])
        what = f"{pace.believed:4} {pace.young:4} {pace.settles:4} {pace.aim:.4f}"
        click.echo(f"{what}: {_told(results)}; by end {_told(*np.moveaxis(results, 2, 0))}; "
                   f"by budget {_told(*np.moveaxis(results, 1, 0))}")  # fmt: skip


def _told(*parts: NDArray[np.float64]) -> str:
    """Of each: cold starts in the mean of the logarithms, and by how many per cent the budget is passed: in the mean,
    at the least and at the most."""
    return ", ".join(
        f"{np.exp(np.log(part[..., 0]).mean()):.3f} {100 * part[..., 1].mean():+.2f}"
        f" ({100 * part[..., 1].min():+.1f} {100 * part[..., 1].max():+.1f})"
        for part in parts
    )


if __name__ == "__main__":
    main()
