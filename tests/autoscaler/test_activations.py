"""Activations without an end: they wait for the start, however long the keep-alive is, and then end with it."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.explain import Records, explain
from autoscaler.record import replay
from events.log import Position, Record
from events.types.replicas import ReplicasObserved
from events.types.requests import ActivationRequested
from events.units import Instant
from events.writer import EventWriter
from tests.support.autoscaling import T0, Run, declared, observed


def awaited(**scaling: Any) -> Run:
    """A model that somebody asked for at 0, without an end; it has the keep-alive 5 s, and its start takes its time."""
    run = Run(declared(keepAlive="5s", **scaling), obey=False)
    run.put(ActivationRequested(model="m", replicas=2))
    run.put(observed(starting=2))
    return run


def zero_at(run: Run, second: float) -> bool:
    """Whether the model is asked for until this second, and no longer."""
    run.advance(T0 + second - 0.1 - run.now)
    before = run.wish().replicas
    run.advance(0.2)
    return before > 0 and run.wish().replicas == 0


@pytest.mark.parametrize(("scaling", "later", "end"), [
    pytest.param({}, observed(ready=2), 13.0, id="ready: the keep-alive from then"),
    pytest.param({"maxReplicas": 1}, observed(ready=1), 13.0, id="ready: as many as there may be"),
    pytest.param({}, observed(starting=1, failures=1), 13.0, id="the start failed"),
    pytest.param({}, observed(ready=1, starting=1), 900.0, id="one of two: until a start is taken for stuck"),
    pytest.param({}, observed(starting=2), 900.0, id="not ready: as before"),
])  # fmt: skip
def test_an_activation_waits_for_the_start(scaling: dict[str, Any], later: ReplicasObserved, end: float) -> None:
    """A start of 8 s outlives a keep-alive of 5 s; and each decision, taken again from its record, is the same."""
    run = awaited(**scaling)
    run.advance(8)
    assert run.wish().replicas > 0
    run.put(later)
    assert zero_at(run, end)
    for _, wish in run.wishes:
        assert replay(wish).replicas == wish.replicas


def test_an_activation_ends_without_keep_alive() -> None:
    """What is ready then goes at once: what the decisions remember of the wait keeps nothing."""
    run = Run(declared(keepAlive="0s"), obey=False)
    run.put(ActivationRequested(model="m"))
    run.advance(8)
    run.put(observed(ready=1))
    run.advance(0.1)
    assert run.wish().replicas == 0


@pytest.mark.parametrize("history", [False, True])
def test_an_activation_outlives_the_autoscaler(*, history: bool) -> None:
    """The wait stands in the wish; another process goes on with it, and ends it when the replicas are ready."""
    run = awaited().restart(history=history)
    run.advance(8)
    assert run.wish().replicas == 2
    run.put(observed(ready=2))
    if not history:
        run.read_history()
    assert zero_at(run, 13)


def read_back(run: Run) -> None:
    """The activation is read from the log again, as a new process does."""
    past = run.fold.begin_past()
    told = EventWriter("x", run.clock).envelope(ActivationRequested(model="m", replicas=2))
    past.take(Record(Position("t", 0, 1), Instant(T0), told), run.now)
    run.fold.join_past(Instant(T0 - 60), run.now)


def test_a_wait_that_is_not_over_is_read_back() -> None:
    """The activation that is read back ends by itself before the start does: what the wish remembers goes on."""
    before = awaited()
    before.advance(1)
    run = before.restart(history=False)
    read_back(run)
    run.advance(9)
    assert run.wish().replicas == 2
    run.put(observed(ready=2))
    assert zero_at(run, 15)


def test_a_wait_that_is_over_is_not_read_back() -> None:
    """Activation, ready, zero: who reads the activation back later wakes nothing."""
    run = awaited()
    run.put(observed(ready=2))
    run.advance(6)
    assert run.wish().replicas == 0
    later = run.restart(history=False)
    read_back(later)
    later.advance(0.1)
    assert later.wish().replicas == 0


def test_the_wait_is_told() -> None:
    """Whoever asks why the model is awake learns how long it is waited for."""
    told = " ".join(explain(Records(awaited().wish())).sentences)
    assert "at least 2 replicas be awake until they are ready and for 5s after, or until 02:01:40" in told
