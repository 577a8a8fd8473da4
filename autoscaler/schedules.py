"""What a model's schedules want at an instant, and when that changes. Cron times are found by cronsim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import ceil, floor
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.core.policy import SchedulePolicy
from autoscaler.core.view import NOT_SCHEDULED, Scheduled
from events.units import Instant

SHIFT_MOST = timedelta(hours=3)
"""No zone's clock is put back further, or forth: Antarctica's Troll by two hours."""

LOOK_AGAIN = 28 * 86_400.0
"""Seconds after which is looked again where nothing comes within fifty years."""


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
    treated as Debian's cron does: a time of day that is left out comes when the clock has changed, one that is repeated
    comes the first time alone; what has `*` for its minute or hour follows the clock as it is.
    """
    zone = ZoneInfo(one.timezone)
    here = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
    comes = _follows if any(field.startswith("*") for field in one.cron.split()[:2]) else _once
    opened = following = None
    for wall in CronSim(one.cron, here + SHIFT_MOST, reverse=True):
        opened = max((at for at in (opened, *comes(wall, zone)) if at is not None and at <= now), default=None)
        if opened is not None and wall < here - SHIFT_MOST:
            break  # what is further back on the wall is further back in time
    for wall in CronSim(one.cron, here - SHIFT_MOST):
        following = min((at for at in (following, *comes(wall, zone)) if at is not None and at > now), default=None)
        if following is not None and wall > here + SHIFT_MOST:
            break
    changes = now + LOOK_AGAIN if following is None else following
    if opened is None or now >= opened + one.duration:
        return 0, Instant(changes)
    return one.min_replicas, Instant(min(opened + one.duration, changes))


# cronsim is asked for times on the wall: in a zone it cannot begin in the second of two equal hours, and takes each
# change of the clock for one of whole hours (Lord Howe's is half of one).


def _once(wall: datetime, zone: ZoneInfo) -> tuple[float, ...]:
    """When a clock shows that time first; where it never does, when it jumps over it."""
    first, second = _shown(wall, zone)
    return (first if first <= second else _shift(second, first, zone),)


def _follows(wall: datetime, zone: ZoneInfo) -> tuple[float, ...]:
    """Whenever a clock shows that time: once, twice, or never."""
    first, second = _shown(wall, zone)
    return (first,) if first == second else (first, second) if first < second else ()


def _shown(wall: datetime, zone: ZoneInfo) -> tuple[float, float]:
    """The instants by the clock before and after a change. The first is the later one where it is jumped over."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    return before, after


def _shift(since: float, until: float, zone: ZoneInfo) -> float:
    """The second between the two at which the zone's clock is changed."""
    was, same, other = _offset(since, zone), floor(since), ceil(until)
    while other - same > 1:
        middle = (same + other) // 2
        same, other = (middle, other) if _offset(middle, zone) == was else (same, middle)
    return float(other)


def _offset(at: float, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at, zone).utcoffset()
