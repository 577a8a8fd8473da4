"""The whole control loop on simulated time: many worlds, each drawn from a seed, ten minutes each.

A failure names its seed and the last events; `RELUME_SEED=N pytest tests/simulation -k one_seed` runs that one alone.
"""

from __future__ import annotations

import os

import pytest

from tests.support.simulated_story import drawn_setup, tell
from tests.support.simulated_time import simulate

MINUTES_10 = 600.0
QUICK = 6
MANY = int(os.environ.get("RELUME_SEEDS", "20"))


def run(seed: int) -> None:
    """A world from its start to the quiet at its end."""
    told = simulate(lambda: tell(drawn_setup(seed), MINUTES_10))
    assert told.endings["finished"], told


@pytest.mark.parametrize("seed", range(QUICK))
def test_whole(seed: int) -> None:
    """Whatever happens: nothing is lost, sold twice, overcommitted, stuck or left."""
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, QUICK + MANY))
def test_whole_more(seed: int) -> None:
    """The same for more seeds; RELUME_SEEDS says how many."""
    run(seed)


@pytest.mark.parametrize("seed", [2, 8])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    """A seed that failed fails again: the run hangs on nothing but the seed."""
    first, second = (simulate(lambda: tell(drawn_setup(seed), 60.0)) for _ in range(2))
    assert first == second


def test_one_seed() -> None:
    """The seed of RELUME_SEED, to replay one that failed; else 1129."""
    run(int(os.environ.get("RELUME_SEED", "1129")))
