"""Tiers on the live loop: what is told beside the wish, from what was measured, and when it is told anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.codec import memory_json, read_memory
from autoscaler.core.decide import decide
from autoscaler.core.forecast.following import Following, follow
from autoscaler.core.model import Decision, Demand, Memory
from autoscaler.core.policy import COST_MOST, ScalingPolicy
from autoscaler.core.tiering import coarse, measured, newest
from autoscaler.declared import read_declaration
from autoscaler.explain import Records, explain
from autoscaler.record import read_wish, replay, wish_of
from coldstart.core.estimate import StartEstimate
from coldstart.core.tiers import GB, StartTimes
from events.types.replicas import Phase, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.shared import Resources
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, Run, declared, observed, seen, window

STARTS = StartTimes(cold=30.0, wake=2.0, asleep_bytes=int(16 * GB))
SLEEPS = replace(POLICY, cold_start_cost=Seconds(1200.0), sleeps=True)
FIXED = None


def quiet(minutes: int, rhythm: int = 30, rounds: int = 12) -> tuple[Memory, Instant]:
    """A model that was needed each `rhythm` minutes, and then not for so many; and now."""
    following: Following | None = None
    pattern = ([1] + [0] * (rhythm - 1)) * rounds + [1] + [0] * minutes
    now, busy_at = Instant(T0), None
    for needed in pattern:
        busy_at = now if needed else busy_at
        following = follow(following, needed, busy_at, now)
        now = Instant(now + 60.0)
    return Memory(forecast=following, last_busy_at=busy_at, raised_at=T0), now


def decided(policy: ScalingPolicy, memory: Memory, now: Instant, starts: StartTimes | None, ready: int = 0) -> Decision:
    """What follows for a model that nobody asks."""
    snapshot = replace(
        seen(wished=ready, ready=ready, memory=memory, starts=starts), taken_at=now,
        demand=Demand(stable=0.0, panic=0.0, last_active_at=memory.last_busy_at),
    )  # fmt: skip
    decision = decide(snapshot, policy, now)
    wish = wish_of(snapshot, policy, decision)
    assert replay(wish) == decision, "it follows from its record"
    assert read_wish(wish, now)[0].tiers == decision.tiers
    return decision


@pytest.mark.parametrize(
    ("policy", "starts", "asleep"),
    [
        (SLEEPS, STARTS, 1),
        (replace(SLEEPS, cold_start_cost=Seconds(30.0)), STARTS, 0),
        (SLEEPS, replace(STARTS, asleep_bytes=int(700 * GB)), 0),
        (SLEEPS, replace(STARTS, wake=30.0), 0),
        (SLEEPS, replace(STARTS, wake=None), FIXED),
        (SLEEPS, replace(STARTS, cold=None), FIXED),
        (SLEEPS, None, FIXED),
        (replace(SLEEPS, sleeps=False), STARTS, FIXED),
    ],
    ids=["pays", "cheap start", "dear memory", "slow wake", "no wake seen", "no start seen", "nothing", "not declared"],
)  # fmt: skip
def test_how_many_may_sleep(policy: ScalingPolicy, starts: StartTimes | None, asleep: int | None) -> None:
    """Asked each half hour, ten minutes ago: a sleeper stays where it pays by what was measured; where that is not
    known the declared time counts (None)."""
    memory, now = quiet(10)
    decision = decided(policy, memory, now, starts)
    assert decision.replicas == 0
    assert decision.tiers is not None
    assert decision.tiers.asleep == asleep


@pytest.mark.parametrize("starts", [None, STARTS, StartTimes(cold=0.001, wake=1e-6, asleep_bytes=1),
                                    StartTimes(cold=36_000.0, wake=36_000.0, asleep_bytes=10**13)])  # fmt: skip
@pytest.mark.parametrize("minutes", [0, 3, 90])
@pytest.mark.parametrize("cost", [Seconds(1.0), COST_MOST])
def test_the_least_and_the_highest_price(cost: Seconds, minutes: int, starts: StartTimes | None) -> None:
    """Whatever starts take: at a second nothing is held once the minute is over; at a week something is, quiet or not,
    where a start is long. What is wished, may sleep and is told stays within bounds, it is looked at again once a
    minute at the soonest, and no chance that decides is told as none."""
    memory, now = quiet(minutes, rhythm=9, rounds=3)
    policy = replace(SLEEPS, cold_start_cost=cost, max_replicas=3)
    decision = decided(policy, memory, now, starts, ready=1)
    tiers = decision.tiers
    assert tiers is not None
    assert decision.replicas + (tiers.asleep or 0) <= 3
    assert 0.0 < tiers.soon <= 1.0
    assert tiers.second is None or 0.0 < tiers.second < 1e10
    assert decision.again_at is None or decision.again_at > now
    if cost == 1.0:
        assert decision.replicas == 0
    elif starts is None or starts.wake == starts.cold:
        assert decision.replicas >= 1
    text = " ".join(explain(Records(wish_of(seen(wished=1, ready=1, memory=memory), policy, decision))).sentences)
    assert "0.0 %" not in text
    assert " 0 % for" not in text
    assert ("no replica is held warm" in text) == (cost == 1.0)


def test_without_a_price_nothing_is_told() -> None:
    """Then the fixed keep-alives count, as ever; so do they for a model that nobody has asked for yet."""
    memory, now = quiet(10)
    assert decided(replace(SLEEPS, cold_start_cost=None), memory, now, STARTS).tiers is None
    assert decided(SLEEPS, replace(memory, last_busy_at=None), now, STARTS).tiers is None


def test_a_model_that_is_not_asked_any_more_is_let_go_by_tiers() -> None:
    """Warm in the minute in which it was asked, then asleep, in the end gone: nothing comes back by itself."""
    tiers = []
    for minutes in (0, 1, 10, 29, 60, 600):
        memory, now = quiet(minutes)
        decision = decided(SLEEPS, memory, now, STARTS)
        assert decision.tiers is not None
        tiers.append(decision.replicas + (decision.tiers.asleep or 0))
    assert tiers[1:4] == [1, 1, 1]
    assert tiers[-1] == 0


def test_a_quick_wake_leaves_less_warm() -> None:
    """In the minute in which the rhythm has it come: warm where it starts cold, asleep where it wakes soon."""
    memory, now = quiet(29)
    cold = decided(replace(SLEEPS, sleeps=False), memory, now, STARTS)
    wakes = decided(replace(SLEEPS, cold_start_cost=Seconds(300.0)), memory, now, STARTS)
    assert cold.replicas == 1
    assert (wakes.replicas, wakes.tiers and wakes.tiers.asleep) == (0, 1)


def test_what_was_measured_outlives_the_process() -> None:
    """The times are in the memory: the next process, which has seen no start yet, decides the same."""
    memory, now = quiet(10)
    first = decided(SLEEPS, memory, now, STARTS)
    after = read_memory(memory_json(first.memory))
    assert decided(SLEEPS, replace(after, last_busy_at=memory.last_busy_at), now, None).tiers == first.tiers
    assert newest(StartTimes(wake=1.0), STARTS) == replace(STARTS, wake=1.0)


def test_chances_and_prices_are_told_coarsely() -> None:
    """To powers of two, so that few records are needed; a second of the start by its price and what was measured."""
    memory, now = quiet(10)
    tiers = decided(replace(SLEEPS, gpus=4.0), memory, now, STARTS).tiers
    assert tiers is not None
    assert tiers.second == coarse(1200 * 4 / 30)
    assert tiers.soon in (0.5, 1.0)
    assert [coarse(amount) for amount in (1.0, 0.3, 3.0)] == [1.0, 0.25, 4.0]


def test_times_are_measured_from_what_is_seen() -> None:
    """Medians: a start without its fetch and its wait for a place; what a fetch adds; a wake, and what it kept."""

    def ready(name: str, *spans: tuple[Phase, float, float]) -> ReplicaStatus:
        phases = tuple(PhaseSpan(phase=phase, started_at=T0 + begin, ended_at=T0 + end) for phase, begin, end in spans)
        return ReplicaStatus(
            replica=name, uid="u", revision=1, state=ReplicaState.READY, phases=phases, ready_at=T0 + 99
        )

    estimate = StartEstimate()
    assert measured(estimate, None) == StartTimes()
    started = (
        (Phase.PLACE, 0, 5),
        (Phase.FETCH, 5, 45),
        (Phase.SPAWN, 45, 50),
        (Phase.LOAD, 50, 70),
        (Phase.WARMUP, 70, 71),
    )
    woken = (Phase.WAKE, 0, 2), (Phase.WARMUP, 2, 2.5)
    estimate.fold(ReplicasObserved(model="m", uid="u", replicas=(ready("m-r1-0", *started), ready("m-r1-1", *woken))))
    assert measured(estimate, 7) == StartTimes(cold=26.0, fetch=40.0, wake=2.5, asleep_bytes=7)


def test_a_change_of_sleepers_is_told_at_once_and_of_chances_later() -> None:
    """How many may sleep is acted on by the next decision; a chance that halves waits for ten minutes since the last
    record."""
    run = Run(declared(coldStartCost="20m"), obey=False)
    view = run.fold.models["m"]
    spec = dict(declared(coldStartCost="20m").spec) | {"coldStart": {"sleep": {"level": 1}}}
    run.put(replace(declared(coldStartCost="20m"), spec=spec))
    assert view.declared is not None
    assert view.declared.policy.sleeps
    run.put(window(run.now - 1, run.now, running=1, arrivals=1))
    assert view.last is not None
    assert view.wish is not None
    assert view.last.tiers is not None
    same, every = view.last, Seconds(10.0)
    assert view.record_at(same, run.now, every) is None
    chance = replace(same, tiers=replace(view.last.tiers, soon=2.0**-9))
    assert view.record_at(chance, run.now, every) == view.wish.recorded_at + 600
    assert view.record_at(replace(same, tiers=replace(view.last.tiers, asleep=3)), run.now, every) == run.now


def test_a_sleepers_memory_is_seen() -> None:
    """What it holds is what its status says; it stands in the next snapshot."""
    run = Run(declared(coldStartCost="20m"))
    run.put(window(run.now - 1, run.now, running=1, arrivals=1))
    one = observed(ready=1).replicas[0]
    asleep = replace(
        one, replica="m-r1-1", state=ReplicaState.SLEEPING, sleep_level=1, resources=Resources(memory_bytes=5)
    )
    run.put(replace(observed(), replicas=(one, asleep)))
    snapshot = run.fold.models["m"].snapshot(run.now, run.fold.world)
    assert snapshot is not None
    assert snapshot.starts is not None
    assert snapshot.starts.asleep_bytes == 5


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({"gpus": 4, "cpu": 32}, 4.0), ({"gpuFraction": 0.5}, 0.5),
        ({"gpuMemory": "8Gi"}, 1.0), ({"migProfile": "3g.40gb"}, 3 / 7),
        ({"migProfile": "1c.2g.10gb"}, 2 / 7), ({"cpu": 2.0, "memory": "4Gi"}, 0.02 + 0.0015 * 4.294967296),
    ],
)  # fmt: skip
def test_what_a_replica_takes(resources: dict[str, Any], gpus: float) -> None:
    """In GPUs, from the declaration."""
    spec = declared().spec | {"resources": resources}
    assert read_declaration(replace(declared(), spec=spec)).policy.gpus == pytest.approx(gpus)


def test_explain_has_the_prices_and_the_chances() -> None:
    """What a start is worth and took, above which chance a replica is warm, what a sleeper costs and saves, and what
    follows; with the pool's price where it is from there."""
    memory, now = quiet(10)
    policy = replace(SLEEPS, gpus=4.0, pool_cost=Seconds(4800.0))
    snapshot = replace(seen(memory=memory, starts=STARTS), taken_at=now)
    text = " ".join(explain(Records(wish_of(snapshot, policy, decide(snapshot, policy, now)))).sentences)
    for part in (
        "A cold start is worth 20m of an idle replica (the pool says 1h20m of a GPU, and a replica takes 4)",
        "starts took 30s, a wake 2s, so a second of them is worth 160 GPU-seconds.",
        "A replica is held warm above a chance of 54.2 %",
        "One asleep keeps 16 GB, which costs 86.4 GPU-seconds an hour, and saves 4480 when it is needed",
        "% within 4h: that pays, and 2 replicas may sleep.",
        "keep are told 100 % within 1h, and 128 GPU-seconds",
        "GPU-seconds for each second of a start.",
    ):
        assert part in text, text
    unmeasured = replace(snapshot, starts=None)
    text = " ".join(explain(Records(wish_of(unmeasured, SLEEPS, decide(unmeasured, SLEEPS, now)))).sentences)
    assert "no start was measured yet, so every start costs that." in text
