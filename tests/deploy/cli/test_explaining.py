"""`relume explain --at` and `--what-if`: from the record alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from events.clock import SystemClock
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import Override
from events.types.replicas import ReplicasObserved
from events.units import Instant, format_instant
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.deploy.cli.test_talking import declare
from tests.support.autoscaling import Run, declared


def story() -> list[WishDecided]:
    """A burst on a model of at most ten replicas, and what was recorded of it."""
    run = Run(declared("echo", keepAlive="1m"))
    run.serve(waiting=40, seconds=2, model="echo")
    run.serve(running=40, seconds=60, model="echo")
    run.serve(running=1, seconds=400, model="echo")
    return [wish for _, wish in run.wishes]


@pytest.fixture
def told(live: LiveAdmin) -> list[WishDecided]:
    """It stands in the log of a running admin server."""
    declare(live)
    wishes = story()
    live.do(live.admin.say(*wishes))
    return wishes


def test_the_decision_that_stood_then(relume: Relume, live: LiveAdmin, told: list[WishDecided]) -> None:
    """In sentences about that decision alone, and its facts."""
    items = json.loads(relume("get", "decisions", "-o", "json", live=live).out)["items"]
    assert len(items) == len(told)
    ran = relume("explain", "echo", "--at", "2999-01-01T00:00:00Z", live=live)
    assert ran.out.splitlines()[-1].startswith(("So it asked for", "So it still asked for"))
    assert "allocator" not in ran.out
    facts = json.loads(relume("explain", "echo", "--at", "2999-01-01T00:00:00Z", "-o", "json", live=live).out)["facts"]
    assert facts["replicas"] == told[-1].replicas


def test_what_stood_beside_it_then(relume: Relume, live: LiveAdmin, told: list[WishDecided]) -> None:
    """A number by hand with its end, the grant and the replicas as they were at that time; nothing of what came later,
    and nothing of a model that had the same name before."""
    uid, by_hand = told[-1].uid, Override(replicas=7, until=SystemClock().now() + 600, by="ann")
    grant = GrantDecided(model="echo", uid=uid, revision=1, wished=7, replicas=(), reasons=("override",))
    live.do(
        live.admin.say(
            replace(declared("echo", uid), override=by_hand),
            grant,
            ReplicasObserved(model="echo", uid=uid, replicas=()),
        )
    )
    then = format_instant(Instant(SystemClock().now()))
    live.do(live.admin.say(declared("echo", uid), replace(grant, wished=1, reasons=("wish",))))
    live.do(live.admin.say(replace(declared("echo", "other"), override=replace(by_hand, replicas=9))))
    ran = relume("explain", "echo", "--at", then, live=live)
    end = ran.out.splitlines()[-3:]
    assert end[0].startswith("An override by ann of 7 replicas stood before it until "), ran.out
    assert end[1].startswith("The allocator granted 0 of 7")
    assert end[2] == "Then 0 replicas were ready and 0 starting."
    facts = json.loads(relume("explain", "echo", "--at", then, "-o", "json", live=live).out)["facts"]
    assert facts["override"]["replicas"] == 7
    facts = json.loads(relume("explain", "echo", "--at", "2999-01-01T00:00:00Z", "-o", "json", live=live).out)["facts"]
    assert facts["override"] is None


def test_another_policy_on_the_record(relume: Relume, live: LiveAdmin, told: list[WishDecided], tmp_path: Path) -> None:
    """Each recorded situation again: the same policy says the same, fewer replicas say fewer, KubeAI's is slower."""
    file = tmp_path / "policy.yaml"
    file.write_text("maxReplicas: 10\nkeepAlive: 1m\n", encoding="utf-8")
    same = relume("explain", "echo", "--what-if", str(file), live=live).out
    assert same.splitlines()[-1] == f"0 of {len(told)} decisions would be another number."
    file.write_text("kind: Model\nspec: {slots: 4, scaling: {maxReplicas: 3, keepAlive: 1m}}\n", encoding="utf-8")
    rows = json.loads(relume("explain", "echo", "--what-if", str(file), "-o", "json", live=live).out)["decisions"]
    assert max(row["wouldBe"] for row in rows) == 3 < max(row["replicas"] for row in rows) == 10
    file.write_text("scaling: {policy: concurrency, maxReplicas: 10}\n", encoding="utf-8")
    rows = json.loads(relume("explain", "echo", "--what-if", str(file), "-o", "json", live=live).out)["decisions"]
    assert max(row["wouldBe"] for row in rows) < 10
    window = 'schedules: [{cron: "* * * * *", minReplicas: 7, duration: 2m}]'
    file.write_text(f"maxReplicas: 10\nkeepAlive: 1m\n{window}\n", encoding="utf-8")
    rows = json.loads(relume("explain", "echo", "--what-if", str(file), "-o", "json", live=live).out)["decisions"]
    assert min(row["wouldBe"] for row in rows) == 7, "the new policy's schedules count, not those of then"


