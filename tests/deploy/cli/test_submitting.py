"""`relume submit` and `relume dead-letters`, over a live admin API whose log answers by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.batches import line_out, read_batch
from events.envelope import AnyEnvelope, Envelope
from events.log import Query
from events.names import Topic
from events.types.inference import FailureReason, InferenceCompleted, InferenceFailed, InferenceRequested, Origin
from events.units import Instant
from tests.deploy.cli.conftest import LiveAdmin, Relume


def batch_file(folder: Path, *names: str) -> Path:
    file = folder / "requests.jsonl"
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": {"model": "echo", "n": name}}
        for name in names
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return file


def outcome(ident: str, data: InferenceCompleted | InferenceFailed) -> AnyEnvelope:
    return Envelope(
        id=f"outcome/{ident}", source="relume/inference", subject="echo", key="echo", time=Instant(1e9), data=data,
        cause=ident,
    )  # fmt: skip


def answered(ident: str, status: int = 200) -> AnyEnvelope:
    origin = Origin(id=ident, source="relume/submit")
    return outcome(ident, InferenceCompleted(model="echo", origin=origin, status=status, body={"said": ident}))


def dead(ident: str, requested: InferenceRequested | None = None, source: str = "relume/submit") -> AnyEnvelope:
    return outcome(ident, InferenceFailed(
        model="echo", origin=Origin(id=ident, source=source), reason=FailureReason.DEADLINE, message="too late",
        failed_at=1e9, requested=requested,
    ))  # fmt: skip


async def requested(live: LiveAdmin) -> list[AnyEnvelope]:
    return [record.envelope async for record in live.admin.log.read(Query(Topic.INFERENCE_REQUESTS))]


def test_a_file_becomes_requests_once(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """Submitted twice, they are there once; a batch's name follows from its content."""
    file = batch_file(tmp_path, "a", "b")
    for _ in range(2):
        ran = relume("submit", str(file), "--priority", "3", "-o", "json", live=live)
        assert ran.code == 0
    told = json.loads(ran.out)
    assert told == {"batch": read_batch(file).name, "requests": 2}
    first, second = live.do(requested(live))
    assert first.id == f"{told['batch']}/a"
    assert (first.key, first.data.priority, first.data.body["n"]) == ("echo", 3, "a")
    assert second.data.correlation_id == "b"


def test_a_wait_writes_answers_and_errors_and_says_no(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """In the order of the file; what an engine refused, and what died, is in the file of errors: exit code 1."""
    file = batch_file(tmp_path, "a", "b", "c")
    name = read_batch(file).name
    told = [answered(f"{name}/c"), answered(f"{name}/b", 400), dead(f"{name}/a"), answered("someone/else")]
    live.do(live.admin.log.append(told))
    ran = relume("submit", str(file), "--wait", "-o", "json", live=live)
    assert ran.code == 1
    summary = json.loads(ran.out)
    assert (summary["completed"], summary["failed"]) == (1, 2)
    (good,) = map(json.loads, Path(summary["outputFile"]).read_text(encoding="utf-8").splitlines())
    assert good["custom_id"] == "c"
    assert good["response"]["status_code"] == 200
    assert good["response"]["body"] == {"said": f"{name}/c"}
    assert good["error"] is None
    first, second = map(json.loads, Path(summary["errorFile"]).read_text(encoding="utf-8").splitlines())
    assert (first["custom_id"], first["response"], first["error"]["code"]) == ("a", None, "deadline_exceeded")
    assert (second["custom_id"], second["response"]["status_code"]) == ("b", 400)


def test_all_answered_is_yes(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """Exit code 0, and words for people."""
    file = batch_file(tmp_path, "a")
    live.do(live.admin.log.append([answered(f"{read_batch(file).name}/a")]))
    ran = relume("submit", str(file), "--wait", live=live)
    assert ran.code == 0
    assert ran.out == ""
    assert "1 answered" in ran.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2: must be an object"),
        ('{"custom_id": "a", "url": "/v1/x", "body": {"model": "m"}}', "stands there twice"),
        ('{"custom_id": "b", "method": "GET", "url": "/v1/x", "body": {"model": "m"}}', "method must be POST"),
        ('{"custom_id": "b", "url": "http://x", "body": {"model": "m"}}', "url must begin with /v1/"),
        ('{"custom_id": "b", "url": "/v1/x", "body": {}}', "names a model"),
        ('{"url": "/v1/x", "body": {}}', "custom_id must be"),
    ],
)
def test_a_wrong_line_is_wrong_use(relume: Relume, live: LiveAdmin, tmp_path: Path, line: str, said: str) -> None:
    """With its number, and nothing is sent."""
    file = batch_file(tmp_path, "a")
    file.write_text(file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    ran = relume("submit", str(file), live=live)
    assert ran.code == 2
    assert said in ran.err
    assert live.do(requested(live)) == []


def test_requests_without_an_answer_are_listed_and_replayed(relume: Relume, live: LiveAdmin) -> None:
    """By model, reason or id; as new requests without the old deadline; a dry run puts nothing."""
    wanted = InferenceRequested(body={"model": "echo"}, deadline="2026-01-01T00:00:00Z", priority=4)
    live.do(live.admin.log.append([dead("x", wanted, "//shop"), dead("y", None, "//shop")]))
    items = json.loads(relume("dead-letters", "list", "--kind", "inference", "-o", "json", live=live).out)["items"]
    assert {(one["request"], one["model"], one["source"]) for one in items} == {
        ("x", "echo", "//shop"),
        ("y", "echo", "//shop"),
    }
    assert "too late" in relume("dead-letters", "list", "--reason", "deadline", live=live).out
    assert json.loads(relume("dead-letters", "list", "--model", "other", "-o", "json", live=live).out)["items"] == []
    ran = relume("dead-letters", "replay", "--all", "--dry-run", "-o", "json", live=live)
    told = json.loads(ran.out)
    assert (ran.code, told["replayed"], told["refused"][0]["id"]) == (1, ["outcome/x"], "outcome/y")
    assert live.do(requested(live)) == []
    assert relume("dead-letters", "replay", "--id", "outcome/x", live=live).code == 0
    (again,) = live.do(requested(live))
    assert (again.cause, again.data.priority, again.data.deadline) == ("outcome/x", 4, None)
    assert relume("dead-letters", "replay", "--id", "nobody", live=live).code == 1
    assert relume("dead-letters", "replay", live=live).code == 2


def test_an_event_that_could_not_be_read_is_put_again(relume: Relume, live: LiveAdmin) -> None:
    """As it was: after an upgrade it may be readable. What is still wrong is refused with the reason."""

    async def tell() -> int:
        headers = {"Content-Type": "application/json"}
        async with live.admin.http.post("/v1alpha1/events", data='{"id": 1}', headers=headers) as response:
            return response.status

    assert live.do(tell()) == 400
    ran = relume("dead-letters", "replay", "--kind", "events", "--all", "--dry-run", "-o", "json", live=live)
    told: dict[str, Any] = json.loads(ran.out)
    assert (ran.code, len(told["refused"])) == (1, 1)
    assert "names no type" in told["refused"][0]["why"]


def test_an_answer_as_a_line_of_openais() -> None:
    """The id that a batch's line has there."""
    line, good = line_out("a", {"id": "outcome/77", "data": {"status": 200, "body": {}}})
    assert good
    assert line["id"] == "batch_req_77"
