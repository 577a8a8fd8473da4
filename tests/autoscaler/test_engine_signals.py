"""What engines tell of themselves as a number that a model follows: what runs and waits in them, how full they are."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.explain import Records, explain
from autoscaler.record import replay
from deploy.spec.check import check_as
from deploy.spec.model import Model
from deploy.spec.problem import SpecRefused
from events.types.metrics import ReplicaMetrics
from tests.support.autoscaling import Run, declared
from tests.support.specs import put, smallest


def follows(metric: str = "kvCacheUse", target: float = 0.8, **more: Any) -> dict[str, Any]:
    return {"engine": {"metric": metric, "target": target, **more}}


def say(run: Run, *uses: float | None, **fields: Any) -> None:
    """Each replica tells how full its cache is."""
    for index, use in enumerate(uses):
        run.put(ReplicaMetrics(model="m", replica=f"m-r1-{index}", revision=1, kv_cache_use=use, **fields))


def begun(signal: dict[str, Any], **scaling: Any) -> Run:
    """A model with one request, which runs on one replica."""
    run = Run(declared(signals=[signal], **scaling))
    run.serve(running=1, seconds=1)
    assert run.wish().replicas == 1
    return run


def why(run: Run) -> str:
    return " ".join(explain(Records(run.wish())).sentences)


def test_full_caches_need_more_replicas() -> None:
    """At once and in one step, with few requests; the record tells the number, and replays."""
    run = begun(follows())
    say(run, 0.5)
    run.serve(running=1, seconds=1)
    assert run.wish().replicas == 1
    say(run, 0.95)
    assert (run.wish().replicas, run.wish().reasons) == (2, ("Signal",))
    assert "Signal engine/kvCacheUse was 0.95, at 0.8 a replica: that needs 1.19 replicas." in why(run)
    assert replay(run.wish()).replicas == 2
    say(run, 0.95, 0.95)
    assert run.wish().replicas == 3, "added up: 1.9 at 0.8 a replica"


@pytest.mark.parametrize(("metric", "fields"), [("running", {"running": 9.0}), ("waiting", {"waiting": 9.0})])
def test_requests_in_engines_count(metric: str, fields: dict[str, float]) -> None:
    """Also those that no gateway of ours has sent there."""
    run = begun(follows(metric, 3.0))
    say(run, None, **fields)
    assert run.wish().replicas == 3


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((0.1, 0.1), "2 of 3 replicas have told kvCacheUse lately"),
        ((None, None, None), "its engines do not tell kvCacheUse"),
    ],
    ids=["one is silent", "none tells that"],
)
def test_while_not_all_have_told_nothing_is_taken_away(told: tuple[float | None, ...], words: str) -> None:
    """What is not known is not zero; and once it is known again, what is too much goes."""
    run = begun(follows(), keepAlive="30s", stableWindow="10s")
    say(run, 0.95)
    say(run, 0.95, 0.95)
    assert run.wish().replicas == 3
    for _ in range(60):
        run.serve(running=1, seconds=2)
        say(run, *told)
    assert (run.wish().replicas, run.wish().reasons) == (3, ("SignalStale",))
    assert words in why(run)
    for _ in range(120):
        run.serve(running=1, seconds=2)
        say(run, 0.1, 0.1, 0.1)
    assert run.wish().replicas == 1


def test_from_zero_and_back() -> None:
    """With no replica ready nobody can tell: nothing waits for a word, and the model sleeps and wakes as any other."""
    run = begun(follows(), keepAlive="30s", stableWindow="10s")
    say(run, 0.9)
    run.stop()
    for _ in range(60):
        run.advance(2)
        say(run, 0.0, 0.0)
    run.advance(300)
    assert (run.wish().replicas, run.wish().reasons) == (0, ("Idle",))
    again = run.restart()
    again.advance(60)
    assert again.wish().reasons == ("Idle",)
    again.serve(waiting=1, seconds=1)
    assert again.wish().replicas == 1


def test_models_that_follow_none_are_not_looked_at() -> None:
    """Each engine tells something every other second."""
    run = Run(declared())
    run.serve(running=1, seconds=1)
    before = run.decided
    say(run, 1.0, running=500.0, waiting=500.0)
    assert (run.decided, run.wish().replicas) == (before, 1)


def test_an_engine_that_tells_nothing_is_refused() -> None:
    """Of a server whose numbers are nowhere the sum would be unknown for ever, and nothing ever taken away."""
    signals = [{"engine": {"metric": "waiting", "target": 1}}]
    silent = put(smallest(), "spec.engine", {"type": "command", "options": {"command": ["serve", "{port}"]}})
    with pytest.raises(SpecRefused, match="tells no numbers; name its metricsPath"):
        check_as(Model, put(silent, "spec.scaling.signals", signals))
    check_as(Model, put(put(silent, "spec.engine.options.metricsPath", "/metrics"), "spec.scaling.signals", signals))
    check_as(Model, put(smallest(), "spec.scaling.signals", signals))
