"""Explanations: every reason has a sentence, and its numbers are those of the record."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autoscaler.codec import memory_json, policy_json, snapshot_json
from autoscaler.core.capacity import Capacity, Evidence
from autoscaler.core.decide import decide
from autoscaler.core.forecast.following import follow
from autoscaler.core.model import Demand, Memory, Reason, Replicas, Snapshot
from autoscaler.explain import SENTENCES, Records, explain
from autoscaler.record import wish_of
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided, Placement, ReplicaGrant, Shortage
from events.types.models import Override
from events.types.replicas import Phase, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.shared import Resources
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, declared, observed, seen

ODD = replace(
    POLICY, min_replicas=17, max_replicas=977, target=3.5, keep_alive=Seconds(311.0), stable_window=Seconds(61.0),
    panic_window=Seconds(7.0),
)  # fmt: skip
SNAPSHOT = Snapshot(
    model="m",
    uid="u",
    revision=1,
    taken_at=T0,
    wished=43,
    replicas=Replicas(ready=19, starting=4, draining=2, ready_in=8.4, all_ready_in=9.0),
    demand=Demand(
        running=71, waiting=38, stable=66.25, panic=93.75, oldest_waiting=5.3, last_active_at=T0 - 13, silent=2,
        age=4.6, coverage=0.83, signal=27.4, stale_signals=3,
    ),
    memory=Memory(),
    floor=21,
    floor_until=T0 + 47,
    start_seconds=31.0,
    failures=6,
    retry_at=T0 + 29,
    scheduled=31,
    schedule_changes_at=T0 + 12,
    served=Evidence(ended_at=T0 - 7, concurrency=5.5, answers=(19,), late=(1,), tokens=311.0, ready=9),
)  # fmt: skip
MEMORY = Memory(
    panic_until=T0 + 53, panic_floor=43, last_busy_at=T0 - 13, floor=21, floor_until=T0 + 47, recommended=37,
    burn_floor=29, burn_until=T0 + 11, capacity=Capacity(revision=1, objectives=(), limit=3, tokens=207.25),
)  # fmt: skip

NUMBERS = {
    Reason.ACTIVATION: ["109 requests"],
    Reason.BACKLOG: ["3.5 a replica", "109 requests", "32 replicas"],
    Reason.LOAD: ["109 requests", "93.75", "7s", "3.5 a replica", "32 replicas"],
    Reason.REQUESTED: ["21 replicas", "01:47:27"],
    Reason.SIGNAL: ["27.4 replicas"],
    Reason.FORECAST: [],
    Reason.PANIC: ["1m1s", "23 replicas", "01:47:33"],
    Reason.STARTS_FAIL: ["6 times", "01:47:09"],
    Reason.HISTORY_UNREAD: [],
    Reason.DEMAND_UNKNOWN: ["2 gateways", "4.6s"],
    Reason.SIGNAL_STALE: ["3 of"],
    Reason.STEADY: ["109 requests", "66.25", "1m1s", "185.5", "53 replicas"],
    Reason.KEEP_ALIVE: ["01:46:27", "5m11s", "01:51:38"],
    Reason.DESCENT: ["66.25", "1m1s", "43 replicas", "3.5"],
    Reason.STEP_LIMIT: ["43", "53"],
    Reason.IDLE: ["01:46:27", "5m11s"],
    Reason.DELETED: ["m is"],
    Reason.AT_LEAST_MIN: ["17"],
    Reason.AT_MOST_MAX: ["977"],
    Reason.POLICY_UNKNOWN: ["relume"],
    Reason.POLICY_FAILED: ["relume"],
    Reason.FAILING: [],
    Reason.CAPACITY: ["2799 tokens", "207.25", "14 replicas"],
    Reason.SLO_BURN: ["29 replicas", "01:46:51"],
    Reason.SCHEDULED: ["31 replicas", "01:46:52"],
    Reason.POLICY_REPLACED: ["relume"],
    Reason.OWN_POLICY: ["relume"],
    Reason.RECOMMENDED: ["37 replicas"],
    Reason.PAUSED: ["paused"],
}


def record(*reasons: str, snapshot: Snapshot = SNAPSHOT) -> WishDecided:
    """A wish of 53 replicas for these reasons."""
    return WishDecided(
        model="m", uid="u", revision=1, replicas=53, priority=100, reasons=reasons, snapshot=snapshot_json(snapshot),
        policy=policy_json(ODD), memory=memory_json(MEMORY),
    )  # fmt: skip


def test_every_reason_has_a_sentence() -> None:
    """None without words, none in excess, none untested."""
    assert set(SENTENCES) == set(Reason) == set(NUMBERS)


@pytest.mark.parametrize("reason", list(Reason))
def test_its_numbers_are_those_of_the_snapshot(reason: Reason) -> None:
    """Each number of the sentence comes from what the decision saw."""
    explanation = explain(Records(record(reason)))
    sentence = SENTENCES[reason].__name__
    texts = [text for text in explanation.sentences if all(number in text for number in NUMBERS[reason])]
    assert texts, f"{sentence}: {explanation.sentences}"
    (fact,) = json.loads(json.dumps(explanation.facts))["reasons"]
    assert fact["reason"] == reason.value
    assert all(number in fact["text"] for number in NUMBERS[reason])
    assert fact["text"] in explanation.sentences


def test_the_frame_around_the_reasons() -> None:
    """What was asked, what there was, what was decided."""
    sentences = explain(Records(record(Reason.BACKLOG))).sentences
    assert sentences[0] == (
        "At 01:46:40 UTC demand was 71 running and 38 waiting, the oldest for 5.3s; on average 66.25 over the last "
        "1m1s and 93.75 over the last 7s."
    )
    assert sentences[1] == (
        "19 replicas were ready and 4 starting (the first ready in about 8.4s), 2 draining; 43 had been asked for."
    )
    assert sentences[3] == "So it asked for 53 replicas."
    assert sentences[4] == "The allocator has not answered yet."


def test_unknown_averages_are_said_to_be_unknown() -> None:
    """Nothing is shown as zero that is not known."""
    blind = replace(SNAPSHOT, demand=Demand(silent=0, coverage=0.5), wished=None)
    sentences = explain(Records(record(Reason.DEMAND_UNKNOWN, snapshot=blind))).sentences
    assert sentences[0].endswith("its average over the last 1m1s was not known.")
    assert sentences[1].endswith("nothing had been asked for before.")
    assert sentences[2] == "Only 50 % of the demand of the last 1m1s is known: nothing is taken away."


def test_what_came_of_it() -> None:
    """Grant, shortage, override, failed starts and what is there now."""
    grants = tuple(
        ReplicaGrant(
            replica=f"m-r1-{n}", revision=1, placement=Placement(node="n"), resources=Resources(), drain=n == 2
        )
        for n in range(3)
    )
    short = Shortage(replicas=51, resources=Resources(gpus=1), message="1 GPU each, 0 free")
    grant = GrantDecided(model="m", uid="u", revision=1, wished=53, replicas=grants, shortage=short)
    starting = ReplicaStatus(replica="m-r1-1", uid="u", revision=1, state=ReplicaState.STARTING, phase=Phase.LOAD)
    now = ReplicasObserved(
        model="m", uid="u", replicas=(*observed(1).replicas, starting), failures=2, message="out of memory.",
        retry_at=T0 + 5,
    )  # fmt: skip
    explanation = explain(Records(record(Reason.BACKLOG), grant, now, declared()))
    assert explanation.sentences[4:] == (
        "The allocator granted 2 of 53; 51 replicas short: 1 GPU each, 0 free.",
        "The start failed 2 times: out of memory; next try at 01:46:45 UTC.",
        "Now 1 replica is ready and 1 starting (in load).",
    )
    facts = explanation.facts
    assert (facts["granted"], facts["ready"], facts["starting"], facts["failures"]) == (2, 1, 1, 2)
    assert facts["shortage"] == {"replicas": 51, "message": "1 GPU each, 0 free"}


@pytest.mark.parametrize(("past", "words"), [
    (False, "Now 1 replica is ready and 0 starting, and 2 asleep."),
    (True, "Then 1 replica was ready and 0 starting, and 2 asleep."),
])  # fmt: skip
def test_who_sleeps_is_told(past: bool, words: str) -> None:
    """A model at zero that wakes in a moment is not one that has nothing."""
    asleep = [ReplicaStatus(replica=f"m-r1-{n}", uid="u", revision=1, state=ReplicaState.SLEEPING) for n in range(7, 9)]
    seen = ReplicasObserved(model="m", uid="u", replicas=(*observed(1).replicas, *asleep))
    assert words in explain(Records(record(Reason.IDLE), observed=seen, past=past)).sentences


def test_an_override_is_named() -> None:
    """Who set it, and until when it stands before the wish."""
    grant = GrantDecided(model="m", uid="u", revision=1, wished=2, replicas=(), reasons=("override",))
    spec = replace(declared(), override=Override(replicas=2, until=T0 + 600, by="ann"))
    explanation = explain(Records(record(Reason.BACKLOG), grant, declared=spec))
    assert "An override by ann of 2 replicas stands before it until 01:56:40 UTC." in explanation.sentences
    assert explanation.facts["override"] == {"replicas": 2, "until": "2001-09-09T01:56:40.000000Z"}
    plain = explain(Records(record(Reason.BACKLOG), replace(grant, reasons=("wish",)), declared=spec))
    assert plain.facts["override"] is None, "the allocator answered the wish, of the same number"
    then = explain(Records(record(Reason.BACKLOG), grant, declared=spec, past=True))
    assert "An override by ann of 2 replicas stood before it until 01:56:40 UTC." in then.sentences
    same = replace(spec, override=Override(replicas=53, until=T0 + 86_400, by="ann"))
    told = explain(Records(record(Reason.BACKLOG), replace(grant, wished=53), declared=same))
    assert "An override by ann of 53 replicas stands before it until 2001-09-10 01:46:40 UTC." in told.sentences


def test_records_of_another_uid_are_void() -> None:
    """The grant and the replicas of a model that had the same name say nothing."""
    grant = GrantDecided(model="m", uid="old", revision=1, wished=9, replicas=())
    other = replace(observed(3), uid="old")
    explanation = explain(Records(record(Reason.STEADY), grant, other, declared(uid="old")))
    assert explanation == explain(Records(record(Reason.STEADY)))


def test_a_reason_of_a_newer_release_is_named() -> None:
    """Two releases may run side by side."""
    sentences = explain(Records(record("Moonshine"))).sentences
    assert "A reason that this release does not know: Moonshine." in sentences


def test_a_real_decision_reads_as_a_story() -> None:
    """From a snapshot through the policy to the sentences."""
    snapshot = seen(
        wished=3,
        ready=2,
        starting=1,
        running=5,
        waiting=12,
        demand={"stable": 4.2, "panic": 11.0, "oldest_waiting": 0.85},
    )
    wish = wish_of(snapshot, POLICY, decide(snapshot, POLICY, Instant(T0)))
    assert explain(Records(wish)).sentences == (
        (
            "At 01:46:40 UTC demand was 5 running and 12 waiting, the oldest for 850ms; on average 4.2 over the last "
            "1m and 11 over the last 6s."
        ),
        "2 replicas were ready and 1 starting; 3 had been asked for.",
        "The target is 4 a replica, so 17 requests in flight need 5 replicas.",
        "So it asked for 5 replicas.",
        "The allocator has not answered yet.",
    )


def test_a_forecast_is_told_with_its_chances() -> None:
    """The price, the chances, until when, and what follows."""
    following = None
    for minute in range(20):
        following = follow(following, 2, None, Instant(T0 + 60 * minute))
    priced = replace(POLICY, cold_start_cost=Seconds(300.0))
    told = replace(
        record(Reason.FORECAST),
        policy=policy_json(priced),
        memory=memory_json(Memory(forecast=following)),
    )
    (fact,) = json.loads(json.dumps(explain(Records(told)).facts))["reasons"]
    assert "A cold start is worth 5m of an idle replica" in " ".join(explain(Records(told)).sentences)
    assert "02:06:40" in fact["text"]
    assert "% for 1 replica, " in fact["text"]
    assert fact["text"].endswith("2 replicas are worth holding.")
