"""What each part of the forecast is worth, on Azure alone: `python -m deploy.simulation.choosing --traces DIR`.

The half that teaches the prior in two quarters: one is learned and the other judged, both ways round, without each
group of features in turn, and with other constants. The other half, and every other trace, are for reports.
Judged is the regret: what is held and not needed, and cold starts at their price, for seven prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from autoscaler.core.forecast.features import COUNT, GROUPS, QUIETS
from autoscaler.core.forecast.hold import GRAIN, LEVELS
from autoscaler.core.forecast.mixture import LIKELY, RATE, SURPRISE_LEAST
from autoscaler.core.policy import COST_MOST
from deploy.simulation.learning import (
    EPOCHS,
    LEVELS_MOST,
    Floats,
    Lessons,
    Prior,
    added,
    attention,
    joined,
    learned,
    of_level,
)
from deploy.simulation.minutes import COLD_PART, MinuteTrace, only, read_azure_functions

PRICES: Final = (12.0, 21.0, 40.0, 80.0, 150.0, 330.0, 600.0)
"""Seconds of an idle GB."""

LATE: Final = 240
"""From this minute on it is judged once more: what only helps the young does not last."""


class Streams(NamedTuple):
    """Each level of each model, up to one that was never needed: levels x minutes x features. `model`, `place`: whose
    level it is, and where it stands in `LEVELS`."""

    seen: Floats
    cases: NDArray[np.int64]
    happened: NDArray[np.bool_]
    model: NDArray[np.int64]
    place: NDArray[np.int64]
    memory_gb: Floats

    def lessons(self) -> Lessons:
        """What the prior is learned from."""
        some = self.happened.any(axis=1) & (self.place < LEVELS_MOST)
        seen, cases, happened = self.seen[some], self.cases[some], self.happened[some]
        return Lessons(seen.reshape(-1, seen.shape[-1]), cases.reshape(-1), happened.reshape(-1).astype(np.float64))

    def without(self, columns: range) -> Streams:
        """As if these features said nothing."""
        seen = self.seen.copy()
        seen[:, :, columns.start : columns.stop] = 0.0
        return self._replace(seen=seen)

    def ageless(self) -> Streams:
        """As if all pasts were equally old."""
        return self._replace(cases=self.cases % QUIETS)


class Quarter(NamedTuple):
    """Of some functions: as they are, which teaches and is judged, and what they teach beside that."""

    alone: Streams
    more: Lessons

    def prior(self, epochs: int = EPOCHS, seed: int = 0, likely: float = LIKELY) -> Prior:
        """What they teach."""
        return learned(self.alone.lessons(), self.more, epochs, seed, likely)


def quarter(trace: MinuteTrace) -> Quarter:
    """Of a trace of functions."""
    return Quarter(streams(trace), added(trace.needed))


def streams(trace: MinuteTrace) -> Streams:
    """Of every model of a trace."""
    rows = [(model, place) for model, needed in enumerate(trace.needed) for place in _places(int(needed.max()))]
    each = [
        list(of_level(trace.needed[model], LEVELS[place], LEVELS[place - 1] if place else 0)) for model, place in rows
    ]
    return Streams(
        np.array([[values for values, _, _ in one] for one in each]),
        np.array([[case for _, case, _ in one] for one in each]),
        np.array([[happened for *_, happened in one] for one in each]),
        np.array([model for model, _ in rows]),
        np.array([place for _, place in rows]),
        trace.memory_gb[[model for model, _ in rows]],
    )


def _places(most: int) -> Iterator[int]:
    for place, level in enumerate(LEVELS):
        yield place
        if level > most:
            return


def chances(of: Streams, prior: Prior, rate: float = RATE, likely: float = LIKELY) -> Floats:
    """What the forecast says before each minute (`mixture`, over all streams at once)."""
    seen = (of.seen - prior.mean) / prior.scale
    own: Floats = np.zeros((len(seen), COUNT))
    moved: Floats = np.ones((len(seen), COUNT))
    said: Floats = np.zeros(of.happened.shape)
    for minute in range(said.shape[1]):
        now = seen[:, minute]
        odds = (now * (prior.of(of.cases[:, minute]) + own)).sum(axis=1)
        said[:, minute] = 1.0 / (1.0 + np.exp(-np.clip(odds, -12.0, 12.0)))
        error = (said[:, minute] - of.happened[:, minute]) * attention(said[:, minute], likely)
        slope = np.where(np.abs(error) < SURPRISE_LEAST, 0.0, error)[:, None] * now
        moved += slope * slope
        own -= rate * slope / np.sqrt(moved)
    return said


def regrets(of: Streams, said: Floats) -> Floats:
    """GB-seconds at each price, from the first minute on and from `LATE` on."""
    width = np.diff((0, *LEVELS))[of.place] * of.memory_gb
    found = []
    for price in PRICES:
        cost = np.minimum(COST_MOST, price / of.memory_gb)
        held = said > (GRAIN / (cost + GRAIN / 2))[:, None]
        idle, cold = held & ~of.happened, ~held & of.happened
        each = (idle * GRAIN + cold * (cost + COLD_PART * GRAIN)[:, None]) * width[:, None]
        found.append((each.sum(), each[:, LATE:].sum()))
    return np.array(found).T


class Variant(NamedTuple):
    """What is tried."""

    name: str
    without: range = range(0)
    epochs: int = EPOCHS
    rate: float = RATE
    seed: int = 0
    likely: float = LIKELY
    ageless: bool = False
    more: bool = True

    def of(self, some: Quarter) -> Quarter:
        """A quarter as it sees it."""
        alone, more = some.alone.without(self.without), some.more.without(self.without)
        if self.ageless:
            alone, more = alone.ageless(), more.ageless()
        return Quarter(alone, more if self.more else joined(()))


def judged(quarters: tuple[Quarter, Quarter], tried: Variant) -> Floats:
    """Each quarter judged by what the other taught."""
    one, two = (tried.of(some) for some in quarters)
    total = np.zeros((2, len(PRICES)))
    for teach, judge in ((one, two), (two, one)):
        prior = teach.prior(tried.epochs, tried.seed, tried.likely)
        total += regrets(judge.alone, chances(judge.alone, prior, tried.rate, tried.likely))
    return total


def variants() -> Iterator[Variant]:
    """The table, line by line; the first is what there is."""
    yield Variant("as it is")
    yield from (Variant(f"another seed ({seed})", seed=seed) for seed in (1, 2))
    yield from (Variant(f"without {name}", without=columns) for name, columns in GROUPS.items())
    yield Variant("without ages", ageless=True)
    yield Variant("without begun later and added up", more=False)
    yield from (Variant(f"{epochs} epochs", epochs=epochs) for epochs in (EPOCHS // 2, 2 * EPOCHS))
    yield from (Variant(f"own rate {rate}", rate=rate) for rate in (0.05, 0.1, 0.14))
    yield from (Variant(f"learns up to {likely}", likely=likely) for likely in (0.5, 0.8, 0.9, 2.0))


def quarters_of(folder: Path) -> tuple[MinuteTrace, MinuteTrace]:
    """Of the half that teaches the prior."""
    trace = read_azure_functions(folder / "azure_functions_2019_sample500_invocations.csv.gz")
    return only(trace, trace.names[0::4]), only(trace, trace.names[2::4])


@click.command()
@click.option("--traces", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
def main(traces: Path) -> None:
    """Print how much the regret rises, in the mean of the logarithms over the prices, and at each price."""
    first, second = quarters_of(traces)
    quarters = quarter(first), quarter(second)
    base: Floats | None = None
    for tried in variants():
        found = judged(quarters, tried)
        base = found if base is None else base
        more = 100 * np.log(found / base)
        prices = " ".join(f"{one:+5.1f}" for one in more[0])
        click.echo(f"{tried.name:<24} {more[0].mean():+6.2f} % (late {more[1].mean():+6.2f} %)  {prices}")


if __name__ == "__main__":
    main()
