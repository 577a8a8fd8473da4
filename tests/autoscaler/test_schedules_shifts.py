"""Schedules over changes of a zone's clock, beside a count of every minute that there was."""

from __future__ import annotations

import random
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from autoscaler.core.policy import SchedulePolicy
from autoscaler.schedules import Schedules
from events.units import Instant, Seconds

MINUTE = timedelta(minutes=1)
AROUND = timedelta(hours=12)

SHIFTS = [
    pytest.param("Europe/Berlin", "2026-03-29T01:00", id="an hour is left out"),
    pytest.param("Europe/Berlin", "2026-10-25T01:00", id="an hour comes twice"),
    pytest.param("Australia/Lord_Howe", "2026-10-03T15:30", id="half an hour is left out"),
    pytest.param("Australia/Lord_Howe", "2026-04-04T15:00", id="half an hour comes twice"),
    pytest.param("Antarctica/Troll", "2026-10-25T01:00", id="two hours come twice"),
    pytest.param("America/Havana", "2026-03-08T05:00", id="midnight is left out"),
]
CRONS = ("30 2 * * *", "0 0 * * *", "5 1-3 * * *", "45 1 * * *", "*/15 3 * * *", "* 1 * * *", "0 * * * *")


def openings(cron: str, zone: ZoneInfo, around: datetime) -> list[float]:
    """Minute by minute: what has `*` for its minute or hour opens whenever the clock shows its time; what has not, the
    first time that it does, or when the clock has jumped over it."""
    begin, end = around - 3 * AROUND, around + 3 * AROUND
    walls = set()
    for wall in CronSim(cron, begin.astimezone(zone).replace(tzinfo=None) - timedelta(days=1)):
        if wall > end.astimezone(zone).replace(tzinfo=None):
            break
        walls.add(wall)
    follows = any(field.startswith("*") for field in cron.split()[:2])
    found, at, before = [], begin, begin.astimezone(zone).replace(tzinfo=None)
    while at < end:
        here = at.astimezone(zone)
        wall = here.replace(tzinfo=None, fold=0)
        jumped = [] if follows else [before + MINUTE * one for one in range(1, (wall - before) // MINUTE)]
        if (wall in walls and (follows or not here.fold)) or not walls.isdisjoint(jumped):
            found.append(at.timestamp())
        at, before = at + MINUTE, wall
    return found


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("zone", "shift"), SHIFTS)
def test_it_is_open_for_its_time_from_each_opening(zone: str, shift: str, cron: str) -> None:
    """Whatever the clock does while it is open, or as it opens; and the next change is the next one."""
    around, draw = datetime.fromisoformat(shift).replace(tzinfo=UTC), random.Random(3)
    opened = openings(cron, ZoneInfo(zone), around)
    for minutes in (1, 30, 90):
        one = SchedulePolicy(cron=cron, timezone=zone, min_replicas=2, duration=Seconds(60.0 * minutes))
        schedules = Schedules([one])
        for at in sorted(around.timestamp() + draw.uniform(-14_400, 14_400) for _ in range(40)):
            index = bisect_right(opened, at)
            is_open = index > 0 and at < opened[index - 1] + one.duration
            changes = min([opened[index - 1] + one.duration] * is_open + opened[index:][:1], default=0.0)
            said, kept = Schedules([one])(Instant(at)), schedules(Instant(at))
            assert (said.replicas, said.changes_at or 0.0) == (2 if is_open else 0, changes or said.changes_at), at
            assert kept == said, at
