"""What a model's schedules want at an instant, and when that changes. Cron times are found by cronsim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.core.policy import SchedulePolicy
from autoscaler.core.view import NOT_SCHEDULED, Scheduled
from events.units import Instant

OPENINGS_MOST = 1_000_000
"""Openings that are looked at, at most, to find which are open: a week of minutes is a hundredth."""

STRIDE = 28 * 86_400
"""Seconds in which a zone's clock is changed once at most: Ramadan's two changes in Morocco are further apart."""


class Schedules:
    """Answers are remembered until they change, since every decision asks."""

    def __init__(self, schedules: Sequence[SchedulePolicy]) -> None:
        self._schedules = tuple(schedules)
        self._from = self._until = Instant(0.0)
        self._known = NOT_SCHEDULED

    def __call__(self, now: Instant) -> Scheduled:
        """The most that any open window wants."""
        if not self._from <= now < self._until:
            found = [_window(one, now) for one in self._schedules]
            changes_at = min(at for _, at in found)
            self._known = Scheduled(max(replicas for replicas, _ in found), changes_at)
            self._from, self._until = now, changes_at
        return self._known


def schedules_of(schedules: Sequence[SchedulePolicy]) -> Callable[[Instant], Scheduled] | None:
    """None without schedules."""
    return Schedules(schedules) if schedules else None


def _window(one: SchedulePolicy, now: Instant) -> tuple[int, Instant]:
    """Replicas wanted now, and the next instant at which the window opens or closes.

    A window that opens while one is open prolongs it. Times that a change of the clock leaves out or repeats are
    treated as Debian's cron does (see cronsim).
    """
    here = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(one.timezone))
    coming = (found.timestamp() for found in CronSim(one.cron, here))
    later = next(at for at in coming if at > now)  # in an hour that comes twice the first may be over
    following = _before_a_shift(now, later, ZoneInfo(one.timezone))
    before = next(CronSim(one.cron, here, reverse=True), None)
    opened = None if before is None else before.timestamp()
    on_time = here.replace(second=0, microsecond=0)
    if (
        next(CronSim(one.cron, datetime.fromtimestamp(on_time.timestamp() - 60, UTC).astimezone(here.tzinfo)))
        == on_time
    ):
        opened = on_time.timestamp()  # `reverse` gives those before, not the one that is now
    if opened is None or now >= opened + one.duration:
        return 0, Instant(following)
    closes = opened + one.duration
    return one.min_replicas, Instant(min(closes, following) if following > now else closes)


def _before_a_shift(now: Instant, until: float, zone: ZoneInfo) -> float:
    """`until`, or the second at which the zone's clock is changed before it: what comes after that is found then.
    (cronsim takes each change for one of an hour; Lord Howe's is half of one.)"""
    was, same = _offset(now, zone), int(now)
    while (other := min(same + STRIDE, ceil(until))) > same and _offset(other, zone) == was:
        same = other
    while other - same > 1:
        middle = (same + other) // 2
        same, other = (middle, other) if _offset(middle, zone) == was else (same, middle)
    return min(float(other), until)


def _offset(at: float, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at, zone).utcoffset()
