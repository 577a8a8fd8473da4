"""Commands that talk to a running relume, against a real admin server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from deploy.api.ports import Explanation
from deploy.cli.output import age, seconds, table_text
from deploy.cli.waiting import progress_of, settled
from events.types.decisions import WishDecided
from events.types.metrics import SignalMeasured
from events.types.replicas import CardsObserved, ReplicaState
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.admin import ECHO, Load, observed, replica


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    """A file that declares echo."""
    path = tmp_path / "echo.yaml"
    path.write_text(ECHO)
    return str(path)


def declare(live: LiveAdmin, *replicas: Any) -> str:
    """Echo with these replicas; its uid."""
    _, body = live.do(live.admin.apply())
    uid = str(body["items"][0]["metadata"]["uid"])  # type: ignore[index]  # the test knows the shape
    from dataclasses import replace  # noqa: PLC0415 - beside its only use

    live.do(live.admin.say(observed(*[replace(one, uid=uid) for one in replicas], uid=uid)))
    return uid


def test_apply_get_delete(relume: Relume, live: LiveAdmin, manifest: str) -> None:
    """A model is applied, listed in the documented shape, and deleted."""
    ran = relume("apply", "-f", manifest, live=live)
    assert (ran.code, ran.out, ran.err) == (0, "", "model echo created, revision 1\n")
    assert relume("apply", "-f", manifest, live=live).err == "model echo unchanged\n"
    ran = relume("get", "models", "-o", "json", live=live)
    (item,) = json.loads(ran.out)["items"]
    assert (item["metadata"]["name"], item["status"]["state"], ran.err) == ("echo", "Zero", "")
    assert {"replicas", "readyReplicas", "heldRequests", "runningRequests"} <= set(item["status"])
    assert relume("delete", "model", "echo", live=live).code == 0
    ran = relume("delete", "model", "echo", live=live)
    assert (ran.code, ran.out) == (1, "")
    assert relume("delete", "model", "echo", "--ignore-missing", live=live).code == 0
    assert relume("get", "models", live=live).err == "no models\n"


def test_get_selects_models_by_label(relume: Relume, live: LiveAdmin) -> None:
    """`-l` shows the models that have all of the labels; a selector that is none is wrong use."""
    for name, labels in (("ads", "{team: ads, tier: '1'}"), ("shop", "{team: shop, tier: '1'}"), ("bare", "{}")):
        document = f"{ECHO.replace('name: echo', f'name: {name}, labels: {labels}').replace('org/echo', f'org/{name}')}"
        assert relume("apply", "-f", "-", stdin=document, live=live).code == 0

    def names(selector: str) -> list[str]:
        items = json.loads(relume("get", "models", "-l", selector, "-o", "json", live=live).out)["items"]
        return [item["metadata"]["name"] for item in items]

    assert names("tier=1") == ["ads", "shop"]
    assert names("team=ads,tier=1") == ["ads"]
    assert names("team=none") == []
    for wrong in (("models", "-l", "team"), ("replicas", "-l", "team=ads")):
        assert relume("get", *wrong, live=live).code == 2


def test_apply_from_standard_input_and_dry_run(relume: Relume, live: LiveAdmin) -> None:
    """`-f -` reads standard input; --dry-run changes nothing; -o json is the answer of the API."""
    ran = relume("apply", "-f", "-", "--dry-run", "-o", "json", stdin=ECHO, live=live)
    assert json.loads(ran.out)["items"][0]["action"] == "created"
    assert relume("get", "models", live=live).err == "no models\n"
    assert relume("apply", "-f", "-", stdin=ECHO, live=live).code == 0


def test_apply_tells_file_and_line(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """A wrong field is told with file, line, path, rule and the nearest name; nothing is declared."""
    path = tmp_path / "wrong.yaml"
    path.write_text(ECHO + "  slotss: 4\n")
    ran = relume("apply", "-f", str(path), live=live)
    assert (ran.code, ran.out) == (1, "")
    assert f"{path}:7" in ran.err
    assert "spec.slotss" in ran.err
    assert "did you mean slots?" in ran.err


def test_the_server_says_no(relume: Relume, live: LiveAdmin) -> None:
    """What only the server can know is told field by field too."""
    declare(live)
    ran = relume("apply", "-f", "-", stdin=ECHO.replace("name: echo", "name: two"), live=live)
    assert ran.code == 1
    assert "spec.aliases[0]" in ran.err
    assert "model echo" in ran.err


def test_yaml_of_a_model_can_be_applied_again(relume: Relume, live: LiveAdmin) -> None:
    """`get -o yaml | apply -f -` changes nothing."""
    declare(live)
    ran = relume("get", "models", "echo", "-o", "yaml", live=live)
    document = YAML(typ="safe").load(ran.out)
    assert (document["kind"], document["metadata"]) == ("Model", {"name": "echo"})
    assert relume("apply", "-f", "-", stdin=ran.out, live=live).err == "model echo unchanged\n"


def test_tables_are_plain_and_whole_when_piped(relume: Relume, live: LiveAdmin) -> None:
    """No escape codes, no cut cells, a header, one line a model."""
    declare(live, replica())
    live.admin.traffic.loads = [Load("echo", running=2, held=7)]
    ran = relume("get", "models", "-o", "wide", live=live)
    assert "\x1b" not in ran.out
    header, row = ran.out.splitlines()
    assert header.split()[:6] == ["NAME", "STATE", "READY", "WISH", "HELD", "RUNNING"]
    assert row.split()[:6] == ["echo", "Ready", "1/1", "-", "7", "2"]
    assert "org/echo" in row


def test_replicas(relume: Relume, live: LiveAdmin) -> None:
    """All, by name, by model; an unknown one is answered with the nearest."""
    declare(live, replica(), replica("echo-r1-1", ReplicaState.STARTING))
    assert [line.split()[0] for line in relume("get", "replicas", live=live).out.splitlines()[1:]] == [
        "echo-r1-0", "echo-r1-1",
    ]  # fmt: skip
    ran = relume("get", "replicas", "echo-r1-1", "--model", "echo", "-o", "json", live=live)
    assert [item["status"]["phase"] for item in json.loads(ran.out)["items"]] == ["load"]
    ran = relume("get", "replica", "echo-r1-7", live=live)
    assert ran.code == 1
    assert "did you mean echo-r1-" in ran.err


def test_an_unknown_model_is_answered_with_the_nearest(relume: Relume, live: LiveAdmin) -> None:
    """Exit code 1, the name that was meant, nothing on standard output."""
    declare(live)
    for arguments in (("get", "models", "ecko"), ("explain", "ecko"), ("describe", "model", "ecko"),
                      ("scale", "ecko", "1", "--for", "1m")):  # fmt: skip
        ran = relume(*arguments, live=live)
        assert (ran.code, ran.out) == (1, "")
        assert "did you mean echo?" in ran.err


def wish(replicas: int) -> WishDecided:
    return WishDecided(model="echo", uid="u", revision=1, replicas=replicas, priority=100, reasons=("edge",),
                       snapshot={}, policy={}, memory={})  # fmt: skip


def test_explain_and_decisions(relume: Relume, live: LiveAdmin) -> None:
    """Sentences for people, facts for programs, and the list of decisions."""
    declare(live)
    live.admin.explainer.by_model["echo"] = Explanation(["One request waits.", "So one replica."], {"n": 1})
    assert relume("explain", "echo", live=live).out == "One request waits.\nSo one replica.\n"
    assert json.loads(relume("explain", "echo", "-o", "json", live=live).out)["facts"] == {"n": 1}
    live.do(live.admin.say(wish(1), wish(2)))
    assert [line.split()[2] for line in relume("get", "decisions", live=live).out.splitlines()[1:]] == ["2", "1"]


def test_scale(relume: Relume, live: LiveAdmin) -> None:
    """A person's number and its end."""
    declare(live)
    ran = relume("scale", "echo", "3", "--for", "10m", live=live)
    assert (ran.code, ran.out) == (0, "")
    assert "model echo: 3 replicas by hand until 20" in ran.err
    item = json.loads(relume("scale", "echo", "0", "--for", "1h", "-o", "json", live=live).out)
    assert item["status"]["override"]["replicas"] == 0
    ran = relume("scale", "echo", "auto", live=live)
    assert (ran.code, ran.err) == (0, "model echo: the autoscaler decides\n")
    assert json.loads(relume("scale", "echo", "auto", "-o", "json", live=live).out)["status"]["override"] is None


