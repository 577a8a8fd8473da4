"""The forecast on the live loop: grains that pass, prewarming, what may be missed, and what never changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.codec import memory_json, read_memory
from autoscaler.core.decide import decide
from autoscaler.core.forecast.following import MISSED_MOST, Following, follow, outlook
from autoscaler.core.forecast.hold import GRAIN, Outlook, Past
from autoscaler.core.model import Decision, Demand, Memory, Reason
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

PRICED = replace(POLICY, cold_start_cost=Seconds(300.0))


def at(seconds: float) -> Instant:
    """So long after the beginning."""
    return Instant(T0 + seconds)


def test_a_grain_that_ends_is_learned() -> None:
    """By the most that was needed in it; the same as when the trace is replayed."""
    following = follow(None, 1, None, at(0))
    following = follow(following, 3, None, at(20))
    following = follow(following, 0, None, at(70))
    assert following.past == Outlook(Past()).after(3)
    assert (following.most, following.ends_at) == (0, at(120))


def test_who_asked_between_two_looks_counts() -> None:
    """In the grain in which it was."""
    following = follow(follow(None, 0, None, at(0)), 0, at(59), at(61))
    assert following.past == Outlook(Past()).after(1)
    assert following.most == 0


@pytest.mark.parametrize("missed", [1, MISSED_MOST, 1000])
def test_unknown_grains_are_not_quiet_ones(missed: int) -> None:
    """A few are taken as quiet; after more the history begins anew, and what it taught stays."""
    following = Following(ends_at=at(0))
    for grain in range(20):
        following = follow(following, 1, None, at(grain * GRAIN + 1))
    later = follow(following, 0, None, at(19 * GRAIN + 2 + missed * GRAIN))
    known = missed <= MISSED_MOST
    assert (later.past.grains > 0) == known
    assert all(level.own for level in later.past.levels[:1])


def test_a_clock_that_was_set_back_begins_a_new_grain() -> None:
    """What was learned stays."""
    following = follow(follow(None, 1, None, at(0)), 1, None, at(61))
    back = follow(following, 0, None, at(-7200))
    assert (back.past, back.ends_at) == (following.past, at(-7200 + GRAIN))


def run(pattern: list[int], days: int) -> list[tuple[int, Decision]]:
    """A model that is asked for ten seconds within some grains, decided every five seconds: grain and decision."""
    memory, wished, busy_at, made = Memory(), 0, None, []
    for grain, busy in enumerate(pattern * days):
        for second in range(0, 60, 5):
            now = at(grain * 60 + second)
            running = 1 if busy and 20 <= second < 30 else 0
            busy_at = now if running else busy_at
            demand = Demand(running=running, stable=0.0, panic=0.0, last_active_at=busy_at)
            snapshot = replace(seen(wished=wished, ready=wished, memory=memory), demand=demand, taken_at=now)
            decision = decide(snapshot, PRICED, now)
            assert decide(replace(snapshot, memory=read_memory(memory_json(memory))), PRICED, now) == decision
            memory, wished = decision.memory, decision.replicas
            made.append((grain, decision))
    return made


def test_a_rhythm_is_started_ahead_and_not_held_between() -> None:
    """Asked each tenth minute: after some rounds a replica is there in that minute before anybody asks, and none is in
    most minutes between. Every decision is the same when taken again from its record."""
    made = run([1, *[0] * 9], 14)
    last = [decision for grain, decision in made if grain >= 130]
    first, between = last[0], [decision.replicas for decision in last[2 * 12 : 9 * 12]]
    assert (first.replicas, first.reasons) == (1, (Reason.FORECAST,))
    assert sum(between) == 0
    assert all(decision.again_at is not None and decision.again_at <= at(140 * 60) for decision in last)


def test_a_price_never_takes_away_what_is_asked_for() -> None:
    """A forecast that holds nothing changes nothing of what demand needs."""
    busy = seen(wished=1, ready=1, running=20, demand={"stable": 20.0, "panic": 20.0})
    assert decide(busy, PRICED, at(0)).replicas == decide(busy, POLICY, at(0)).replicas == 5


def test_without_a_price_nothing_is_remembered() -> None:
    """A fixed keep-alive costs no memory."""
    assert decide(seen(wished=1, ready=1), POLICY, at(0)).memory.forecast is None


def test_an_outlook_is_remembered() -> None:
    """It is not worked out twice."""
    past = Past(grains=3)
    assert outlook(past) is outlook(Past(grains=3))
