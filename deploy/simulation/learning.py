"""Learn the forecast's prior: `python -m deploy.simulation.learning --traces DIR --write`.

Every second function of the Azure Functions sample teaches; the others are for reports, and so is every other data
set. Logistic regression by stochastic gradients with AdaGrad, seeded: weights common to all cases plus weights of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from autoscaler.core.forecast.features import CASES, COUNT, Around, features
from autoscaler.core.forecast.history import pushed
from autoscaler.core.forecast.mixture import LEAST_ATTENTION, LIKELY, SHARPNESS
from deploy.simulation.minutes import read_azure_functions

PRIOR: Final = Path(__file__).parents[2] / "autoscaler" / "core" / "forecast" / "prior.py"
LEVELS_MOST: Final = 6
EPOCHS: Final = 8
BATCH: Final = 256
RATE: Final = 0.02
SHRINKING: Final = 1e-5
SEED: Final = 0

Floats = NDArray[np.float64]


class Lessons(NamedTuple):
    """One row a grain of time: features, case, and whether it was needed then."""

    seen: Floats
    cases: NDArray[np.int64]
    happened: Floats


def lessons(needed: NDArray[np.int64]) -> Lessons:
    """All that one can learn from these models (models x grains, replicas needed)."""
    rows = [row for model in needed for level in range(1, min(int(model.max()), LEVELS_MOST) + 1)
            for row in _of_level(model, level)]  # fmt: skip
    return Lessons(
        np.array([values for values, _, _ in rows], dtype=np.float64),
        np.array([case for _, case, _ in rows], dtype=np.int64),
        np.array([happened for *_, happened in rows], dtype=np.float64),
    )


def _of_level(model: NDArray[np.int64], level: int) -> Iterator[tuple[list[float], int, bool]]:
    bits, before, before_that = 0, 0, 0
    for grain, count in enumerate(model.tolist()):
        around = Around(grain > 0 and before >= level - 1, before > level, before_that > level)
        seen = features(bits, grain, level, around)
        yield seen.values, seen.case, count >= level
        bits = pushed(bits, count >= level)
        before, before_that = count, before


class Prior(NamedTuple):
    """What was learned: mean and spread of each feature, and the weights of each case."""

    mean: Floats
    scale: Floats
    weights: Floats


def learned(from_these: Lessons) -> Prior:
    """Weights that forecast these lessons well."""
    mean, scale = from_these.seen.mean(axis=0), from_these.seen.std(axis=0) + 1e-3
    mean[-1], scale[-1] = 0.0, 1.0  # the constant
    seen = (from_these.seen - mean) / scale
    common, own = np.zeros(COUNT), np.zeros((CASES, COUNT))
    common_moved, own_moved = np.full_like(common, 1e-2), np.full_like(own, 1e-2)
    shuffled = np.random.default_rng(SEED)
    for _ in range(EPOCHS):
        order = shuffled.permutation(len(seen))
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            cases, some = from_these.cases[rows], seen[rows]
            odds = np.clip((some * (common + own[cases])).sum(axis=1), -12.0, 12.0)
            said = 1.0 / (1.0 + np.exp(-odds))
            slopes = ((said - from_these.happened[rows]) * _attention(said))[:, None] * some
            step = slopes.mean(axis=0) + SHRINKING * common
            common_moved += step * step
            common -= RATE * step / np.sqrt(common_moved)
            steps = np.zeros_like(own)
            np.add.at(steps, cases, slopes)
            steps = steps / BATCH + SHRINKING * own
            own_moved += steps * steps
            own -= RATE * steps / np.sqrt(own_moved)
    return Prior(mean, scale, common + own)


def _attention(said: Floats) -> Floats:
    """As the forecast learns itself."""
    return 1.0 / (1.0 + np.exp((said - LIKELY) / SHARPNESS)) + LEAST_ATTENTION


def source(prior: Prior) -> str:
    """The module that holds it."""
    rows = [f"    {_row(weights)},\n" for weights in prior.weights]
    return (
        '"""What many models taught beforehand. Written by `python -m deploy.simulation.learning`; see there.\n\n'
        "Source of the data: every second function of the Azure Functions 2019 sample (CC-BY-4.0, Azure).\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom typing import Final\n\n# fmt: off\n\n'
        'VERSION: Final = 1\n"""Of features and weights together: another version decides otherwise."""\n\n'
        f"MEAN: Final = {_row(prior.mean)}\n\n"
        f"SCALE: Final = {_row(prior.scale)}\n\n"
        "WEIGHTS: Final = (\n" + "".join(rows) + ")\n"
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
def main(traces: Path, write: bool) -> None:
    """Learn the prior anew."""
    needed = read_azure_functions(traces / "azure_functions_2019_sample500_invocations.csv.gz").needed
    text = source(learned(lessons(needed[::2])))
    if write:
        PRIOR.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