def test_describe_tells_the_story(relume: Relume, live: LiveAdmin) -> None:
    """Who, state, replicas, the last start by phase, why, decisions, conditions, log."""
    declare(live, replica())
    live.admin.logs.lines["echo-r1-0"] = ["engine listens"]
    live.admin.explainer.by_model["echo"] = Explanation(["Because one waits."], {})
    live.do(live.admin.say(wish(1)))
    out = relume("describe", "model", "echo", live=live).out
    for part in ("Aliases:  org/echo", "State:    Ready", "spawn", "500ms", "1.50s", "2.00s to ready",
                 "Because one waits.", "1 replica (edge)", "Granted", "Log of echo-r1-0:",
                 "engine listens"):  # fmt: skip
        assert part in out
    story = json.loads(relume("describe", "model", "echo", "-o", "json", live=live).out)
    assert set(story) == {"model", "replicas", "decisions", "explanation", "log"}


def test_events(relume: Relume, live: LiveAdmin) -> None:
    """One JSON object a line, filters, an end at the limit, counts by type."""
    declare(live)
    live.do(live.admin.say(SignalMeasured(model="echo", name="queue", value=3)))
    ran = relume(
        "events", "tail", "--topic", "relume.models", "--from-beginning", "--no-follow", "-o", "json", live=live
    )
    (event,) = [json.loads(line) for line in ran.out.splitlines()]
    assert (event["type"], event["data"]["model"]) == ("relume.model.declared.v1", "echo")
    ran = relume("events", "tail", "--from-beginning", "--limit", "2", live=live)
    assert len(ran.out.splitlines()) == 2
    ran = relume("events", "tail", "--topic", "metrics", "--no-follow", live=live)
    assert "signal.measured.v1" in ran.out
    assert ran.out.endswith("model/echo  name=queue, value=3.0, target=1.0, validFor=60.0\n")
    counts = json.loads(relume("events", "stats", "-o", "json", live=live).out)
    assert counts["types"]["relume.signal.measured.v1"]["events"] == 1
    assert "relume.signal.measured.v1" in relume("events", "stats", live=live).out
    ran = relume("events", "tail", "--topic", "relume.modles", live=live)
    assert ran.code == 1
    assert "relume.models" in ran.err


