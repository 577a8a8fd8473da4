"""What a replica carries and how late its answers are, from windows made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.core.capacity import Evidence
from autoscaler.core.policy import Objective, Promised
from autoscaler.core.serving import SPAN, Serving
from events.types.metrics import ReplicaMetrics
from events.units import Instant, Seconds
from tests.autoscaler.test_burning import sketch
from tests.support.autoscaling import T0, window

FIRST = Objective(part=0.95, within=Seconds(2.0))
TOTAL = Objective(part=0.95, within=Seconds(9.0), of=Promised.TOTAL)


def told(serving: Serving, begin: int, end: int, ready: int = 1, source: str = "g", **fields: Any) -> None:
    """A window each second, with the same in each."""
    for second in range(begin, end):
        at = T0 + second + 1
        whole = {"running": 4, "first_byte": sketch(0.5, 3.0), **fields}
        serving.window(source, window(at - 1, at, gateway=source, **whole), ready, Instant(at))


def after(serving: Serving, seconds: float) -> Evidence:
    """What is told then; something is."""
    found = serving.measure(Instant(T0 + seconds))
    assert found is not None
    return found


def test_a_span_tells_of_a_replica() -> None:
    """Ten seconds of two gateways with four running each, on two replicas: four a replica; half of the answers late.
    Nothing is told before the span is over."""
    serving = Serving((FIRST,))
    told(serving, 0, 9, ready=2)
    told(serving, 0, 9, ready=2, source="h")
    assert serving.measure(Instant(T0 + 9.5)) is None
    seen = after(serving, SPAN)
    assert (seen.ended_at, seen.concurrency, seen.ready) == (T0 + 10, 4.0, 2)
    assert (seen.answers, seen.late) == ((36,), (18,))
    assert seen.seconds == pytest.approx(1.75)
    assert after(serving, 15.0) == seen


def test_a_window_that_grew_counts_once() -> None:
    """The same interval again, with more in it."""
    serving = Serving((FIRST,))
    for end in (0.5, 1.0, 2.0):
        grown = window(T0, T0 + end, running=4, first_byte=sketch(*[0.5] * int(end * 2)))
        serving.window("g", grown, 1, Instant(T0 + end))
    seen = after(serving, SPAN)
    assert (seen.concurrency, seen.answers) == (4.0, (4,))


def test_while_replicas_come_and_go_nothing_is_told() -> None:
    """Answers of before and after are mixed; and without a replica nothing is carried."""
    serving = Serving((FIRST,))
    told(serving, 0, 5, ready=1)
    told(serving, 5, 9, ready=2)
    assert serving.measure(Instant(T0 + SPAN)) is None
    told(serving, 10, 19, ready=2)
    assert serving.measure(Instant(T0 + 2 * SPAN)) is None, "the span before is mixed"
    told(serving, 20, 29, ready=2)
    assert after(serving, 3 * SPAN).ready == 2
    nobody = Serving((FIRST,))
    told(nobody, 0, 9, ready=0)
    assert nobody.measure(Instant(T0 + SPAN)) is None


def test_the_wait_for_a_slot_is_not_the_engines() -> None:
    """Who waited a second for a slot is late only beyond three seconds, and the wait is not in the mean."""
    serving = Serving((FIRST,))
    told(serving, 0, 9, held=sketch(1.0), first_byte=sketch(2.5))
    seen = after(serving, SPAN)
    assert seen.late == (0,)
    assert seen.seconds == pytest.approx(1.5)
    assert 1.0 <= seen.held <= 1.11


def test_each_objective_by_its_own_times() -> None:
    """First tokens and whole answers."""
    serving = Serving((FIRST, TOTAL))
    told(serving, 0, 9, total=sketch(5.0, 20.0))
    seen = after(serving, SPAN)
    assert (seen.answers, seen.late) == ((18, 18), (9, 9))


def test_tokens_by_engines_or_else_by_gateways() -> None:
    """An engine's own counter, of each replica; without one what gateways counted. A counter that fell began anew."""
    serving = Serving((FIRST,))
    told(serving, 0, 9, tokens_out=50)
    assert after(serving, SPAN).tokens == 50.0
    told(serving, 10, 19, tokens_out=50)
    for at, count in ((11.0, 100.0), (13.0, 300.0), (15.0, 20.0), (17.0, 220.0)):
        metrics = ReplicaMetrics(model="m", replica="m-r1-0", revision=1, tokens_out_total=count)
        serving.metrics(metrics, Instant(T0 + at))
    assert after(serving, 2 * SPAN).tokens == 100.0


def test_another_revision_begins_anew() -> None:
    """What the old one carried says nothing of the new one."""
    serving = Serving((FIRST,))
    told(serving, 0, 9)
    told(serving, 10, 12, revision=2)
    assert serving.measure(Instant(T0 + 12.5)) is None
    assert after(serving, 2 * SPAN).answers == (4,)
