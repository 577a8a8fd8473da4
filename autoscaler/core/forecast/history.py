"""When something was needed, as bits: the lowest is the last grain of time. And what followed the same past before.

A past is looked up by shifts and masks of one large integer, so that a day of minutes is 180 bytes and a look-up is a
few operations, whatever it finds. (Prediction by what followed the same past before: Cleary & Witten 1984.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

GRAINS_MOST: Final = 1440
"""Grains remembered: a day of minutes."""

GAP_MOST: Final = 240
"""Grains of quiet told apart; longer ones are as one."""

RUN_MOST: Final = 6
"""Grains of being needed told apart."""

RECENT: Final = 3
"""Last occasions looked at one by one."""

_FULL: Final = (1 << GRAINS_MOST) - 1


class Evidence(NamedTuple):
    """What followed a past: `needed` of `seen` times; `recent`: the last outcomes, newest first."""

    needed: int
    seen: int
    recent: tuple[int, ...]


def pushed(bits: int, needed: bool) -> int:
    """The history with one grain more; the oldest is forgotten beyond `GRAINS_MOST`."""
    return (bits << 1 | needed) & _FULL


def evidence(bits: int, occasions: int) -> Evidence:
    """What followed, at the grains whose bits are set in `occasions`."""
    seen = occasions.bit_count()
    if not seen:
        return _NOTHING
    recent, rest = [], occasions
    for _ in range(RECENT):
        last = rest & -rest
        recent.append(1 if bits & last else 0)
        rest ^= last
        if not rest:
            break
    return Evidence((occasions & bits).bit_count(), seen, tuple(recent))


_NOTHING: Final = Evidence(0, 0, ())


def after_suffixes(bits: int, length: int, suffixes: tuple[int, ...]) -> list[int]:
    """Occasions before which the last 1, 2, … grains were as now; one mask for each of the (rising) `suffixes`.

    `length`: grains known. An occasion needs all of its past to be known.
    """
    masks, occasions, done = [], (1 << length) - 1 if length > 0 else 0, 0
    for suffix in suffixes:
        while done < suffix and occasions:
            older = bits >> (done + 1)
            occasions &= older if bits >> done & 1 else ~older
            done += 1
        if suffix < length:
            masks.append(occasions & ((1 << (length - suffix)) - 1))
        else:
            masks.append(0)
    return masks


class Runs(NamedTuple):
    """How the past went, newest first: grains of quiet and of being needed, in turns.

    `gap` is 0 while it is needed; `run` is the run before the gap, or the one that goes on.
    """

    gap: int
    run: int
    gap_before: int


def runs(bits: int, length: int) -> Runs:
    """The last runs. What reaches to the beginning of what is known has the length known."""
    found, value, rest, left = [], 0, bits, length
    for _ in range(len(Runs._fields)):
        flipped = ~rest if value else rest
        count = min((flipped & -flipped).bit_length() - 1 if flipped else left, left)
        found.append(count)
        rest >>= count
        left -= count
        value = 1 - value
    return Runs(*found)


def after_gaps(bits: int, length: int, past: Runs) -> tuple[int, int, int]:
    """Occasions after the same runs as now: the last two, the last three, and five of them.

    Short runs are told apart up to `RUN_MOST` while one goes on, and up to half of that before.
    """
    known = (1 << length) - 1 if length > 0 else 0
    if not past.gap:
        ones = _run_of(bits, min(past.run, RUN_MOST)) >> 1
        masked = ones if past.run >= RUN_MOST else ones & ~(bits >> (min(past.run, RUN_MOST) + 1))
        exact = masked & known
        if past.run >= RUN_MOST:
            return exact, exact, exact
        before = _quiet(bits, past.gap_before, length) >> (past.run + 1)
        return exact, exact & before, exact & before
    gap = min(past.gap, GAP_MOST)
    quiet = _quiet(bits, gap, length) >> 1
    last = quiet & known
    run = min(past.run, RUN_MOST // 2)
    needed = _run_of(bits, run) >> (gap + 1)
    if past.run < RUN_MOST // 2:
        needed &= ~(bits >> (gap + run + 1))
    if past.run > RUN_MOST // 2:
        return last, last & needed, last & needed
    two = last & needed & (_quiet(bits, min(past.gap_before, GAP_MOST), length) >> (gap + past.run + 1))
    return last, last & needed, two


def _run_of(bits: int, count: int) -> int:
    """Where `count` set bits begin (towards older ones)."""
    found, have = bits, 1
    while have < count:
        step = min(have, count - have)
        found &= found >> step
        have += step
    return found if count else _FULL


def _quiet(bits: int, count: int, length: int) -> int:
    """Where exactly `count` grains of quiet begin, after a grain of being needed (older)."""
    if count >= length:
        return 0
    known = (1 << length) - 1
    return _run_of(~bits & known, count) & (bits >> count) if count < GAP_MOST else _run_of(~bits & known, count)