def test_dead_letters(relume: Relume, live: LiveAdmin) -> None:
    """Bad events are listed with the reason."""
    assert relume("dead-letters", "list", live=live).err == "no dead letters\n"

    async def tell() -> int:
        headers = {"Content-Type": "application/json"}
        async with live.admin.http.post("/v1alpha1/events", data='{"id": 1}', headers=headers) as response:
            return response.status

    assert live.do(tell()) == 400
    assert "specversion" in relume("dead-letters", "list", live=live).out
    assert len(json.loads(relume("dead-letters", "list", "-o", "json", live=live).out)["items"]) == 1


def test_logs_of_replica_model_and_nothing(relume: Relume, live: LiveAdmin) -> None:
    """A replica's lines alone; a model's with their replica; a model without any says what to do."""
    declare(live)
    ran = relume("logs", "echo", live=live)
    assert ran.code == 1
    assert "no replica yet" in ran.err
    live.admin.logs.lines = {"echo-r1-0": ["a", "b"], "echo-r1-1": ["c"]}
    declare(live, replica(), replica("echo-r1-1"))
    assert relume("logs", "echo-r1-0", "--tail", "1", live=live).out == "b\n"
    assert relume("logs", "echo", live=live).out == "echo-r1-0 | a\necho-r1-0 | b\necho-r1-1 | c\n"
    live.admin.logs.new.put_nowait(None)
    live.admin.logs.new.put_nowait(None)
    assert sorted(relume("logs", "echo", "-f", live=live).out.splitlines()) == [
        "echo-r1-0 | a", "echo-r1-0 | b", "echo-r1-1 | c",
    ]  # fmt: skip
    assert relume("logs", "echo-r9-9", live=live).code == 1


