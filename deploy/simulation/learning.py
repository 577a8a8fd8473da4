"""Learn the forecast's prior: `python -m deploy.simulation.learning --traces DIR --write`.

All functions of the Azure Functions sample teach; every other data set is for reports. With `--half` every second one
does: what is told of Azure itself is of the others, by the prior that these taught. Each teaches as it is, as if first
seen at three later minutes (young pasts are few), and added to others at random (an app has several functions).
Logistic regression by stochastic gradients with AdaGrad, seeded: weights common to all cases plus weights of each quiet
and each age.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from autoscaler.core.forecast.features import AGES, COUNT, QUIETS, features
from autoscaler.core.forecast.history import pushed
from autoscaler.core.forecast.mixture import LEAST_ATTENTION, LIKELY, SHARPNESS
from deploy.simulation.minutes import read_azure_functions

PRIOR: Final = Path(__file__).parents[2] / "autoscaler" / "core" / "forecast" / "prior.py"
LEVELS_MOST: Final = 6
EPOCHS: Final = 16
BATCH: Final = 256
RATE: Final = 0.02
SHRINKING: Final = 1e-5
SEED: Final = 0

TOGETHER: Final = (2, 2, 2, 3, 3)
"""So many functions are added up at a time, round by round."""

OFTEN: Final = 0.9
MANY: Final = 5.0
"""A function that is needed in so large a part of the minutes, or that needs so many replicas in the mean, is not added
to others: little of them would be left to see."""

BEGINNINGS: Final = (40, 160, 280)
YOUNG: Final = 200
"""Each function teaches once more as if it were first seen in each of these minutes, its first so many minutes."""

Floats = NDArray[np.float64]


class Lessons(NamedTuple):
    """One row a grain of time: features, case, and whether it was needed then."""

    seen: Floats
    cases: NDArray[np.int64]
    happened: Floats

    def without(self, columns: range) -> Lessons:
        """As if these features said nothing."""
        seen = self.seen.copy()
        seen[:, columns.start : columns.stop] = 0.0
        return self._replace(seen=seen)

    def ageless(self) -> Lessons:
        """As if all pasts were equally old."""
        return self._replace(cases=self.cases % QUIETS)


def lessons(needed: NDArray[np.int64], grains: int | None = None) -> Lessons:
    """All that one can learn from these models (models x grains, replicas needed), or from their first `grains`."""
    return joined([_arrays(of_level(model[:grains], level, level - 1)) for model in needed
                   for level in range(1, min(int(model.max()), LEVELS_MOST) + 1)])  # fmt: skip


def joined(each: Sequence[Lessons]) -> Lessons:
    """One after the other."""
    nothing = Lessons(np.zeros((0, COUNT)), np.zeros(0, dtype=np.int64), np.zeros(0))
    return Lessons(
        np.concatenate([one.seen for one in (nothing, *each)]),
        np.concatenate([one.cases for one in (nothing, *each)]),
        np.concatenate([one.happened for one in (nothing, *each)]),
    )


def added(needed: NDArray[np.int64]) -> Lessons:
    """What functions teach beside themselves: begun later, and added up."""
    later = [lessons(needed[:, begin:], YOUNG) for begin in BEGINNINGS if begin < needed.shape[1]]
    return joined([*later, lessons(together(needed))])


def _arrays(grains: Iterator[tuple[list[float], int, bool]]) -> Lessons:
    values, cases, happened = zip(*grains, strict=True)
    return Lessons(np.array(values), np.array(cases), np.array(happened, dtype=np.float64))


def together(needed: NDArray[np.int64], seed: int = SEED) -> NDArray[np.int64]:
    """What apps of several of these functions would need: each of `TOGETHER` adds all of them up, in an order that is
    drawn."""
    some = needed[((needed > 0).mean(axis=1) < OFTEN) & (needed.mean(axis=1) < MANY)]
    drawn, sums = np.random.default_rng(seed), []
    for count in TOGETHER:
        apps = len(some) // count
        order = drawn.permutation(len(some))[: apps * count]
        sums.append(some[order].reshape(apps, count, needed.shape[1]).sum(axis=1))
    return np.concatenate(sums)


def of_level(model: NDArray[np.int64], level: int, below: int) -> Iterator[tuple[list[float], int, bool]]:
    """Features, case and outcome of each grain, for so many replicas at once; `below`: the next lower level."""
    bits, before = 0, 0
    for grain, count in enumerate(model.tolist()):
        seen = features(bits, grain, level, grain > 0 and before >= below)
        yield seen.values, seen.case, count >= level
        bits = pushed(bits, count >= level)
        before = count


class Prior(NamedTuple):
    """What was learned: mean and spread of each feature, and the weights by quiet and by age, which add up."""

    mean: Floats
    scale: Floats
    by_quiet: Floats
    by_age: Floats

    def of(self, cases: NDArray[np.int64]) -> Floats:
        """Weights in these cases."""
        found: Floats = self.by_quiet[cases % QUIETS] + self.by_age[cases // QUIETS]
        return found


def learned(alone: Lessons, more: Lessons, epochs: int = EPOCHS, seed: int = SEED, likely: float = LIKELY) -> Prior:
    """Weights that forecast these lessons well. `alone`: of functions as they are, whose mean and spread count;
    `more`: see `added`. `likely`: see `mixture`."""
    mean, scale = alone.seen.mean(axis=0), alone.seen.std(axis=0) + 1e-3
    mean[-1], scale[-1] = 0.0, 1.0  # the constant
    seen = (np.concatenate([alone.seen, more.seen]) - mean) / scale
    cases = np.concatenate([alone.cases, more.cases])
    happened = np.concatenate([alone.happened, more.happened])
    common, own = np.zeros(COUNT), np.zeros((QUIETS + len(AGES) + 1, COUNT))
    common_moved, own_moved = np.full_like(common, 1e-2), np.full_like(own, 1e-2)
    shuffled = np.random.default_rng(seed)
    for _ in range(epochs):
        order = shuffled.permutation(len(seen))
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            in_case, some = _in_case(cases[rows]), seen[rows]
            odds = np.clip((some * (common + in_case @ own)).sum(axis=1), -12.0, 12.0)
            said = 1.0 / (1.0 + np.exp(-odds))
            slopes = ((said - happened[rows]) * attention(said, likely))[:, None] * some
            step = slopes.mean(axis=0) + SHRINKING * common
            common_moved += step * step
            common -= RATE * step / np.sqrt(common_moved)
            steps = in_case.T @ slopes / BATCH + SHRINKING * own
            own_moved += steps * steps
            own -= RATE * steps / np.sqrt(own_moved)
    return Prior(mean, scale, common + own[:QUIETS], own[QUIETS:])


def _in_case(cases: NDArray[np.int64]) -> Floats:
    """Which weights count, as rows of noughts and ones: one by quiet and one by age."""
    found = np.zeros((len(cases), QUIETS + len(AGES) + 1))
    found[np.arange(len(cases)), cases % QUIETS] = 1.0
    found[np.arange(len(cases)), QUIETS + cases // QUIETS] = 1.0
    return found


def attention(said: Floats, likely: float = LIKELY) -> Floats:
    """As the forecast learns itself."""
    return 1.0 / (1.0 + np.exp((said - likely) / SHARPNESS)) + LEAST_ATTENTION


def source(prior: Prior, who: str) -> str:
    """The module that holds it. `who`: which functions taught it."""
    by_quiet, by_age = (
        "".join(f"    {_row(weights)},\n" for weights in some) for some in (prior.by_quiet, prior.by_age)
    )
    return (
        '"""What many models taught beforehand. Written by `python -m deploy.simulation.learning`; see there.\n\n'
        f"Source of the data: {who} of the Azure Functions 2019 sample (CC-BY-4.0, Azure).\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom typing import Final\n\n# fmt: off\n\n'
        'VERSION: Final = 4\n"""Of features and weights together: another version decides otherwise."""\n\n'
        f"MEAN: Final = {_row(prior.mean)}\n\n"
        f"SCALE: Final = {_row(prior.scale)}\n\n"
        f'WEIGHTS: Final = (\n{by_quiet})\n"""By quiet and how much was seen."""\n\n'
        f'AGES: Final = (\n{by_age})\n"""By age, added to these."""\n'
    )


def _row(numbers: Floats) -> str:
    texts, lines, line = [f"{number:.4g}" for number in numbers], [], "       "
    for text in texts:
        if len(line) + len(text) > 115:
            lines.append(line)
            line = "       "
        line += f" {text},"
    return "(\n" + "\n".join([*lines, line]) + "\n    )"


@click.command()
@click.option("--traces", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--write", is_flag=True, help="Write the module instead of printing it.")
@click.option("--half", is_flag=True, help="Only every second function teaches.")
def main(traces: Path, write: bool, half: bool) -> None:
    """Learn the prior anew."""
    every = read_azure_functions(traces / "azure_functions_2019_sample500_invocations.csv.gz").needed
    needed = every[:: 2 if half else 1]
    prior = learned(lessons(needed), added(needed))
    text = source(prior, "every second function" if half else "all functions")
    if write:
        PRIOR.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
