"""The verdict on a cold start as the slot authority tells it: from phases, weights, and earlier starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.phases import ColdStartFinished
from events.types.replicas import ReplicaStatus, StartWeights
from events.units import Instant
from runtime.core.commands import TellColdStart
from runtime.ports import Ending, Outcome
from tests.support.slots import START, authority, leases, observed, replica, spans, ticket

READY = Instant(START + 6.0)
FIRST_BYTE = Instant(START + 6.3)


def slow(least: float | None) -> ReplicaStatus:
    """It began half a second after the request, and took 1 s to spawn, 4 s to load, half a second to warm up."""
    weights = StartWeights(bytes=1000, tier="disk", done=1000, at=START, least_seconds=least)
    started = replica(life=3, phases=spans(1.0, 4.0, 0.5, at=START + 0.5))
    return replace(started, ready_at=READY, weights=weights)


def finished(status: ReplicaStatus, *before: ReplicaStatus) -> ColdStartFinished:
    """What is told when one request waited for this start, after these starts were seen."""
    desk = authority()
    for earlier in before:
        desk.observe(observed(earlier), START)
        desk.observe(observed(), START)
    desk.take(ticket("r0"), START)
    (lease,) = leases(desk.observe(observed(status), READY))
    told = desk.give_back(lease.id, Outcome(Ending.FINISHED, status=200, first_byte_at=FIRST_BYTE), FIRST_BYTE)
    (one,) = [command.finished for command in told if isinstance(command, TellColdStart)]
    return one


def test_where_the_wait_went() -> None:
    """The parts of the request's own wait, which add up to it, and where the weights were."""
    told = finished(slow(0.1))
    assert told.phases == pytest.approx({"hold": 0.5, "spawn": 1.0, "load": 4.0, "warmup": 0.5, "answer": 0.3})
    assert (told.tier, told.weights_bytes) == ("disk", 1000)


def test_a_start_that_could_have_been_quicker_was_missed_by_its_slowest_part() -> None:
    """A quicker start was seen before, so the promise of 3 s could be kept; the load took most beyond its quickest."""
    told = finished(slow(0.1), replica(life=2, phases=spans(0.5, 1.0, 0.1)))
    assert told.least_seconds == pytest.approx(0.5 + 1.0 + 0.1 + 0.3)
    assert (told.verdict, told.missed_by) == ("missed", "load")


def test_bytes_that_cannot_come_in_time_make_it_impossible() -> None:
    """However quick the engine was before: what the bytes take at least is longer than promised. (An engine may be
    spawned while they come, so spawning is not added to them.)"""
    told = finished(slow(5.0), replica(life=2, phases=spans(0.5, 1.0, 0.1)))
    assert told.least_seconds == pytest.approx(5.0 + 0.1 + 0.3)
    assert told.verdict == "impossible"


def test_what_was_never_measured_is_unknown() -> None:
    """Without a measured speed there is no floor; the promise was missed, and nobody says that it could not be kept."""
    told = finished(slow(None))
    assert (told.least_seconds, told.verdict) == (None, "missed")