def test_top(relume: Relume, live: LiveAdmin) -> None:
    """Models and nodes in one look, as a table when piped and as JSON."""
    declare(live, replica())
    live.do(live.admin.say(CardsObserved(node="local", cpu=2, memory_bytes=4 << 30)))
    lines = relume("top", live=live).out.splitlines()
    assert lines[1].split()[:3] == ["echo", "Ready", "1/1"]
    assert lines[-1].split() == ["local", "0/2", "0/4Gi", "0/0"]
    assert json.loads(relume("top", "-o", "json", live=live).out)["nodes"][0]["node"] == "local"


def test_version_with_and_without_a_server(relume: Relume, live: LiveAdmin) -> None:
    """Both versions; none answering is no error."""
    both = json.loads(relume("version", "-o", "json", live=live).out)
    assert both["client"] == both["server"]
    ran = relume("version", "--admin", "http://127.0.0.1:9")
    assert ran.code == 0
    assert "none answers" in ran.err


def test_wait_until_settled(relume: Relume, live: LiveAdmin) -> None:
    """A model that may be at zero is settled at once; one that should run is waited for until the time is up."""
    assert relume("apply", "-f", "-", "--wait", stdin=ECHO, live=live).code == 0
    running = ECHO + "  scaling: {minReplicas: 1}\n"
    ran = relume("apply", "-f", "-", "--wait", "--timeout", "50ms", stdin=running, live=live)
    assert ran.code == 1
    assert "not settled within 50ms: echo" in ran.err


def item(state: str, ready: int = 0, least: int = 0) -> dict[str, Any]:
    status = {"state": state, "readyReplicas": ready, "message": "exit code 1", "reason": "Crashed"}
    return {"metadata": {"name": "echo"}, "spec": {"scaling": {"minReplicas": least}}, "status": status}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (item("Zero"), True), (item("Ready", 1), True), (item("Starting"), False), (item("Draining"), False),
        (item("Ready", 1, 2), False), (item("Ready", 2, 2), True), (item("Zero", 0, 1), False),
    ],
)  # fmt: skip
def test_what_settled_means(given: dict[str, Any], wanted: bool) -> None:
    """At zero where that is allowed, else with the least number ready."""
    assert settled(given) is wanted


def test_progress_counts_from_the_last_start() -> None:
    """The bar shows the share of the expected time, and the phase; never whole before it is ready."""
    from datetime import UTC, datetime  # noqa: PLC0415 - beside its only use

    start = {"phases": [{"phase": "spawn", "startedAt": "2026-01-01T00:00:00Z"}, {"phase": "load", "startedAt": "x"}]}
    status = {
        "state": "Starting",
        "startingReplicas": 1,
        "lastStart": start,
        "expectedStartSeconds": 4.0,
        "message": "",
    }
    assert progress_of(status, datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)) == (0.25, "load, about 3.00s left")
    assert progress_of(status, datetime(2026, 1, 1, 0, 1, tzinfo=UTC)) == (0.99, "load, any moment")
    first = {**status, "expectedStartSeconds": None}
    assert progress_of(first, datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)) == (None, "load, 1.00s so far")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0ms"), (0.25, "250ms"), (1.5, "1.50s"), (59.0, "59.0s"), (125.0, "2m5s"), (7200.0, "2h")],
)
def test_seconds_for_people(value: float | None, text: str) -> None:
    """Short, with a unit; unknown is a dash."""
    assert seconds(value) == text


def test_columns_are_aligned() -> None:
    """Each column is as wide as its widest cell, with no blanks at the end of lines."""
    assert table_text(("A", "B"), [["long cell", "x"], ["y", ""]]) == "A          B\nlong cell  x\ny"
    assert age(None) == "-"
