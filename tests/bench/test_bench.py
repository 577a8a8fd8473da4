"""The benchmarks run, each at tiny sizes, with results that a program can read. Their numbers are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.catalog import BENCHMARKS
from bench.figures import Figure, Target, Verdict, percentile
from tests.support.needs import ROOT

pytestmark = pytest.mark.needs("linux")


SERVICES = {
    "parts": "kafka", "kafka": "kafka", "kubernetes": "kubernetes", "coldstart": "versitygw", "prices": "traces",
}  # fmt: skip
"""Those that need a real service, or public traces, and are left out where there is none."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.needs(SERVICES[name]) if name in SERVICES else ()) for name in BENCHMARKS
])  # fmt: skip
def test_it_runs_and_tells(name: str) -> None:
    """Every benchmark measures something in its quick form, and prints JSON alone on standard output."""
    command = [sys.executable, "-m", "bench", name, "--quick", "-o", "json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    figures = told["benchmarks"][name]
    assert told["quick"] is True
    measured = [figure for figure in figures if figure["measured"] is not None]
    assert measured
    assert all(figure["measured"] > 0 for figure in measured)
    assert all(figure["why"] for figure in figures if figure["measured"] is None)


def test_an_unknown_name_is_wrong_use() -> None:
    """Exit code 2, and what there is."""
    command = [sys.executable, "-m", "bench", "nothing"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "gateway" in ran.stderr


@pytest.mark.parametrize(("measured", "verdict"), [
    (1.2, Verdict.GOAL), (1.25, Verdict.GOAL), (1.5, Verdict.REACHED), (1.6, Verdict.REACHED), (1.7, Verdict.MISSED),
    (None, Verdict.NOT_MEASURED),
])  # fmt: skip
def test_verdicts_of_ratios(measured: float | None, verdict: Verdict) -> None:
    """Gate and goal are the most that may come out; nothing measured is no verdict."""
    target = Target(1.6, 1.25, of_ratio=True)
    assert Figure("x", "us", measured, "y", 1.0, target).verdict is verdict


def test_verdicts_of_values() -> None:
    """Without a goal a figure is reached or missed; without a target it is neither."""
    assert Figure("x", "ms", 9.9, target=Target(10.0)).verdict is Verdict.REACHED
    assert Figure("x", "ms", 10.1, target=Target(10.0)).verdict is Verdict.MISSED
    assert Figure("x", "ms", 10.1).verdict is Verdict.NO_TARGET


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank; of nothing there is none."""
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(list(map(float, range(1, 101))), 0.99) == 99.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
