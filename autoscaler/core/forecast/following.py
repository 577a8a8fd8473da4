"""The forecast beside the live loop: what is needed in the present grain, and what to hold through it.

A model's grains begin when it was first looked at, so that not all models learn at one instant.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from autoscaler.core.forecast.hold import GRAIN, Outlook, Past
from events.kinds import value
from events.types.shared import At, Count
from events.units import Instant, Seconds

MISSED_MOST: Final = 2
"""Grains that nobody looked at and that still count as quiet. After more of them the history is unknown and begins
anew; what it taught stays."""


@value
class Following:
    """The present grain ends at `ends_at`; at most `most` replicas were needed in it so far; `past` is before it."""

    ends_at: At
    most: Count = 0
    past: Past = Past()


@lru_cache(maxsize=1024)
def outlook(past: Past) -> Outlook:
    """What is expected. Remembered, since each is asked at every decision of a grain and learned from at its end."""
    return Outlook(past)


def follow(was: Following | None, needed: int, busy_at: float | None, now: Instant) -> Following:
    """What is known at `now`, when `needed` replicas are. `busy_at`: when somebody last asked; it may have been between
    two looks."""
    if was is None or was.ends_at > now + GRAIN:  # the clock was set back: its grain says nothing
        was = Following(ends_at=now + GRAIN, past=Past() if was is None else was.past)
    while now >= was.ends_at:
        if now >= was.ends_at + MISSED_MOST * GRAIN:
            return Following(ends_at=now + GRAIN, most=needed, past=_forgotten(was.past))
        ended = _seen(was, 0, busy_at)
        was = Following(ends_at=was.ends_at + GRAIN, past=outlook(was.past).after(ended.most))
    return _seen(was, needed, busy_at)


def held(following: Following, cold_start_cost: Seconds) -> int:
    """Replicas to hold through the present grain."""
    return outlook(following.past).hold(cold_start_cost)


def begins_at(following: Following) -> float:
    """When the present grain began."""
    return following.ends_at - GRAIN


def _seen(now: Following, needed: int, busy_at: float | None) -> Following:
    busy = busy_at is not None and begins_at(now) <= busy_at < now.ends_at
    most = max(now.most, needed, int(busy))
    return now if most == now.most else replace(now, most=most)


def _forgotten(past: Past) -> Past:
    return Past(levels=tuple(replace(level, bits="0") for level in past.levels))
