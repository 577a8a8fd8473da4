"""Twenty minutes of a public trace (Azure, requests to a code model), on a simulated clock: what must hold, holds."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.needs import traces_folder
from tests.support.simulation import SLOTS, Asked, Plan, Simulation, azure

pytestmark = pytest.mark.needs("traces")

MINUTES = 20
LENGTH = MINUTES * 60.0
KEEP_ALIVE = 300.0
KILLED_AT = (150.0, 601.0, 1100.0)
"""At rest, in the middle of a burst, and while the descent waits."""


@functools.cache
def trace() -> list[Asked]:
    return azure(traces_folder() / "AzureLLMInferenceTrace_code.csv", LENGTH)


@functools.cache
def played(plan: Plan) -> Simulation:
    """The trace, and half an hour of silence after it."""
    simulation = Simulation(trace(), plan)
    simulation.play(LENGTH + 1800.0)
    return simulation


PLANS = [
    pytest.param(Plan(), id="as-it-is"),
    pytest.param(Plan(start=60.0), id="slow-starts"),
    pytest.param(Plan(max_replicas=2), id="too-few-replicas"),
    pytest.param(Plan(restart_at=KILLED_AT), id="killed-autoscaler"),
]
every_plan = pytest.mark.parametrize("plan", PLANS)


@every_plan
def test_nothing_is_lost_sent_twice_or_overtaken(plan: Plan) -> None:
    """Each request of the trace is granted once, in the order of arrival, finished once, and none is refused."""
    story = played(plan).story
    names = [f"r{number:05}" for number in range(len(trace()))]
    assert story.refused == []
    assert story.granted == names
    assert story.finished == dict.fromkeys(names, 1)


@every_plan
def test_slots_are_never_oversold(plan: Plan) -> None:
    """All slots of a replica are used at some time, and never more."""
    assert played(plan).story.most_running == SLOTS


@every_plan
def test_nothing_shrinks_while_requests_wait(plan: Plan) -> None:
    """Each time the wish falls, nobody waits: neither in the snapshot that was decided on, nor really."""
    simulation = played(plan)
    assert simulation.story.lowered
    assert [fall for fall in simulation.story.lowered if fall[3]] == []
    wishes = [wish for _, wish in simulation.recorded()]
    for before, after in pairwise(wishes):
        if after.replicas < before.replicas:
            assert after.snapshot["demand"]["waiting"] == 0


@every_plan
def test_decisions_are_few_and_within_bounds(plan: Plan) -> None:
    """Every wish is within the declaration's bounds; decisions do not grow with requests, nor records with decisions:
    a wish turns around once a minute at most."""
    simulation = played(plan)
    wishes = [wish for _, wish in simulation.recorded()]
    assert all(0 <= wish.replicas <= plan.max_replicas for wish in wishes)
    assert simulation.run.decided <= 3 * LENGTH
    assert len(wishes) <= MINUTES * 10
    changes = [after.replicas - before.replicas for before, after in pairwise(wishes)]
    turns = [step for step in changes if step]
    reversals = sum(one * other < 0 for one, other in pairwise(turns))
    assert reversals <= MINUTES


@every_plan
def test_it_ends_at_zero_after_the_keep_alive(plan: Plan) -> None:
    """The last replica goes when nobody has asked for the keep-alive, and nothing is left of anything."""
    simulation = played(plan)
    at, _, wish, _ = simulation.story.lowered[-1]
    assert wish == 0
    assert KEEP_ALIVE <= at - simulation.story.done_at <= KEEP_ALIVE + 5.0
    assert simulation.replicas == {}
    assert simulation.authority.live_leases == 0
    assert simulation.authority.due() is None


def test_the_first_request_waits_for_one_start_and_no_longer() -> None:
    """The start is asked for at the instant of the arrival, and the first request goes when the replica is ready."""
    plan = Plan()
    story = played(plan).story
    assert story.starts[0] == trace()[0].at
    assert 0.8 * plan.start <= story.held[0] <= 1.2 * plan.start


def test_few_requests_wait_and_replicas_go_between_bursts() -> None:
    """Nine of ten requests wait less than a start takes, with a fifth fewer replicas than stood there all along."""
    plan = Plan()
    story = played(plan).story
    quick = sum(held < plan.start for held in story.held)
    assert quick >= 0.9 * len(story.held)
    assert story.replica_seconds <= 0.92 * plan.max_replicas * (LENGTH + KEEP_ALIVE)


def test_a_killed_autoscaler_changes_nothing() -> None:
    """It reads the log back and decides the same for every request: none waits longer or is served elsewhere. Idle
    replicas may go a little earlier or later: what was needed within the keep-alive is known from the last record."""
    killed, whole = played(Plan(restart_at=KILLED_AT)).story, played(Plan()).story
    same = {"lowered": whole.lowered, "replica_seconds": whole.replica_seconds}
    assert replace(killed, **same) == whole
    assert killed.replica_seconds == pytest.approx(whole.replica_seconds, rel=0.05)


def test_the_same_seed_gives_the_same_story() -> None:
    """Two runs of one seed are equal to the last bit; another seed draws other starts."""
    first, second, other = played(Plan()), Simulation(trace(), Plan()), played(Plan(seed=2))
    second.play(LENGTH + 1800.0)
    assert second.story == first.story
    assert [*second.recorded()] == [*first.recorded()]
    assert other.story.held != first.story.held
