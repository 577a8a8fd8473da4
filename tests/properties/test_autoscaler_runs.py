"""What holds over long runs of the fold and the policy together, on a simulated clock."""

from __future__ import annotations

import random
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.autoscaling import T0, Run, declared


def changes(numbers: list[int]) -> int:
    """How often the number changed direction: N to N + 1 and back is one."""
    steps = [after - before for before, after in pairwise(numbers)]
    return sum(one * other < 0 for one, other in pairwise(steps))


@settings(max_examples=8, deadline=None)
@given(running=st.integers(1, 39), gateways=st.integers(1, 3), offset=st.floats(0, 0.9))
def test_constant_load_never_flaps(running: int, gateways: int, offset: float) -> None:
    """Ten minutes at constant load: one rise, and not one change after it."""
    run = Run(declared(maxReplicas=100))
    run.advance(offset)
    for second in range(600):
        for gateway in range(gateways):
            run.serve(f"g{gateway}", running=running, seconds=0)
            if second == 0:
                run.advance(0.01)
        run.advance(1.0)
    assert max(run.numbers()) == ceil(running * gateways / 4)
    assert changes(run.numbers()) == 0
    assert run.wish().replicas == ceil(running * gateways / 4)


@pytest.mark.parametrize("wobble", [0.02, 0.1, 0.3])
def test_load_that_wobbles_around_a_boundary_does_not_flap(wobble: float) -> None:
    """A quarter of an hour of eight in flight, give or take one for a part of each second: at most one reversal."""
    run, draw = Run(declared(maxReplicas=100)), random.Random(7)
    for _ in range(900):
        run.serve(running=8, seconds=0)
        run.advance(1.0 - wobble)
        run.serve(running=draw.choice([7, 8, 9]), seconds=0)
        run.advance(wobble)
    assert changes(run.numbers()) <= 1


def test_random_arrivals_flap_less_and_less() -> None:
    """Two hours of Poisson arrivals: each regretted descent doubles the pause, so reversals are few."""
    run, draw, level = Run(declared(maxReplicas=100)), random.Random(3), 6
    for _ in range(2 * 3600):
        level = sum(draw.random() > 0.5 for _ in range(level)) + sum(draw.random() < 0.03 for _ in range(100))
        run.serve(running=level, seconds=0)
        run.advance(1.0)
    assert changes(run.numbers()) <= 20  # without patience there are more than 150


@settings(max_examples=20, deadline=None)
@given(peak=st.integers(1, 400), busy=st.integers(1, 200), start=st.floats(0, 90))
def test_from_zero_to_many_and_back(peak: int, busy: int, start: float) -> None:
    """Any burst wakes the model at once, gets what it needs in one step, and ends at zero after the keep-alive."""
    run = Run(declared(maxReplicas=50))
    run.advance(start)
    run.serve(waiting=1, seconds=0)
    assert run.wish().replicas == 1
    run.advance(0.05)
    run.serve(waiting=peak, seconds=0)
    run.advance(0.05)
    need = min(50, ceil(peak / 4))
    assert run.wish().replicas == need
    run.serve(running=peak, seconds=busy)
    assert min(run.numbers()[2 if need == 1 else 3 :], default=need) >= need
    run.stop()
    stopped = run.now
    run.advance(299.0)
    assert run.wish().replicas >= 1
    run.advance(3.0)
    assert run.wish().replicas == 0
    assert run.wishes[-1][0] <= stopped + 302
    run.serve(waiting=1, seconds=0)
    assert run.wish().replicas == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=6), st.data())
def test_a_restart_loses_no_replica(loads: list[tuple[int, int]], data: st.DataObject) -> None:
    """Restart anywhere: the wish stands, and until the past is read nothing falls. Here the past turns out to be lost:
    then the keep-alive counts from what was recorded last."""
    run = Run(declared(maxReplicas=50))
    for level, seconds in loads:
        if level:
            run.serve(running=level, seconds=seconds)
        else:
            run.stop()
            run.advance(seconds)
    wish, recorded_at = run.wish().replicas, T0 + run.wishes[-1][0]
    again = run.restart(history=False)
    again.advance(data.draw(st.floats(0, 2000)))
    assert again.wish().replicas == wish
    again.read_history()
    assert again.wish().replicas >= min(wish, 1) or again.now - recorded_at >= 299


def test_the_same_events_give_the_same_wishes() -> None:
    """Two runs over the same events record the same, to the last bit."""

    def play() -> Run:
        run, draw = Run(declared(maxReplicas=100)), random.Random(11)
        for _ in range(300):
            run.serve(f"g{draw.randrange(3)}", running=draw.randrange(30), waiting=draw.randrange(9))
        run.advance(1000)
        return run

    first, second = play(), play()
    assert first.wishes == second.wishes
    assert first.decided == second.decided