def test_what_is_refused(relume: Relume, live: LiveAdmin, told: list[WishDecided], tmp_path: Path) -> None:
    """Times that are none, times before all, files that are no policy."""
    assert told
    assert (ran := relume("explain", "echo", "--at", "yesterday", live=live)).code == 2
    assert "is no time" in ran.err
    assert (ran := relume("explain", "echo", "--at", "2001-01-01T00:00:00", live=live)).code == 2
    assert "no time zone" in ran.err
    assert (ran := relume("explain", "echo", "--at", "1999-01-01T00:00:00Z", live=live)).code == 1
    assert "nothing on record is as old" in ran.err
    file = tmp_path / "policy.yaml"
    for text, words in (
        ("policy: magic:\n", "policy.yaml:1: the document: this is not YAML"),
        ("- 1\n", "no mapping"),
        ("", "no mapping"),
        ("maxReplicas: 0\n", "spec.scaling.maxReplicas (is 0): must be at least 1"),
        ("keepAlive: 5\n", "spec.scaling.keepAlive (is 5): 5 has no unit; write 5s"),
        ("policy: kpa\npolicyOptions: {panicThreshold: 0}\n", "panicThreshold (is 0): Input should be greater"),
        ("[" * 5000, "nested deeper"),
        ("maxReplicas: 1" + "0" * 5000, "too large"),
        ("policy: kpa\n---\npolicy: hpa\n", "2 documents"),
        ("policy: kap\n", "spec.scaling.policy (is 'kap'): there is no policy of this name"),
        ("target: 999\n", "spec.scaling.target (is 999): target is above slots (4)"),
        ("kind: TrainingJob\nspec: {}\n", "'TrainingJob' is no Model"),
        ("spec: {slots: many, scaling: {}}\n", "spec.slots (is 'many'): must be a whole number"),
        ("spec: {slots: 0, scaling: {}}\n", "spec.slots (is 0): must be at least 1; write 1 or more"),
        ("spec: {slots: .inf, scaling: {}}\n", "spec.slots (is"),
        ("spec: {priority: 1e999, scaling: {}}\n", "spec.priority (is"),
        ("spec: {slo: 3, scaling: {}}\n", "spec.slo (is 3): must be a mapping of fields"),
        ("spec: {resources: [1], scaling: {}}\n", "spec.resources (is [1]): must be a mapping of fields"),
        ("spec: {coldStart: 3, scaling: {}}\n", "spec.coldStart (is 3): must be a mapping of fields"),
    ):
        file.write_text(text, encoding="utf-8")
        assert (ran := relume("explain", "echo", "--what-if", str(file), live=live)).code == 1
        assert words in ran.err
        assert ran.out == ""


def test_nothing_decided_yet(relume: Relume, live: LiveAdmin) -> None:
    """The answer is no."""
    declare(live)
    assert (ran := relume("explain", "echo", "--at", "2999-01-01T00:00:00Z", live=live)).code == 1
    assert "nothing was decided" in ran.err


def test_a_record_of_another_release_is_said_to_be_unreadable(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """It is left out of what-if, and counted."""
    declare(live)
    live.do(live.admin.say(replace(story()[0], snapshot={"new": True}), *story()))
    file = tmp_path / "policy.yaml"
    file.write_text("maxReplicas: 10\n", encoding="utf-8")
    answer = json.loads(relume("explain", "echo", "--what-if", str(file), "-o", "json", live=live).out)
    assert answer["unread"] == 1
