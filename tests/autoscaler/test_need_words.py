"""What explanations say of need is what the decision counted: with a promise, without one, and of other policies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.capacity import Capacity, Evidence
from autoscaler.core.decide import decide
from autoscaler.core.model import Memory, Reason, Snapshot
from autoscaler.core.policy import Mode, Objective, ScalingPolicy, SchedulePolicy
from autoscaler.explain import Records, explain
from autoscaler.record import wish_of
from autoscaler.slo_spec import promising
from autoscaler.words import clock_time, percent, replicas
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

WIDE = replace(POLICY, slots=16, target=16.0, max_replicas=1000)
PROMISE = promising(WIDE, (Objective(part=0.95, within=Seconds(5.0)),), target_given=False)


def told(snapshot: Snapshot, policy: ScalingPolicy) -> dict[str, str]:
    """The sentence of each reason of a decision, and its answer."""
    decision = decide(snapshot, policy, Instant(T0))
    explanation = explain(Records(wish_of(snapshot, policy, decision)))
    reasons = explanation.facts["reasons"]
    assert isinstance(reasons, list)
    found = {str(one["reason"]): str(one["text"]) for one in reasons if isinstance(one, dict)}
    return {**found, "answer": replicas(decision.replicas)}


DEMAND = st.fixed_dictionaries({
    "stable": st.floats(0, 300), "panic": st.floats(0, 300),
    "seconds_per_request": st.sampled_from([None, 0.5, 6.0, 40.0]), "lately": st.sampled_from([None, 0.0, 30.0, 200.0]),
    "arrivals_per_second": st.floats(0, 20),
})  # fmt: skip


@given(st.integers(0, 60), st.integers(0, 400), DEMAND, st.sampled_from([PROMISE, WIDE]))
def test_a_rise_says_the_number_that_it_asked_for(
    running: int, waiting: int, demand: dict[str, float | None], policy: ScalingPolicy
) -> None:
    """Whatever it was sized by: slots, target, averages, what gathered during a start."""
    snapshot = seen(wished=1, ready=1, running=running, waiting=waiting, start_seconds=30.0, demand=demand)
    texts = told(snapshot, policy)
    for reason in (Reason.BACKLOG, Reason.LOAD):
        if reason in texts:
            assert texts["answer"] in texts[reason], texts


def test_what_may_wait_and_what_gathered_are_said() -> None:
    """Sixty of one second may wait 1.5 s for sixteen slots: two replicas, not the five of the target. Of 200 at hand
    30 came within six seconds; the rest gathered while a start of 30 s was awaited."""
    demand = {"stable": 0.0, "panic": 0.0, "seconds_per_request": 1.0}
    text = told(seen(wished=1, ready=1, running=16, waiting=44, demand=demand), PROMISE)[Reason.BACKLOG]
    assert text == (
        "A request takes 1s and may wait 1.5s for one of a replica's 16 slots, so 60 requests in flight need "
        "2 replicas."
    )
    demand = {"stable": 0.0, "panic": 0.0, "seconds_per_request": 6.0, "lately": 30.0}
    text = told(seen(wished=1, starting=1, waiting=200, start_seconds=30.0, demand=demand), PROMISE)[Reason.BACKLOG]
    assert text == (
        "A request takes 6s and may wait 1.5s for one of a replica's 16 slots; 170 of 200 requests in flight gathered "
        "while too little was ready, and are worked off within the 30s of a start: 4 replicas in all."
    )


def test_what_goes_on_coming_is_said() -> None:
    """Where it is more than the averages say: an engine that has become slower."""
    demand = {
        "stable": 14.0, "panic": 40.0, "seconds_per_request": 20.0, "lately": 120.0, "arrivals_per_second": 6.0,
    }  # fmt: skip
    text = told(seen(wished=2, ready=2, running=32, waiting=40, start_seconds=30.0, demand=demand), PROMISE)[
        Reason.LOAD
    ]
    assert text == (
        "72 requests in flight now, and 6 a second that take 20s each now are 120 at a time: at a target of 12 a "
        "replica, need 10 replicas."
    )
    gathered = seen(wished=2, ready=2, running=32, waiting=140, start_seconds=30.0, demand=demand)
    assert (
        "; 156 that gather until more is ready are worked off within the 30s of a start: "
        in told(gathered, PROMISE)[Reason.LOAD]
    )


def test_more_in_flight_than_fit_is_not_said_to_fit() -> None:
    """Twenty of one second on one replica of sixteen slots: some wait, as they may."""
    demand = {"stable": 10.0, "panic": 10.0, "seconds_per_request": 1.0}
    text = told(seen(wished=1, ready=1, running=16, waiting=4, demand=demand), PROMISE)[Reason.STEADY]
    assert "need no more than 1 replica (a request takes 1s and may wait 1.5s" in text
    fits = told(seen(wished=1, ready=1, running=6, demand=demand), PROMISE)[Reason.STEADY]
    assert "fit into the 12 that 1 replica should take" in fits


@pytest.mark.parametrize("policy", ["kpa", "keda", "hpa", "concurrency", "hybrid-histogram"])
def test_of_other_policies_nothing_is_computed_by_our_rule(policy: str) -> None:
    """What was seen, and whose rule it was."""
    snapshot = seen(wished=2, ready=2, running=30, demand={"stable": 30.0, "panic": 30.0})
    for wished in (2, 9):
        texts = told(replace(snapshot, wished=wished), replace(WIDE, name=policy, target=4.0))
        for reason in (Reason.LOAD, Reason.DESCENT, Reason.STEADY, Reason.BACKLOG):
            if reason in texts:
                assert texts[reason].endswith(f"so by the rule of {policy}.")


def test_each_that_wants_the_least_is_named() -> None:
    """A schedule and a burning objective that want the same number are both told, and tokens too."""
    schedules = (SchedulePolicy(cron="* * * * *", timezone="UTC", min_replicas=3, duration=Seconds(60.0)),)
    known = Capacity(revision=1, objectives=PROMISE.objectives, limit=8, tokens=100.0, seen_at=T0 - 5)
    served = Evidence(ended_at=T0 - 5, concurrency=4.0, answers=(9,), late=(0,), tokens=300.0, ready=1)
    memory = Memory(burn_floor=3, burn_until=T0 + 30, capacity=known)
    snapshot = seen(
        wished=1, ready=1, running=4, memory=memory, served=served, scheduled=3, schedule_changes_at=T0 + 172_800,
        demand={"stable": 4.0, "panic": 4.0},
    )  # fmt: skip
    texts = told(snapshot, replace(PROMISE, schedules=schedules))
    assert texts["answer"] == "3 replicas"
    assert {Reason.SCHEDULED, Reason.SLO_BURN, Reason.CAPACITY} <= set(texts)
    assert (
        texts[Reason.SCHEDULED]
        == "A schedule wants at least 3 replicas, until 2001-09-11 01:46:40 UTC at the earliest."
    )
    assert texts[Reason.CAPACITY].endswith("that needs 3 replicas.")


def test_a_limit_that_is_tried_is_not_said_to_be_learned() -> None:
    """Since when it is tried, how many trials failed, and when the next comes."""
    known = Capacity(revision=1, objectives=PROMISE.objectives, limit=8, limited_at=T0 - 60, trying=True)
    memory, demand = Memory(capacity=known), {"stable": 4.0, "panic": 4.0}
    snapshot = seen(wished=1, ready=1, running=4, memory=memory, demand=demand)

    def said(capacity: Capacity) -> str:
        case = replace(snapshot, memory=replace(memory, capacity=capacity))
        wish = wish_of(case, PROMISE, decide(case, PROMISE, Instant(T0)))
        return " ".join(explain(Records(wish)).sentences)

    assert "It is tried whether a replica bears 8 requests at a time" in said(known)
    failed = said(replace(known, trying=False, failed=2))
    assert "A replica was learned to bear 8 requests at a time" in failed
    assert "The last 2 trials of more failed: the next comes after 40m, or after 10m while" in failed


def test_a_time_of_another_day_has_its_date() -> None:
    """Else tomorrow's would read as today's."""
    assert clock_time(T0 + 60, T0) == "01:47:40 UTC"
    assert clock_time(T0 + 86_400, T0) == "2001-09-10 01:46:40 UTC"


def test_a_small_chance_is_not_told_as_none() -> None:
    """Where a price is high a chance of a ten-thousandth decides."""
    assert [percent(part) for part in (0.0, 0.0000993, 0.0049, 0.01, 0.5, 1.0)] == [
        "0 %", "0.0099 %", "0.49 %", "1 %", "50 %", "100 %",
    ]  # fmt: skip


MODES = ("relume", "kpa", "keda", "hpa", "keepalive", "concurrency", "hybrid-histogram")


@pytest.mark.parametrize("name", MODES)
@given(st.integers(0, 60), st.integers(0, 400), DEMAND, st.sampled_from([0, 1, 7]))
def test_in_recommend_the_reasons_are_those_of_what_it_would_ask_for(
    name: str, running: int, waiting: int, demand: dict[str, float | None], before: int
) -> None:
    """Word for word what the same decision would say if it were acted on, and then what it would have asked for: not
    that what runs needs no more than the none that stand."""
    policy = replace(WIDE, name=name)
    acted = seen(wished=before, ready=0, running=running, waiting=waiting, start_seconds=30.0, demand=demand)
    stands = replace(acted, wished=0, memory=replace(acted.memory, recommended=before))
    expected = told(acted, policy)
    texts = told(stands, replace(policy, mode=Mode.RECOMMEND))
    would = texts.pop(Reason.RECOMMENDED)
    assert (
        would == f"The model's mode is recommend, so nothing is changed: it would have asked for {expected['answer']}."
    )
    assert {**texts, "answer": expected["answer"]} == expected
    assert texts["answer"] == "0 replicas"
