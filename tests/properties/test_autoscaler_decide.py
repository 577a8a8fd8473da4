"""What holds for every snapshot and every policy: bounds, monotony, determinism, no descent without proof."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.codec import policy_json, read_memory, read_policy, read_snapshot, snapshot_json
from autoscaler.core.decide import decide
from autoscaler.core.model import REASON_RANK, Demand, Memory, Replicas, Snapshot
from autoscaler.core.peers import Sample
from autoscaler.core.policies.sizing import EPSILON, REPLICAS_MOST, UP_TOLERANCE, Sizing, up
from autoscaler.core.policy import COST_MOST, ScalingPolicy
from autoscaler.record import replay, wish_of
from coldstart.core.tiers import StartTimes
from events.units import Instant, Seconds
from tests.support.autoscaling import T0

NOW = Instant(T0)

patient = settings(max_examples=60, deadline=None)  # the machine may be busy with other things


def instants(spread: float = 1000.0) -> st.SearchStrategy[float]:
    """Instants around now."""
    return st.floats(T0 - spread, T0 + spread)


def maybe(strategy: st.SearchStrategy[float]) -> st.SearchStrategy[float | None]:
    """A value or unknown."""
    return st.none() | strategy


def falling(needed: dict[int, float]) -> tuple[Sample, ...]:
    """Steps that were needed, the highest first and longest ago."""
    amounts, times = sorted(needed, reverse=True), sorted(needed.values())
    return tuple(Sample(at=at, amount=float(amount)) for at, amount in zip(times, amounts, strict=True))


memories = st.builds(
    Memory,
    panic_until=maybe(instants()),
    panic_floor=st.integers(0, 20),
    last_busy_at=maybe(st.floats(T0 - 1000, T0)),
    raised_at=maybe(st.floats(T0 - 1000, T0)),
    lowered_at=maybe(st.floats(T0 - 1000, T0)),
    patience=st.integers(0, 4),
    floor=st.integers(0, 5),
    floor_until=maybe(instants()),
    kept=st.dictionaries(st.integers(1, 20), st.floats(T0 - 900, T0), max_size=3).map(falling),
    seconds=maybe(st.floats(0.01, 600)),
    starts=st.none() | st.builds(StartTimes, cold=maybe(st.floats(0.1, 600)), wake=maybe(st.floats(0.1, 60))),
)
demands = st.builds(
    Demand,
    running=st.integers(0, 60),
    waiting=st.integers(0, 200),
    stable=maybe(st.floats(0, 300)),
    panic=maybe(st.floats(0, 300)),
    last_active_at=maybe(st.floats(T0 - 1000, T0)),
    silent=st.integers(0, 2),
    signal=st.sampled_from([0.0, 0.0, 0.4, 3.0]),
    signal_recent=st.sampled_from([0.0, 0.0, 0.4, 5.0]),
    stale_signals=st.sampled_from([0, 0, 1]),
    earliest_deadline=maybe(instants()),
    arrivals_per_second=st.floats(0, 20),
    seconds_per_request=maybe(st.floats(0.01, 600)),
    finished=st.floats(0, 100),
    lately=maybe(st.floats(0, 300)),
)


@st.composite
def policies(draw: st.DrawFn) -> ScalingPolicy:
    """A policy as `spec` may resolve it: target at most slots, minimum at most maximum."""
    least, more, slots = draw(st.integers(0, 5)), draw(st.integers(0, 60)), draw(st.integers(1, 16))
    stable = draw(st.floats(1, 600))
    return ScalingPolicy(
        name="relume",
        min_replicas=least,
        max_replicas=max(1, least + more),
        target=draw(st.floats(0.25, slots)),
        slots=slots,
        keep_alive=Seconds(draw(st.floats(0, 900))),
        stable_window=Seconds(stable),
        panic_window=Seconds(draw(st.floats(1, stable))),
        priority=100,
        wait_most=draw(st.sampled_from((None, None, Seconds(0.3), Seconds(1.5), Seconds(60.0)))),
        cold_start_cost=draw(st.sampled_from((None, None, None, Seconds(1.0), Seconds(600.0), COST_MOST))),
        gpus=draw(st.sampled_from((0.0115, 0.5, 1.0, 8.0))),
        sleeps=draw(st.booleans()),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Anything that a model's view may show."""
    read = draw(st.booleans())
    return Snapshot(
        model="m",
        uid="u",
        revision=1,
        taken_at=T0,
        wished=draw(st.none() | st.integers(0, 70)),
        replicas=Replicas(ready=draw(st.integers(0, 40)), starting=draw(st.integers(0, 20))),
        demand=draw(demands),
        memory=draw(memories),
        floor=draw(st.integers(0, 5)),
        floor_until=draw(maybe(instants())),
        failures=draw(st.sampled_from([0, 0, 0, 2])),
        history_read=read,
        followed_since=T0 - 600 if read else None,
        start_seconds=draw(maybe(st.floats(0.1, 600))),
    )


def before(snapshot: Snapshot, policy: ScalingPolicy) -> int:
    """The number that stood before, within the bounds."""
    have = snapshot.replicas.ready + snapshot.replicas.starting
    wished = have if snapshot.wished is None else snapshot.wished
    return max(policy.min_replicas, min(policy.max_replicas, wished))


