"""How fast objectives are used up: by hand-made sketches, over the four windows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.core.burning import GAMMA, Burning
from autoscaler.core.model import Reason
from autoscaler.core.policy import Objective, Promised
from events.types.shared import Sketch
from events.units import Instant, Seconds
from tests.support.autoscaling import T0, Run, declared, window

PROMISE = (Objective(part=0.95, within=Seconds(2.0)),)


def sketch(*seconds: float) -> Sketch:
    """As a gateway would count these latencies."""
    counts: dict[int, int] = {}
    for one in seconds:
        index = 0
        while GAMMA**index < one:
            index += 1
        while GAMMA ** (index - 1) >= one:
            index -= 1
        counts[index] = counts.get(index, 0) + 1
    return Sketch(buckets=tuple(sorted(counts.items())), count=len(seconds), sum=sum(seconds))


def told(burning: Burning, at: float, good: int, bad: int, begin: float | None = None) -> None:
    """A window of so many answers."""
    seen = window(T0 + (at - 1 if begin is None else begin), T0 + at, first_byte=sketch(*[0.5] * good, *[9.0] * bad))
    burning.window("g", seen, Instant(T0 + at))


def test_a_rate_of_one_uses_the_budget_up_exactly() -> None:
    """Of 95 %, one bad of twenty; of all of them bad, twenty times that."""
    burning = Burning(PROMISE)
    for second in range(10, 400, 10):
        told(burning, second, 19, 1)
    assert burning.measure(Instant(T0 + 400)).mendable.fast == pytest.approx(1.0)
    for second in range(400, 1000, 10):
        told(burning, second, 0, 20)
    seen = burning.measure(Instant(T0 + 1000)).mendable
    assert seen.fast_now == pytest.approx(20.0)
    assert seen.fast == pytest.approx((39 * 1 + 60 * 20) / (99 * 20) / 0.05)


def test_the_bucket_of_the_promise_is_good() -> None:
    """Within the 10 % of a bucket nobody can say; what is surely later is bad."""
    burning = Burning(PROMISE)
    burning.window("g", window(T0, T0 + 1, first_byte=sketch(*[2.0] * 50, *[2.25] * 50)), Instant(T0 + 1))
    assert burning.measure(Instant(T0 + 302)).mendable.fast == pytest.approx(0.5 / 0.05)


def test_a_window_that_grew_counts_once() -> None:
    """The same interval again replaces what it said before."""
    burning = Burning(PROMISE)
    told(burning, 1.0, 10, 0, begin=0.0)
    told(burning, 2.0, 10, 10, begin=0.0)
    assert burning.measure(Instant(T0 + 310)).mendable.fast == pytest.approx(0.5 / 0.05)


def test_too_little_is_known_is_not_zero() -> None:
    """Before five minutes, or of fewer than twenty answers, nothing is said."""
    burning = Burning(PROMISE)
    told(burning, 1.0, 0, 100)
    assert burning.measure(Instant(T0 + 299)).mendable.fast is None
    seen = burning.measure(Instant(T0 + 400)).mendable
    assert (seen.fast, seen.fast_now) == (pytest.approx(20.0), None)


def test_refused_is_bad() -> None:
    """Who got no answer did not get it in time."""
    burning = Burning(PROMISE)
    burning.window("g", window(T0, T0 + 1, first_byte=sketch(*[0.5] * 30), refusals=10), Instant(T0 + 1))
    assert burning.measure(Instant(T0 + 302)).mendable.fast == pytest.approx(0.25 / 0.05)


def test_live_it_adds_and_says_so() -> None:
    """Slow answers for minutes while slots are free: a quarter more, held for a window, explained."""
    model = declared(target=3)  # given, so that it is not what a replica was learned to bear that answers first
    run = Run(replace(model, spec={**model.spec, "slo": {"timeToFirstToken": {"p95": "2s"}}}))
    seconds = 0
    while Reason.SLO_BURN not in run.wish().reasons and seconds < 400:
        run.advance(1.0)
        seconds += 1
        slow = window(run.now - 1, run.now, running=2, first_byte=sketch(9.0))
        run.put(slow, "relume/gateway/g")
    assert 299 <= seconds <= 304
    assert run.wish().replicas == 2
    assert run.wish().memory["burnFloor"] == 2


def test_every_promise_burns_by_its_own_sketch() -> None:
    """First tokens in time and whole answers late: the promise about the whole burns alone, and the other way round."""
    first, whole = PROMISE[0], Objective(part=0.95, within=Seconds(2.0), of=Promised.TOTAL)
    for late_one, objective in (("total", first), ("first_byte", whole)):
        burning, both = Burning((objective,)), Burning((first, whole))
        for one in (burning, both):
            kept = "first_byte" if late_one == "total" else "total"
            told_now = window(T0, T0 + 1, **{late_one: sketch(*[9.0] * 40), kept: sketch(*[0.5] * 40)})
            one.window("g", told_now, Instant(T0 + 1))
        assert burning.measure(Instant(T0 + 302)).mendable.fast == 0.0
        assert both.measure(Instant(T0 + 302)).mendable.fast == pytest.approx(20.0)


def test_errors_burn_availability_and_are_told_apart() -> None:
    """Of forty, ten failed and ten were refused, at 99 %: what is refused may be mended by more, what failed is not."""
    promise = (Objective(part=0.99, of=Promised.AVAILABILITY),)
    burning = Burning(promise)
    burning.window("g", window(T0, T0 + 1, finishes=20, failures=10, refusals=10), Instant(T0 + 1))
    rates = burning.measure(Instant(T0 + 302))
    assert rates.mendable.fast == pytest.approx(25.0)
    assert rates.failing is not None
    assert rates.failing.fast == pytest.approx(25.0)
    assert Burning(PROMISE).measure(Instant(T0)).failing is None


def test_a_broken_model_is_not_scaled_up() -> None:
    """Half of the answers fail, the others are late and the replica is full: nothing is added, and it is said why. Once
    they fail no more, what is late adds."""
    model = declared(target=3)
    slo = {"timeToFirstToken": {"p95": "2s"}, "availability": 99}
    run = Run(replace(model, spec={**model.spec, "slo": slo}))

    def serve(seconds: int, failures: int) -> None:
        for _ in range(seconds):
            run.advance(1.0)
            late = window(run.now - 1, run.now, running=3, finishes=1, failures=failures, first_byte=sketch(9.0))
            run.put(late, "relume/gateway/g")

    serve(700, 1)
    assert max(run.numbers()) == 1
    assert Reason.FAILING in run.decision().reasons
    assert run.decision().memory.burn_floor == 0
    serve(3700, 0)
    assert max(run.numbers()) >= 2
    assert Reason.FAILING not in run.decision().reasons
