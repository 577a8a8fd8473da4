"""Schedules: when they are open, over time zones and changes of the clock; and what of them is refused."""

from __future__ import annotations

import random
from datetime import datetime

import pytest
from pydantic import ValidationError

from autoscaler.core.policy import SchedulePolicy
from autoscaler.policy_spec import ScheduleSpec, read_options
from autoscaler.schedules import Schedules, schedules_of
from autoscaler.spec import ScalingSpec
from events.units import Instant, Seconds


def instant(text: str) -> Instant:
    """Of UTC unless it says otherwise."""
    return Instant(datetime.fromisoformat(text if "+" in text else text + "+00:00").timestamp())


WORK = SchedulePolicy(cron="0 8 * * MON-FRI", timezone="Europe/Berlin", min_replicas=2, duration=Seconds(3600.0))
NIGHT = SchedulePolicy(cron="30 2 * * *", timezone="Europe/Berlin", min_replicas=1, duration=Seconds(600.0))
OFTEN = SchedulePolicy(cron="*/5 * * * *", timezone="UTC", min_replicas=3, duration=Seconds(600.0))

OPEN = [
    pytest.param(WORK, "2026-11-30T06:59:59", 0, "2026-11-30T07:00:00", id="a second before"),
    pytest.param(WORK, "2026-11-30T07:00:00", 2, "2026-11-30T08:00:00", id="at its time"),
    pytest.param(WORK, "2026-11-30T07:59:59.9", 2, "2026-11-30T08:00:00", id="to its end"),
    pytest.param(WORK, "2026-11-30T08:00:00", 0, "2026-12-01T07:00:00", id="at its end"),
    pytest.param(WORK, "2026-11-28T07:30:00", 0, "2026-11-30T07:00:00", id="not on a Saturday"),
    pytest.param(WORK, "2026-07-01T06:30:00", 2, "2026-07-01T07:00:00", id="summer time is an hour earlier"),
    pytest.param(NIGHT, "2026-03-29T01:05:00", 1, "2026-03-29T01:10:00", id="a time that is left out comes after it"),
    pytest.param(OFTEN, "2026-11-30T07:07:30", 3, "2026-11-30T07:10:00", id="one that never closes"),
]


@pytest.mark.parametrize(("schedule", "now", "replicas", "until"), OPEN)
def test_when_it_is_open(schedule: SchedulePolicy, now: str, replicas: int, until: str) -> None:
    """What it wants, and when that changes or must be looked at again."""
    found = Schedules([schedule])(instant(now))
    assert (found.replicas, found.changes_at) == (replicas, instant(until))


HALF = SchedulePolicy(cron="0 5 * * *", timezone="Australia/Lord_Howe", min_replicas=2, duration=Seconds(3600.0))
JUNE = SchedulePolicy(cron="38 1 * 6 *", timezone="Australia/Lord_Howe", min_replicas=2, duration=Seconds(300.0))
RAMADAN = SchedulePolicy(cron="15 4 * * *", timezone="Africa/Casablanca", min_replicas=2, duration=Seconds(7200.0))


@pytest.mark.parametrize("schedule", [WORK, NIGHT, HALF, JUNE, RAMADAN])
@pytest.mark.parametrize("begin", ["2026-02-14T00:00:00", "2026-03-20T00:00:00", "2026-09-25T00:00:00"])
def test_nothing_changes_before_it_is_said_to(schedule: SchedulePolicy, begin: str) -> None:
    """Over every change of a zone's clock, of half an hour too, and two within a year: what is asked at any time before
    the next change is what was said, and the next change lies ahead."""
    draw, now, end = random.Random(7), instant(begin), Instant(instant(begin) + 45 * 86_400)
    while now < end:
        said = Schedules([schedule])(now)
        assert said.changes_at is not None
        assert said.changes_at > now
        for _ in range(5):
            between = Instant(now + (said.changes_at - now) * draw.random() * 0.9999)
            assert Schedules([schedule])(between).replicas == said.replicas, (now, between)
        now = Instant(min(said.changes_at, now + 6 * 3600.0))


def test_of_several_the_most_counts() -> None:
    """And the first of their changes is when to look again."""
    found = Schedules([WORK, OFTEN])(instant("2026-11-30T07:01:00"))
    assert (found.replicas, found.changes_at) == (3, instant("2026-11-30T07:05:00"))


def test_it_is_the_same_in_any_order_of_asking() -> None:
    """What is remembered between two answers changes none of them."""
    times = [instant("2026-11-30T06:00:00") + minute * 61.0 for minute in range(200)]
    kept = Schedules([WORK])
    forward = [kept(Instant(at)) for at in times]
    backward = [kept(Instant(at)) for at in reversed(times)]
    assert forward == backward[::-1] == [Schedules([WORK])(Instant(at)) for at in times]
    assert schedules_of(()) is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("cron", "61 * * * *", "is no time of cron"),
        ("cron", "0 0 30 2 *", "is no time of cron"),
        ("cron", "* * * *", "cron has five"),
        ("timezone", "Europe/Nowhere", "no time zone"),
        ("timezone", "../../etc/passwd", "no time zone"),
        ("duration", "1s", "greater than or equal to 60"),
    ],
)
def test_what_is_refused(field: str, value: str, words: str) -> None:
    """In words that name the value."""
    good = {"cron": "0 8 * * *", "minReplicas": 1, "duration": "1h"}
    with pytest.raises(ValidationError, match=words):
        ScheduleSpec.model_validate({**good, field: value})


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"policy": "kpa", "policyOptions": {"panic": 2}}, "kpa has no panic; it has targetUtilisation"),
        ({"policy": "kpa", "policyOptions": {"panicThreshold": 0.5}}, "panicThreshold.*greater than or equal to 1.1"),
        ({"policyOptions": {"cooldown": "5m"}}, "relume has no cooldown; it has keepExtra"),
        ({"policy": "keepalive", "policyOptions": {"cooldown": "5m"}}, "keepalive has none"),
        ({"policy": "mine:decide", "policyOptions": {"x": 1}}, "leave them out"),
        ({"schedules": [{"cron": "0 8 * * *", "minReplicas": 2, "duration": "1h"}]}, "maxReplicas is 1"),
        ({"mode": "dry"}, "auto"),
    ],
)
def test_options_of_policies_and_modes_are_checked(scaling: dict[str, object], words: str) -> None:
    """What a policy does not have, or cannot be, is refused when the model is applied."""
    with pytest.raises(ValidationError, match=words):
        ScalingSpec.model_validate(scaling)


def test_options_are_resolved() -> None:
    """To the plain numbers that the policy reads; left out, they are those of the original."""
    spec = ScalingSpec.model_validate({"policy": "keda", "policyOptions": {"cooldown": "1m", "tolerance": 0.2}})
    options = spec.resolve(slots=4, priority=100).options
    assert (options.cooldown, options.hpa.tolerance, options.polling) == (60.0, 0.2, 0.5)  # type: ignore[union-attr] # of keda
    assert read_options("kpa", {}) is not None
    assert read_options("keepalive", {}) is None