@patient
@given(snapshots(), policies())
def test_the_bounds_hold_and_the_decision_is_well_formed(snapshot: Snapshot, policy: ScalingPolicy) -> None:
    """Always between the bounds, always with reasons in order, and never to be looked at again in the past."""
    decision = decide(snapshot, policy, NOW)
    assert policy.min_replicas <= decision.replicas <= policy.max_replicas
    ranks = [REASON_RANK[reason] for reason in decision.reasons]
    assert ranks
    assert ranks == sorted(set(ranks))
    assert decision.again_at is None or decision.again_at > NOW


@patient
@given(snapshots(), policies(), st.integers(0, 60), st.integers(0, 200))
def test_more_load_never_means_fewer_replicas(
    snapshot: Snapshot, policy: ScalingPolicy, running: int, waiting: int
) -> None:
    """Monotone in the load of the moment."""
    demand = snapshot.demand
    more = replace(demand, running=demand.running + running, waiting=demand.waiting + waiting)
    heavier = replace(snapshot, demand=more)
    assert decide(heavier, policy, NOW).replicas >= decide(snapshot, policy, NOW).replicas


@patient
@given(snapshots(), policies(), st.floats(0, 300), st.floats(0, 300))
def test_higher_averages_never_mean_fewer_replicas(
    snapshot: Snapshot, policy: ScalingPolicy, stable: float, panic: float
) -> None:
    """Monotone in the averages."""
    demand = snapshot.demand
    low = replace(demand, stable=demand.stable or 0.0, panic=demand.panic or 0.0)
    high = replace(low, stable=(low.stable or 0.0) + stable, panic=(low.panic or 0.0) + panic)
    lower = decide(replace(snapshot, demand=low), policy, NOW).replicas
    assert decide(replace(snapshot, demand=high), policy, NOW).replicas >= lower


@patient
@given(snapshots(), policies())
def test_nothing_is_taken_away_in_overload(snapshot: Snapshot, policy: ScalingPolicy) -> None:
    """As long as what runs and waits needs the wish, it does not fall."""
    need = min(policy.max_replicas, Sizing(snapshot, policy).at_hand)
    assert decide(snapshot, policy, NOW).replicas >= min(need, before(snapshot, policy))


@patient
@given(snapshots(), policies(), st.integers(1, 300))
def test_none_goes_whose_slots_are_in_use_while_others_wait(
    snapshot: Snapshot, policy: ScalingPolicy, waiting: int
) -> None:
    """However slowly what waits is worked off: no replica less, and none is given to others."""
    there = before(snapshot, policy)
    demand = replace(snapshot.demand, running=there * policy.slots, waiting=waiting)
    decision = decide(replace(snapshot, demand=demand), policy, NOW)
    assert decision.replicas >= there
    assert decision.kept <= decision.replicas - there


@patient
@given(snapshots(), policies())
def test_the_unknown_never_lowers(snapshot: Snapshot, policy: ScalingPolicy) -> None:
    """Unread history, a silent gateway, unknown averages with requests: the wish may rise and never falls."""
    blind = replace(snapshot, history_read=False, followed_since=None)
    assert decide(blind, policy, NOW).replicas >= before(blind, policy)
    demand = replace(snapshot.demand, silent=1, stable=None, panic=None)
    silent = replace(snapshot, demand=demand)
    assert decide(silent, policy, NOW).replicas >= before(silent, policy)


@patient
@given(snapshots(), policies())
def test_who_waits_wakes(snapshot: Snapshot, policy: ScalingPolicy) -> None:
    """Whatever else is the case, somebody who waits gets at least one replica asked for."""
    waits = replace(snapshot, demand=replace(snapshot.demand, waiting=1))
    assert decide(waits, policy, NOW).replicas >= 1


@patient
@given(snapshots(), policies())
def test_a_descent_takes_at_most_half_unless_nobody_asks(snapshot: Snapshot, policy: ScalingPolicy) -> None:
    """While anybody asks, a step down leaves half."""
    level = snapshot.demand.running + snapshot.demand.waiting
    decision = decide(snapshot, policy, NOW)
    if level:
        assert decision.replicas >= before(snapshot, policy) / 2


@patient
@given(snapshots(), policies())
def test_decisions_can_be_taken_again_from_their_record(snapshot: Snapshot, policy: ScalingPolicy) -> None:
    """Decide, write, read, decide: the same decision, to the last bit; so is every value in between."""
    decision = decide(snapshot, policy, NOW)
    assert decide(snapshot, policy, NOW) == decision
    assert read_snapshot(snapshot_json(snapshot)) == snapshot
    assert read_policy(policy_json(policy)) == policy
    wish = wish_of(snapshot, policy, decision)
    assert replay(wish) == decision
    assert read_memory(wish.memory) == decision.memory
    assert snapshot_json(snapshot) == snapshot_json(read_snapshot(wish.snapshot))


@patient
@given(st.floats(min_value=0.0, max_value=1e12), st.sampled_from([EPSILON, UP_TOLERANCE]))
def test_replicas_for_an_amount_are_the_formula(amount: float, tolerance: float) -> None:
    """What is written out for speed says what the formula says."""
    plain = max(1, ceil(min(amount, REPLICAS_MOST) - tolerance)) if amount > EPSILON else 0
    assert up(amount, tolerance) == plain
