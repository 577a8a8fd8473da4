"""How many requests at a time an engine is given, and how long the first waits for company: looked at every 500 ms.

`aimd_gpu` is the rule that many run today, here to compare with. `adaptive` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Final

from events.units import Seconds
from runtime.core.batching.gathering import Knobs

EVERY: Final = Seconds(0.5)
LEAST, MOST = 1, 64

USE_LOW: Final = 0.4
RAISE: Final = 8
LOWER: Final = 4
NEAR: Final = 0.8
"""`aimd-gpu`: + 8 below 40 % GPU use; - 4 and half the wait when P99 passes 80 % of the promise; 1 to 64."""

SMOOTHING: Final = 0.3
"""Weight of a new look in both averages of `aimd-gpu`. Its users say "smoothed" and not how. Chosen."""

FULL: Final = 0.9
"""`adaptive` tries more only if batches were filled to this part: else fewer came than were allowed. Chosen."""

PAYS: Final = 0.03
"""With more at a time the engine must do so much more in a second, with fewer not so much less; else what was before is
taken again: beyond the knee a larger batch only makes everybody wait. Chosen."""

LOOKS: Final = 2
"""Looks at full batches over which the engine's pace is averaged: half a second alone may be a batch or two."""

REST: Final = 20
"""Looks after a step each way did not pay, before another is tried: ten seconds. And as long no smaller batches are
tried for the promise's sake after they made the engine do less."""

WINDOW_PART: Final = 0.1
"""The window is at most this part of the promise."""


@dataclass(frozen=True, slots=True)
class Look:
    """What half a second showed. `gpu_use`: 0 to 1, None: unknown. `p99`: seconds from arrival to answer, None: nothing
    ended. `pace`: inputs that the engine does in a second of its work. `fill`: mean size of batches against what was
    allowed. `waiting`: now. `takes`: seconds of the longest batch at the engine."""

    gpu_use: float | None
    p99: Seconds | None
    pace: float
    fill: float
    waiting: int
    takes: Seconds = Seconds(0.0)


@dataclass(frozen=True, slots=True)
class State:
    """What a rule remembers. `window_most`, `cap`: the most of both knobs. Of `aimd_gpu`: smoothed `use` and `p99`. Of
    `adaptive`: `pace` of the engine, over the `looks` at full batches since `knobs.most` was changed; `tried`: what was
    allowed, and its pace, before the step that is being judged; `up`: the direction of steps; `failed`: the last
    step did not pay; `rests`: looks until the next; `calm`: looks until fewer are tried for the promise's sake.
    """

    knobs: Knobs
    window_most: Seconds
    cap: int = MOST
    use: float | None = None
    p99: float | None = None
    pace: float = 0.0
    looks: int = 0
    tried: tuple[int, float] | None = None
    up: bool = True
    failed: bool = False
    rests: int = 0
    calm: int = 0


def begin(window: Seconds, most: int = 8, cap: int = MOST) -> State:
    """Where both begin."""
    cap = max(LEAST, min(MOST, cap))
    return State(Knobs(max(LEAST, min(cap, most)), window), window, cap)


def aimd_gpu(state: State, look: Look, promise: Seconds) -> State:
    """The baseline, as it is told: both sentences hold, so that a GPU hardly used under late answers gets 4 more. Its
    window never grows again; a GPU whose use is not known is taken for busy."""
    use, p99 = _smooth(state.use, look.gpu_use), _smooth(state.p99, look.p99)
    state = replace(state, use=use, p99=p99)
    most, window = state.knobs.most, state.knobs.window
    if use is not None and use < USE_LOW:
        most += RAISE
    if p99 is not None and p99 > NEAR * promise:
        most, window = most - LOWER, Seconds(window / 2)
    return replace(state, knobs=Knobs(min(state.cap, max(LEAST, most)), window))


def adaptive(state: State, look: Look, promise: Seconds) -> State:
    """Ours: climbs to the size at which the engine does most in a second, and below it when a batch itself takes too
    long and smaller ones do not make it do less.

    GPU use is not asked. It tells that some kernel ran, not that a larger batch would do more in the same time; that is
    measured instead, by a step and a look at what came of it. While nobody queues nothing is tried.
    """
    late = look.p99 is not None and look.p99 > NEAR * promise
    most, window = state.knobs.most, state.knobs.window
    widest = min(state.window_most, WINDOW_PART * promise)
    window = Seconds(window / 2 if late else min(widest, window + 0.1 * widest))
    state = replace(state, knobs=Knobs(most, window), rests=max(0, state.rests - 1))
    state = replace(state, calm=max(0, state.calm - 1))
    smaller = _shorter(state, look, promise) if late else None
    if smaller is not None:
        return _changed(replace(state, tried=(most, look.pace), up=False, failed=False), smaller)
    if look.fill < FULL or not look.waiting:
        return state
    looks = state.looks + 1
    state = replace(state, looks=looks, pace=state.pace + (look.pace - state.pace) / looks)
    if looks < LOOKS or state.rests:
        return state
    if state.tried is not None:
        return _judged(state, *state.tried)
    step = max(1, ceil(sqrt(most)))
    other = min(state.cap, most + step) if state.up else max(LEAST, most - step)
    return _changed(replace(state, tried=(most, state.pace)), other)


def _shorter(state: State, look: Look, promise: Seconds) -> int | None:
    """Inputs at a time that may take short enough, if batches take too long: who just missed one waits for it and for
    their own. A step to be judged like any other: where most of a batch's time is the same for one input as for many,
    fewer at a time end fewer, and who queues waits longer. None: batches are short, or more wait than go next, or it
    did not pay lately."""
    mean = min(state.knobs.most, ceil(look.fill * state.knobs.most - 1e-9))
    if state.calm or state.tried is not None or mean <= LEAST or look.waiting > state.knobs.most:
        return None
    if 2.0 * look.takes <= NEAR * promise:
        return None
    return max(LEAST, int(mean * min(0.9, max(0.5, NEAR * promise / (2.0 * look.takes)))))


def _changed(state: State, most: int) -> State:
    """What is allowed from now on; the pace is measured anew."""
    return replace(state, knobs=Knobs(most, state.knobs.window), looks=0, pace=0.0)


def _judged(state: State, was: int, pace: float) -> State:
    """Whether the last step has paid: then on in its direction, else back, and the other way; neither: a rest."""
    pays = 1.0 + PAYS if state.up else 1.0 - PAYS
    if state.pace >= pace * pays:
        return replace(state, tried=None, failed=False)
    rests, calm = REST if state.failed else 0, state.calm if state.up else REST
    return _changed(replace(state, tried=None, up=not state.up, rests=rests, failed=not state.failed, calm=calm), was)


def _smooth(old: float | None, new: float | None) -> float | None:
    if old is None or new is None:
        return old if new is None else new
    return old + SMOOTHING * (new - old)
