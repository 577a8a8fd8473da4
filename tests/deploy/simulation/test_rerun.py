"""Another policy on a relume's own log: what `relume explain --what-if` replays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.model import Reason
from autoscaler.core.policy import ScalingPolicy
from autoscaler.declared import read_declaration
from autoscaler.own import OwnPolicyFailed
from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.what_if import Answer, sentences, what_if
from deploy.simulation.rerun import TOPICS, Of, Rerun, first_window, rerun
from events.codec import encode_structured
from events.envelope import AnyEnvelope, Envelope
from events.kinds import KINDS
from events.types.metrics import SignalMeasured
from events.types.models import ModelDeclared
from events.units import Instant, format_instant
from tests.support.autoscaling import T0, Run, declared, observed

MODEL = {"keepAlive": "1m", "target": 4}


class Recorded(Run):
    """Keeps what comes out of the log, and obeys a second after each wish: by an event, as the cluster does."""

    def __init__(self, *declarations: ModelDeclared) -> None:
        self.events: list[AnyEnvelope] = []
        super().__init__(*declarations, obey=False)

    def put(self, data: object, source: str = "relume/test", at: float | None = None) -> None:
        if not isinstance(data, ModelDeclared):
            told = Envelope(id=f"e-{len(self.events)}", source=source, subject="model/m", key="model/m", time=self.now,
                            data=data)  # fmt: skip
            self.events.append(told)
        super().put(data, source, at)

    def live(self, *, running: int = 0, waiting: int = 0, seconds: int = 1) -> None:
        """As `serve`, second by second."""
        for _ in range(seconds):
            self.serve(running=running, waiting=waiting)
            self.put(observed(self.wish().replicas), "relume/cluster/local")

    def items(self) -> list[dict[str, Any]]:
        """As the admin API has them, the oldest first."""
        return [
            {"model": wish.model, "time": format_instant(Instant(T0 + at)), "replicas": wish.replicas,
             "reasons": list(wish.reasons), "snapshot": wish.snapshot, "policy": wish.policy, "memory": wish.memory}
            for at, wish in self.wishes
        ]  # fmt: skip


def given(scaling: dict[str, object]) -> dict[str, object]:
    """What is declared: a price of a cold start stands in the place of a keep-alive."""
    return {**(MODEL if "coldStartCost" not in scaling else {"target": 4}), **scaling}


def story(**scaling: object) -> Recorded:
    """Forty requests at once, a minute of less, one at a time, and five minutes of nothing."""
    run = Recorded(declared(**given(scaling)))
    run.advance(10.0)
    run.live(waiting=40, seconds=2)
    run.live(running=40, seconds=60)
    run.live(running=1, seconds=100)
    run.stop()
    run.advance(300.0)
    return run


def policy(**scaling: object) -> ScalingPolicy:
    """As declared with this instead."""
    return read_declaration(declared(**given(scaling))).policy


def again(run: Recorded, chosen: ScalingPolicy) -> Rerun:
    """All of the log, by another policy."""
    return rerun(run.events, Of("m", "u", Instant(T0), run.now), chosen)


@pytest.mark.parametrize(
    "scaling",
    [{}, {"policy": "keda"}, {"policy": "kpa"}, {"policy": "keepalive"}, {"policy": "concurrency"},
     {"coldStartCost": "30s"}, {"stableWindow": "2m", "panicWindow": "10s"}],
)  # fmt: skip
def test_the_same_policy_wishes_the_same_at_the_same_instants(scaling: dict[str, object]) -> None:
    """To the number, to the reason, to the millisecond: it is the same code on the same events."""
    run = story(**scaling)
    was = [(at, wish.replicas, wish.reasons) for at, wish in run.wishes]
    replayed = again(run, policy(**scaling))
    would = [(round(one.at - T0, 3), one.replicas, tuple(map(str, one.reasons))) for one in replayed.wishes]
    assert [one[:2] for one in would] == [one[:2] for one in was]
    assert would == [(at, replicas, tuple(map(str, reasons))) for at, replicas, reasons in was]


def test_windows_and_instants_are_the_new_policys_own() -> None:
    """A keep-alive of ten minutes holds to its end though nothing was decided then; one of a minute and a stable
    window of 20 s lets go after 20 s of less, which no recorded situation tells."""
    run = story()
    shorter = again(run, policy(stableWindow="20s", keepAlive="20s"))
    falls = min(one.at for one in shorter.wishes if 0 < one.replicas < 10 and one.at > T0 + 60)
    recorded = min(at for at, wish in run.wishes if 0 < wish.replicas < 10 and at > 60)
    assert falls - T0 < recorded
    longer = again(run, policy(keepAlive="10m"))
    assert longer.wishes[-1].replicas > 0, "ten minutes after the last request are not over yet"
    assert again(run, policy()).wishes[-1].replicas == 0
    assert longer.replica_seconds(run.now) > again(run, policy()).replica_seconds(run.now)


def test_numbers_from_outside_count_by_the_new_targets() -> None:
    """A queue of sixty at twenty a replica needs three; at six, ten; one that was never told is not known."""
    run = Recorded(declared(signals=[{"name": "queue", "target": 20}]))
    run.advance(5.0)
    for _ in range(30):
        run.put(SignalMeasured(model="m", name="queue", value=60.0, valid_for=30.0), "app")
        run.put(observed(run.wish().replicas), "relume/cluster/local")
        run.advance(10.0)
    most = {
        name: max(one.replicas for one in again(run, policy(signals=signals)).wishes)
        for name, signals in (
            ("same", [{"name": "queue", "target": 20}]), ("six", [{"name": "queue", "target": 6}]),
            ("none above", [{"name": "queue", "target": 6, "activation": 60}]),
        )
    }  # fmt: skip
    assert most == {"same": 3, "six": 10, "none above": 0}
    assert max(wish.replicas for _, wish in run.wishes) == 3
    other = again(run, policy(signals=[{"name": "another", "target": 1}]))
    assert other.wishes[-1].replicas == max(wish.replicas for wish in other.wishes)
    assert Reason.SIGNAL_STALE in other.wishes[-1].reasons or Reason.SIGNAL in other.wishes[-1].reasons


def test_another_declaration_of_the_same_name_is_not_in_it() -> None:
    """Windows and replicas of another uid are void."""
    run = story()
    old = [replace(one, data=replace(one.data, uid="old")) for one in run.events if hasattr(one.data, "uid")]
    assert first_window(old, "u") is None
    assert [one.replicas for one in rerun(old, Of("m", "u", Instant(T0), run.now), policy()).wishes] == [0]


def test_ones_own_policy_that_raises_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a replay of the wish that stands."""
    (tmp_path / "raising_here.py").write_text(
        "def decide(snapshot, policy, now):\n    return 1 // 0\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OwnPolicyFailed, match="raising_here:decide raised ZeroDivisionError"):
        again(story(), policy(policy="raising_here:decide"))


class Told(Connection):
    """A relume whose log has these events."""

    def __init__(self, events: list[AnyEnvelope]) -> None:
        self._events = events

    def lines(self, path: str, query: Mapping[str, object] | None = None, *, follow: bool = False) -> Iterator[bytes]:
        assert (path, follow) == ("/v1alpha1/events", False)
        assert query is not None
        for one in self._events:
            if KINDS[type(one.data)].topic == query["topic"]:
                yield encode_structured(one)


def asked(run: Recorded, text: str, file: Path, events: list[AnyEnvelope] | None = None) -> Answer:
    """What `relume explain m --what-if FILE` would find."""
    file.write_text(text, encoding="utf-8")
    return what_if(Told(run.events if events is None else events), run.items(), file, run.now)


def test_the_answer_over_the_log(tmp_path: Path) -> None:
    """The same says the same; another says when it differs, what both took, and what is not in it."""
    run, file = story(), tmp_path / "policy.yaml"
    same = asked(run, "maxReplicas: 10\nkeepAlive: 1m\ntarget: 4\n", file)
    assert [row["wouldBe"] for row in same.rows] == [row["replicas"] for row in same.rows]
    assert same.seconds is not None
    assert same.seconds[0] == pytest.approx(same.seconds[1])
    told = sentences(same)
    assert told[-1] == f"0 of {len(run.wishes)} decisions would be another number."
    assert len(told) == 3, "no line for a difference, since there is none"
    other = asked(run, "scaling: {maxReplicas: 10, keepAlive: 5m, target: 4}\n", file)
    assert other.seconds is not None
    assert other.seconds[1] > other.seconds[0]
    assert any("; would be" in line for line in sentences(other))
    assert json.loads(json.dumps(other.changes)) == other.changes


def test_what_is_wished_some_milliseconds_later_is_the_same(tmp_path: Path) -> None:
    """A replay looks at instants of its own: a descent that was decided eight milliseconds before its look is no other
    decision."""
    run, file = story(), tmp_path / "policy.yaml"
    file.write_text("maxReplicas: 10\nkeepAlive: 1m\ntarget: 4\n", encoding="utf-8")
    numbers = [wish.replicas for _, wish in run.wishes]
    falls = [index > 0 and number < numbers[index - 1] for index, number in enumerate(numbers)]
    assert sum(falls) > 2
    run.wishes = [(at - 0.008 * fell, wish) for fell, (at, wish) in zip(falls, run.wishes, strict=True)]
    told = sentences(what_if(Told(run.events), run.items(), file, run.now))
    assert told[-1] == f"0 of {len(run.wishes)} decisions would be another number."


def test_a_whole_document_counts_whole(tmp_path: Path) -> None:
    """Its slots and promises, and not its scaling alone; what it leaves out is as it was."""
    run, file = story(), tmp_path / "model.yaml"
    head = "kind: Model\nspec:\n  scaling: {maxReplicas: 10, keepAlive: 1m}\n"
    most = {}
    for name, more in (
        ("as it was", ""),
        ("slots", "  slots: 8\n"),
        ("slo", "  slots: 8\n  slo: {timeToFirstToken: {p95: 2s}}\n"),
    ):
        answer = asked(run, head + more, file)
        most[name] = answer.rows[-1]["wouldBe"], max(row["replicas"] for row in answer.changes)
    assert most["as it was"][1] == 10
    assert most["slots"][1] == 5
    assert most["slo"][1] != most["slots"][1], "a promise leaves slots free, and sizes by it"
    with pytest.raises(Refused, match=r"model\.yaml"):
        asked(run, head + "  slo: {timeToFirstToken: {p95: soon}}\n", file)


def test_what_the_log_has_lost_is_decided_from_what_was_seen(tmp_path: Path) -> None:
    """And said so: of all, or of those that are older than its first window."""
    run, file = story(), tmp_path / "policy.yaml"
    text = "maxReplicas: 3\nkeepAlive: 1m\ntarget: 4\n"
    nothing = asked(run, text, file, [])
    assert (nothing.seconds, nothing.changes) == (None, [])
    assert "the log has nothing of its requests" in nothing.notes[0]
    assert max(row["wouldBe"] for row in nothing.rows) == 3
    rest = [one for one in run.events if one.time > T0 + 60.0]
    some = asked(run, text, file, rest)
    assert "older than what the log has of requests" in some.notes[0]
    assert len(some.rows) == len(run.wishes)
    assert some.changes[0]["time"] > format_instant(Instant(T0 + 11.0))
    assert TOPICS[0] == "relume.requests"


def test_a_model_that_nobody_asked_is_replayed_all_the_same(tmp_path: Path) -> None:
    """Its schedules, say: there need be no window where there was no request."""
    run = Recorded(declared(schedules=[{"cron": "*/2 * * * *", "minReplicas": 2, "duration": "1m"}]))
    run.advance(300.0)
    answer = asked(run, "maxReplicas: 10\nschedules: [{cron: '*/2 * * * *', minReplicas: 3, duration: 1m}]\n",
                   tmp_path / "policy.yaml")  # fmt: skip
    assert answer.notes
    assert "older" not in answer.notes[0]
    assert {row["replicas"] for row in answer.changes} == {0, 3}
