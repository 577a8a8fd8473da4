"""What models cost: time grows with their number and no faster, memory is a few KiB each. No wall times."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.view import ModelView
from events.units import Instant
from tests.support.autoscaling import Run, declared, window


def active(models: int, seconds: int) -> Run:
    """So many models, each of which has had three requests running for some seconds."""
    run = Run(obey=False)
    for number in range(models):
        run.put(declared(f"m{number}", "u"))
    for _ in range(seconds):
        run.clock.set(run.now + 1)
        for name, view in run.fold.models.items():
            told = window(run.now - 1, run.now, running=3, model=name, arrivals=3, finishes=3)
            view.window("relume/gateway/g", told, run.now, run.fold.world)
    return run


def round_of_decisions(run: Run) -> float:
    """CPU seconds to decide each model once, the best of three."""
    views, now, best = list(run.fold.models.values()), Instant(run.now + 0.5), float("inf")
    for _ in range(3):
        begin = time.process_time()
        for view in views:
            decide_once(view, now, run)
        best = min(best, time.process_time() - begin)
    return best


def decide_once(view: ModelView, now: Instant, run: Run) -> None:
    """Observe and decide."""
    snapshot = view.snapshot(now, run.fold.world)
    assert snapshot is not None
    assert view.declared is not None
    decide(snapshot, view.declared.policy, now)


def test_decisions_cost_the_same_each_however_many(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten, some hundred, some thousand active models, one decision each: linear."""
    gc.collect()
    gc.disable()
    try:
        each = {models: round_of_decisions(active(models, 2)) / models for models in (10, 300, 3000)}
    finally:
        gc.enable()
    with capsys.disabled():
        told = ", ".join(f"{models}: {seconds * 1e6:.1f} us each" for models, seconds in each.items())
        sys.stdout.write(f"\none decision for each of so many active models: {told}\n")
    assert each[3000] < 4 * each[300]


def test_a_model_is_a_few_kib() -> None:
    """Active ones with full windows at most four, idle ones that were active at most two."""
    run = active(1, 1)
    tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        run = active(80, 70)
        run.wishes.clear()  # what is recorded lies in the log, not in the autoscaler
        gc.collect()
        busy = (tracemalloc.get_traced_memory()[0] - begin) / 80
        run.clock.set(run.now + 1)
        for name, view in run.fold.models.items():
            view.window("relume/gateway/g", window(run.now, run.now, model=name), run.now, run.fold.world)
        run.clock.set(run.now + 100)
        for view in run.fold.models.values():
            decide_once(view, run.now, run)
        gc.collect()
        idle = (tracemalloc.get_traced_memory()[0] - begin) / 80
    finally:
        tracemalloc.stop()
    assert idle < 2048
    assert busy < 4096
    assert busy - idle > 500
