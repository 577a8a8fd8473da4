"""The forecast starts by how long a start takes: what the next minute is worth is ready as it begins."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.forecast.hold import GRAIN
from autoscaler.core.model import Demand, Memory, Reason, Replicas, Snapshot
from autoscaler.explain import Records, explain
from autoscaler.record import wish_of
from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Task
from deploy.simulation.requests import Rows
from deploy.simulation.setting import Setting, Starting
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0

PRICED = replace(POLICY, cold_start_cost=Seconds(60.0))
EVERY = 240.0
"""Seconds from one request to the next."""


def looks(start: float | None, rounds: int = 40) -> list[tuple[float, int, tuple[Reason, ...], Snapshot, Memory]]:
    """A request each four minutes, at the very begin of a minute; looked at each second. Of the last one: what was
    wished at which second after it, and why."""
    memory, wished, seen = Memory(), 0, []
    for tick in range(int(rounds * EVERY)):
        at, since = T0 + tick, tick % EVERY
        level = 1 if since == 0 else 0
        snapshot = Snapshot(
            model="m", uid="u", revision=1, taken_at=at, wished=wished, replicas=Replicas(ready=wished),
            demand=Demand(running=level, stable=0.0, panic=0.0, last_active_at=at - since), memory=memory,
            history_read=True, followed_since=T0 - 600, start_seconds=start,
        )  # fmt: skip
        decision = decide(snapshot, PRICED, Instant(at))
        memory, wished = decision.memory, decision.replicas
        if tick >= (rounds - 1) * EVERY:
            seen.append((since, wished, decision.reasons, snapshot, memory))
    return seen


@pytest.mark.parametrize(("start", "begins"), [(8.0, 232.0), (45.0, 195.0), (600.0, 180.0)])
def test_it_starts_so_early_that_it_is_ready(start: float, begins: float) -> None:
    """By the measured start time, and a minute ahead at most; in between nothing is held."""
    wished = {since: replicas for since, replicas, *_ in looks(start)}
    assert min(since for since, replicas in wished.items() if replicas and since > GRAIN) == begins
    assert not any(wished[since] for since in range(61, int(begins)))


def test_without_a_start_that_was_seen_it_begins_with_the_minute() -> None:
    """How long one takes is not known."""
    assert not any(replicas for since, replicas, *_ in looks(None) if since > GRAIN)


def test_it_asks_to_be_looked_at_then() -> None:
    """Without an event: the decision says when."""
    _, _, _, snapshot, _ = looks(8.0)[100]
    again = decide(snapshot, PRICED, Instant(snapshot.taken_at)).again_at
    assert again is not None
    assert again <= T0 + 39 * EVERY + 112.0


def test_it_is_said_why_it_begins_now() -> None:
    """The chance in the minute to come, and the start that takes until then."""
    (first,) = [look for look in looks(8.0) if look[0] == 232.0]
    _, _, reasons, snapshot, _ = first
    assert reasons == (Reason.FORECAST,)
    wish = wish_of(snapshot, PRICED, decide(snapshot, PRICED, Instant(snapshot.taken_at)))
    (text,) = [text for text in explain(Records(wish)).sentences if "The chance of being needed" in text]
    assert text.startswith("The chance of being needed in the minute from ")
    assert text.endswith("1 replica is worth holding, and since a start takes 8s it begins now.")


@pytest.mark.parametrize(("start", "was"), [(8.0, 0.67), (40.0, 0.02)])
def test_requests_each_ten_minutes_are_met_by_what_is_ready(start: float, was: float) -> None:
    """With twenty seconds of chance each way, in the simulated cluster: a start that begins with its minute came too
    late for `1 - was` of them."""
    rows, chance = Rows.empty(), random.Random(1)
    for at in range(90):
        rows.add(600.0 * at + chance.uniform(-20.0, 20.0) + 20.0, "m", (0, 0), 0.2)
    setting = Setting(slo=Seconds(1.0), slots=4, starting=Starting(seconds=Seconds(start), spread=0.05))
    figures = Task(rows.trace(), read_typed("relume:coldStartCost=60s"), setting).run().figures
    assert figures.within_slo is not None
    assert figures.within_slo > max(0.8, was + 0.1)
    assert figures.gpu_seconds < 0.2 * 600.0 * 90
