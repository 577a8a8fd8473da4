"""Models apart come to the same as models together."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Task, outcome
from deploy.simulation.requests import RequestTrace, Rows
from deploy.simulation.setting import Setting
from deploy.simulation.sharding import apart, joined, shards


def _trace(models: int, requests: int) -> RequestTrace:
    draws, rows = random.Random(1), Rows.empty()
    for _ in range(requests):
        rows.add(draws.uniform(0, 900), f"m{int(draws.paretovariate(1.0)) % models}", (300, 40))
    return rows.trace()


def test_each_request_and_model_is_in_one_shard() -> None:
    """Whole, in order, about as large, and no more of them than models."""
    trace = _trace(20, 400)
    parts = shards(trace, 3)
    places = np.concatenate([part.places for part in parts])
    assert sorted(places.tolist()) == list(range(len(trace)))
    assert sorted(name for part in parts for name in part.trace.names) == sorted(trace.names)
    for part in parts:
        names = [trace.names[model] for model in trace.model[part.places].tolist()]
        assert names == [part.trace.names[model] for model in part.trace.model.tolist()]
        assert (part.trace.arrived == trace.arrived[part.places]).all()
    assert len(shards(trace, 99)) == len(trace.names)


def test_apart_is_as_together() -> None:
    """Every figure, and every request's times, to the last bit."""
    trace, setting = _trace(12, 150), Setting(settles=60.0)
    for policy in ("relume", "kpa"):
        typed = read_typed(policy)
        whole = Task(trace, typed, setting).simulate()
        parts = [(part, Task(part.trace, typed, setting, trace.span).simulate()) for part in shards(trace, 4)]
        both = joined(parts)
        assert both.held == whole.held
        assert both.first == whole.first
        one, other = outcome(both, setting).figures, outcome(whole, setting).figures
        assert replace(one, gpu_seconds=0, idle_gpu_seconds=0) == replace(other, gpu_seconds=0, idle_gpu_seconds=0)
        assert round(one.gpu_seconds, 3) == round(other.gpu_seconds, 3)


def test_models_that_share_gpus_are_not_put_apart() -> None:
    """A bound on GPUs, or nodes, makes them meet."""
    assert apart(Setting())
    assert not apart(Setting(gpus=8))
    assert not apart(Setting(nodes=(8,)))


def test_more_models_than_names_that_nobody_declared_are_kept() -> None:
    """Of 1,100 declared models none is forgotten, though so many undeclared names would be."""
    setting = Setting(settles=1.0)
    rows = Rows.empty()
    for model in range(1100):
        rows.add(0.0, f"m{model}", (1, 1))
    trace = rows.trace()
    run = Task(trace, read_typed("relume"), setting).simulate()
    assert run.cost.starts == 1100
