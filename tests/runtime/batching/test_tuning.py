"""How many at a time: the baseline to the letter, and that ours finds what ends most, on a simulated engine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.simulation.batching import NO_RULE, BatchEngine, Part, Rule, arrivals, simulate
from events.units import Seconds
from runtime.core.batching.tuning import LEAST, MOST, Look, adaptive, aimd_gpu, begin

WINDOW, PROMISE = Seconds(0.02), Seconds(0.2)


def look(
    use: float | None = 0.9, p99: float | None = 0.1, *, pace: float = 100.0, fill: float = 1.0, waiting: int = 0
) -> Look:
    return Look(use, None if p99 is None else Seconds(p99), pace, fill, waiting)


@pytest.mark.parametrize(("use", "p99", "most", "window"), [
    (0.9, 0.1, 8, 0.02), (0.39, 0.1, 16, 0.02), (0.4, 0.1, 8, 0.02), (0.9, 0.161, 4, 0.01), (0.9, 0.16, 8, 0.02),
    (0.1, 0.3, 12, 0.01), (None, None, 8, 0.02),
])  # fmt: skip
def test_aimd_gpu(use: float | None, p99: float | None, most: int, window: float) -> None:
    """+ 8 below 40 %; - 4 and half the wait above 80 % of the promise; both, if both; nothing of what is unknown."""
    knobs = aimd_gpu(begin(WINDOW), look(use, p99), PROMISE).knobs
    assert (knobs.most, knobs.window) == (most, window)


def test_aimd_gpu_stays_within_one_and_sixty_four_and_smooths() -> None:
    """Bounds; and one look at an idle GPU after many at a busy one raises nothing."""
    state = begin(WINDOW)
    for _ in range(20):
        state = aimd_gpu(state, look(0.0, 0.01), PROMISE)
    assert state.knobs.most == 64
    for _ in range(40):
        state = aimd_gpu(state, look(1.0, 9.0), PROMISE)
    assert state.knobs.most == 1
    busy = begin(WINDOW)
    for one in (0.9, 0.9, 0.9, 0.0):
        busy = aimd_gpu(busy, look(one, 0.1), PROMISE)
    assert busy.knobs.most == 8


LOOKS = st.builds(
    Look, gpu_use=st.none() | st.floats(0, 1), p99=st.none() | st.floats(0, 100).map(Seconds), pace=st.floats(0, 1e6),
    fill=st.floats(0, 1), waiting=st.integers(0, 10_000), takes=st.floats(0, 100).map(Seconds),
)  # fmt: skip


@pytest.mark.parametrize("rule", [aimd_gpu, adaptive])
@settings(max_examples=50)
@given(looks=st.lists(LOOKS, max_size=40), most=st.integers(1, 100))
def test_bounds(rule: Rule, looks: list[Look], most: int) -> None:
    """Whatever is seen: 1 to 64 at a time, a window no longer than was asked for, and the same again."""
    state = begin(WINDOW, most)
    for one in looks:
        after = rule(state, one, PROMISE)
        assert after == rule(state, one, PROMISE)
        state = after
        assert LEAST <= state.knobs.most <= MOST
        assert 0.0 <= state.knobs.window <= WINDOW


def test_nothing_is_tried_while_nobody_queues() -> None:
    """Quiet load leaves the knobs alone, whatever the GPU's use."""
    state = begin(WINDOW)
    for _ in range(100):
        state = adaptive(state, look(0.05, 0.02, fill=0.2), PROMISE)
    assert state.knobs.most == 8


@pytest.mark.parametrize("start", [1, 8, 48])
def test_ours_finds_the_knee(start: int) -> None:
    """An engine whose kernels are full at 16 inputs ends 444 a second there, 285 at eight, 280 at 64. Under as much
    as it can do ours comes to about 16, from below and from above."""
    load = arrivals([Part(430.0, 60.0)], seed=1)
    ours = simulate(load, begin(WINDOW, start), adaptive, PROMISE)
    assert 12 <= ours.most <= 24
    assert ours.mean_batch >= 10


@pytest.mark.parametrize("promise", [0.2, 0.5, 1.0])
def test_a_promise_that_cannot_be_kept_makes_no_queue(promise: float) -> None:
    """An engine that takes 0.41 s for one input and 0.72 s for 32: at six tenths of what it can do, fewer at a time
    (one: 2.4 a second) would only make the queue longer. Mostly ours gives it what has come together."""
    engine = BatchEngine(fixed=Seconds(0.4), each=Seconds(0.01), fits=32)
    load = arrivals([Part(26.0, 60.0)], seed=1)
    ours = simulate(load, begin(WINDOW, cap=32), adaptive, Seconds(promise), engine)
    fixed = simulate(load, begin(WINDOW, 32), NO_RULE, Seconds(promise), engine)
    assert ours.p50 <= 1.15 * fixed.p50
    assert ours.p99 <= 2.5 * fixed.p99 < 4.0


def test_smaller_batches_for_the_promise_where_they_cost_nothing() -> None:
    """An engine that takes 50 ms for each input, whatever comes together, ends each one sooner alone."""
    engine = BatchEngine(fixed=Seconds(0.0), each=Seconds(0.05), beyond=Seconds(0.05))
    load = arrivals([Part(16.0, 60.0)], seed=1)
    ours = simulate(load, begin(WINDOW), adaptive, PROMISE, engine)
    fixed = simulate(load, begin(WINDOW, 32), NO_RULE, PROMISE, engine)
    assert ours.most <= 2
    assert ours.within > fixed.within + 0.05


def test_ours_beside_the_baseline() -> None:
    """Steps of load: ours keeps half again as many within the promise as the baseline, which answers late ones with
    smaller batches, and as a fixed 32. Where a fixed one is enough, ours is no worse."""
    steps = arrivals([Part(rate, 20.0) for rate in (20.0, 200.0, 400.0, 50.0, 350.0)], seed=0)
    ours, theirs = (
        simulate(steps, begin(WINDOW), rule, PROMISE, patient=rule is aimd_gpu) for rule in (adaptive, aimd_gpu)
    )
    fixed = simulate(steps, begin(WINDOW, 32), NO_RULE, PROMISE, patient=True)
    assert ours.within >= 0.65
    assert max(theirs.within, fixed.within) <= 0.5
    quiet = arrivals([Part(20.0, 60.0)], seed=0)
    ours, fixed = (
        simulate(quiet, begin(WINDOW), adaptive, PROMISE),
        simulate(quiet, begin(WINDOW, 32), NO_RULE, PROMISE, patient=True),
    )
    assert ours.within == fixed.within == 1.0
    assert ours.p50 < 0.6 * fixed.p50


def test_the_simulated_engine() -> None:
    """By hand: two at once on an engine of 10 ms and 1 ms each, one alone later."""
    engine = BatchEngine(fixed=Seconds(0.01), each=Seconds(0.001), fits=4)
    seen = simulate([0.0, 0.0, 1.0], begin(WINDOW, 4), NO_RULE, PROMISE, engine, patient=True)
    assert (seen.requests, seen.batches, seen.mean_batch) == (3, 2, 1.5)
    assert seen.p50 == pytest.approx(0.032)
    assert seen.gpu_use == pytest.approx((0.012 * 0.5 + 0.011 * 0.25) / 1.031)
