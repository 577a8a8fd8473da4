"""`relume train` and `relume reclaims` against a running admin port."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from events.log import Query
from events.names import Topic
from events.types.replicas import Card, CardsObserved
from events.types.training import Ending, NoticeGiven, NoticeStatus, RunState, TrainingDeclared
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.admin import ECHO
from tests.support.training_events import AT, TUNE, declared, ended, granted, observed, reclaim, resumed


@pytest.fixture
def tune(tmp_path: Path) -> str:
    """A file with a training job."""
    file = tmp_path / "train.yaml"
    file.write_text(TUNE)
    return str(file)


def running(live: LiveAdmin) -> None:
    """A job that runs and has saved."""
    live.do(live.admin.say(declared(), granted(), observed()))


def newest(live: LiveAdmin) -> TrainingDeclared:
    async def last() -> TrainingDeclared:
        told: list[TrainingDeclared] = [one.envelope.data async for one in live.admin.log.read(Query(Topic.MODELS))]
        return told[-1]

    return live.do(last())


def test_submit_says_what_was_made_and_how_to_follow_it(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """Made once; the second time nothing changes; -o json is the API's answer."""
    ran = relume("train", "submit", "-f", tune, live=live)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == (
        "training job tune created, revision 1\n"
        "  follow it: relume train logs tune -f    how it is: relume train describe tune\n"
    )
    assert relume("train", "submit", "-f", tune, live=live).err == "training job tune unchanged\n"
    body = json.loads(relume("train", "submit", "-f", tune, "-o", "json", live=live).out)
    assert [(one["kind"], one["action"]) for one in body["items"]] == [("TrainingJob", "unchanged")]


def test_a_dry_run_declares_nothing(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """It says what would happen."""
    ran = relume("train", "submit", "-f", tune, "--dry-run", live=live)
    assert ran.err == "training job tune created, revision 1 (dry run)\n"
    assert relume("train", "ls", live=live).err == "no training\n"


def test_what_is_no_training_job_is_not_submitted(live: LiveAdmin, relume: Relume) -> None:
    """A model in the file is refused, with the command that takes it; a wrong field with its line."""
    ran = relume("train", "submit", "-f", "-", stdin=TUNE + "---\n" + ECHO, live=live)
    assert ran.code == 1
    assert "echo: no training job\n  try: declare files of several kinds with: relume apply" in ran.err
    ran = relume("train", "submit", "-f", "-", stdin=TUNE + "  priorit: 3\n", live=live)
    assert ran.code == 1
    assert "-:7: spec.priorit (is 3): there is no field priorit here; did you mean priority?" in ran.err


def test_apply_and_validate_take_both_kinds(live: LiveAdmin, relume: Relume) -> None:
    """Each document is named with its kind."""
    both = ECHO + "---\n" + TUNE
    ran = relume("apply", "-f", "-", stdin=both, live=live)
    assert ran.err == "model echo created, revision 1\ntraining job tune created, revision 1\n"
    checked = json.loads(relume("validate", "-f", "-", "-o", "json", stdin=both).out)
    assert (checked["models"], checked["training"]) == (["echo"], ["tune"])


def test_waiting_until_a_job_runs(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """--wait returns once it runs; it tells what it waits for when the time is over, and a job that gave up is a no."""
    ran = relume("train", "submit", "-f", tune, "--wait", "--timeout", "1ms", live=live)
    assert ran.code == 1
    assert "not settled within 1ms: tune\n  try: relume train describe tune" in ran.err
    uid = newest(live).uid
    live.do(live.admin.say(granted(uid=uid), observed(uid=uid)))
    assert relume("apply", "-f", tune, "--wait", live=live).code == 0
    live.do(live.admin.say(ended(Ending.FAILED, uid=uid, failures=5, message="exit code 1")))
    ran = relume("train", "submit", "-f", tune, "--wait", live=live)
    assert ran.code == 1
    assert "training job tune failed: it failed 5 times in a row: exit code 1" in ran.err


def test_ls_and_get_show_the_same_table(live: LiveAdmin, relume: Relume) -> None:
    """State, members, run, step, what was saved; wide adds restarts, failures, GPUs."""
    running(live)
    ran = relume("train", "ls", live=live)
    headers, row = ran.out.splitlines()
    assert headers.split() == ["NAME", "STATE", "MEMBERS", "RUN", "STEP", "SAVED", "AGE", "GOODPUT", "REASON"]
    assert row.split()[:6] == ["tune", "Running", "1/1", "1", "120", "100"]
    assert row.split()[7].endswith("%")
    assert ran.err.startswith("all jobs: Goodput: ")
    assert "Goodput:" in relume("train", "describe", "tune", live=live).out
    wide = relume("get", "training", "-o", "wide", live=live).out.splitlines()
    assert wide[0].split()[9:] == ["RESTARTS", "FAILURES", "PREEMPTIONS", "PRIORITY", "REVISION", "GPUS", "MESSAGE"]
    assert "gpu-0" in wide[1]
    body = json.loads(relume("get", "training", "tune", "-o", "json", live=live).out)
    assert body["items"][0]["status"]["checkpoint"]["step"] == 100


def test_a_job_without_gpus_is_shown_without(live: LiveAdmin, relume: Relume) -> None:
    """What its last run had is no longer its own once it was seen empty; until then it is."""
    running(live)
    for empty_at, shown in ((None, True), (AT + 21, False)):
        over = observed(RunState.ENDED, ending=Ending.SAVED, ended_at=AT + 20, empty_at=empty_at)
        live.do(live.admin.say(granted(uid=newest(live).uid), replace(over, uid=newest(live).uid)))
        assert ("gpu-0" in relume("train", "ls", "-o", "wide", live=live).out) == shown


def test_yaml_is_what_apply_takes(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """The document of a job can be applied again and changes nothing."""
    relume("train", "submit", "-f", tune, live=live)
    text = relume("get", "training", "-o", "yaml", live=live).out
    assert relume("apply", "-f", "-", stdin=text, live=live).err == "training job tune unchanged\n"


def test_labels_select_jobs(live: LiveAdmin, relume: Relume) -> None:
    """As with models; not with reclaims, which have none."""
    text = TUNE.replace("{name: tune}", "{name: tune, labels: {team: ads}}")
    relume("apply", "-f", "-", stdin=text + "---\n" + TUNE.replace("tune", "other"), live=live)
    body = json.loads(relume("get", "training", "-l", "team=ads", "-o", "json", live=live).out)
    assert [one["metadata"]["name"] for one in body["items"]] == ["tune"]
    assert relume("get", "reclaims", "-l", "team=ads", live=live).code == 2


def test_describe_tells_the_story(live: LiveAdmin, relume: Relume) -> None:
    """What it is, what it is doing, its checkpoint, its notice, its reclaims, its log."""
    notice = NoticeGiven(id="r2", deadline=AT + 60, reason="model llama lacks 1 GPU")
    answer = NoticeStatus(id="r2", heard_at=AT + 5, eta=3.0)
    live.do(live.admin.say(declared(), granted(notice=notice), observed(notice=answer), resumed(), reclaim(name="r2")))
    live.admin.training_logs.lines = {"tune-0": ["loss 0.5"]}
    ran = relume("train", "describe", "tune", live=live)
    assert ran.code == 0
    for words in (
        "State:      Saving  Notice: model llama lacks 1 GPU; it saves by 2023-11-14T22:14:20.000000Z",
        "Run:        1, 0 restarts, 0 failed in a row, made to yield once",
        "Checkpoint: step 100,", "2048 bytes in 500ms, verified, /c/step-100",
        "Told by:    file, signal; answer within 10s, save within 2m, 30s from SIGTERM to SIGKILL",
        "Lost:       8.5 GPU-seconds to reclaims: 2.5 save, 1.0 drain, 5.0 restore",
        "Usually:    a save 2.00s (seen once), coming back 5.00s (seen once)",
        "its save takes about 3.00s", "r1  tune  llama  resumed", "Log of tune-0:\n  loss 0.5",
    ):  # fmt: skip
        assert words in ran.out, words
    story = json.loads(relume("train", "describe", "tune", "-o", "json", live=live).out)
    assert sorted(story) == ["log", "reclaims", "training"]


def test_describe_tells_a_failure(live: LiveAdmin, relume: Relume) -> None:
    """A job that gave up shows its last lines, and what to do."""
    seen = ended(Ending.FAILED, failures=5, message="exit code 1", log_tail=("ValueError: boom",))
    live.do(live.admin.say(declared(), granted(members=0), seen))
    out = relume("train", "describe", "tune", live=live).out
    assert "it failed 5 times in a row: exit code 1" in out
    assert "How it failed:\n  ValueError: boom" in out


def test_describe_warns_of_a_trainer_that_tells_nothing(live: LiveAdmin, relume: Relume) -> None:
    """While it runs, so that whoever looks knows what an interruption costs."""
    live.do(live.admin.say(declared(), granted(), observed(reports=False, step=None, checkpoint=None)))
    assert "its trainer tells nothing: all work of a run is lost" in relume("train", "describe", "tune", live=live).out


def test_logs_of_one_and_of_several_members(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """One member's lines as they are; several with their names; --member chooses; following ends with the member."""
    relume("train", "submit", "-f", tune, live=live)
    live.admin.training_logs.lines = {"tune-0": ["a"], "tune-1": ["b"]}
    assert relume("train", "logs", "tune", live=live).out == "a\n"
    relume("apply", "-f", "-", stdin=TUNE + "  members: 2\n", live=live)
    assert relume("train", "logs", "tune", live=live).out == "tune-0 | a\ntune-1 | b\n"
    assert relume("train", "logs", "tune", "--member", "tune-1", live=live).out == "b\n"
    live.loop.call_soon_threadsafe(live.admin.training_logs.new.put_nowait, None)
    live.loop.call_soon_threadsafe(live.admin.training_logs.new.put_nowait, None)
    followed = relume("train", "logs", "tune", "-f", live=live)
    assert sorted(followed.out.splitlines()) == ["tune-0 | a", "tune-1 | b"]


def test_logs_that_are_not_there_yet(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """Exit code 1, and where to look."""
    relume("train", "submit", "-f", tune, live=live)
    ran = relume("train", "logs", "tune", live=live)
    assert ran.code == 1
    assert "there is no output of tune-0 yet\n  try: see what it waits for: relume train describe tune" in ran.err


def test_pause_resume_cancel_delete(live: LiveAdmin, relume: Relume, tune: str) -> None:
    """Each says what follows; a cancelled job cannot be paused, and the answer says what can be done."""
    relume("train", "submit", "-f", tune, live=live)
    assert relume("train", "pause", "tune", live=live).err == (
        "training job tune paused: it saves and gives its GPUs back\n"
    )
    assert newest(live).paused
    body = json.loads(relume("train", "resume", "tune", "-o", "json", live=live).out)
    assert body["items"][0]["status"]["state"] == "Pending"
    assert relume("train", "cancel", "tune", live=live).code == 0
    assert newest(live).cancelled
    ran = relume("train", "pause", "tune", live=live)
    assert ran.code == 1
    assert "relume train resume tune" in ran.err
    assert relume("train", "resume", "tune", live=live).code == 0
    assert not newest(live).cancelled
    assert relume("delete", "training", "tune", live=live).err == ("training job tune deleted; what runs of it ends\n")
    assert relume("train", "delete", "tune", live=live).code == 1
    assert relume("train", "delete", "tune", "--purge", live=live).code == 0
    assert newest(live).purge
    assert relume("train", "delete", "tune", "--ignore-missing", live=live).code == 0


def test_reclaims_are_listed_and_explained(live: LiveAdmin, relume: Relume) -> None:
    """A table, a filter, JSON in the form of all lists, and the story of one."""
    live.do(live.admin.say(resumed("r1"), reclaim(name="r2", shortage="")))
    headers, first, second = relume("reclaims", "ls", live=live).out.splitlines()
    assert headers.split() == ["ID", "JOB", "FOR", "STATE", "GPUS", "SAVED", "LOST", "AGE"]
    assert first.split()[:7] == ["r1", "tune", "llama", "resumed", "1", "120", "8.0"]
    assert "(a person)" in second
    body = json.loads(relume("get", "reclaims", "--model", "llama", "-o", "json", live=live).out)
    assert [one["metadata"]["name"] for one in body["items"]] == ["r1"]
    story = relume("reclaims", "explain", "r1", live=live).out
    assert "tune was chosen because it was the cheapest that freed enough" in story
    assert json.loads(relume("reclaims", "explain", "r1", "-o", "json", live=live).out)["id"] == "r1"
    ran = relume("reclaims", "explain", "r9", live=live)
    assert (ran.code, "did you mean r1?" in ran.err or "relume get reclaims" in ran.err) == (1, True)


def test_a_plan_takes_members_of_an_elastic_job(live: LiveAdmin, relume: Relume, tmp_path: Path) -> None:
    """A model that lacks one GPU: one of two members would yield, and the numbers say of how many."""
    spec = {**declared().spec, "members": 2, "elasticity": {"minMembers": 1}}
    live.do(live.admin.say(
        CardsObserved(node="local", cpu=8, memory_bytes=64 << 30, cards=(
            Card(id="gpu-0", virtual=True), Card(id="gpu-1", virtual=True))),
        declared(spec=spec), granted(members=2), observed(),
    ))  # fmt: skip
    file = tmp_path / "model.yaml"
    file.write_text(ECHO.replace("name: echo", "name: new") + "  resources: {gpus: 1, cpu: 0.1, memory: 64Mi}\n")
    (answer,) = json.loads(relume("plan", "-f", str(file), "-o", "json", live=live).out)["items"]
    assert [(one["job"], one["members"], one["whole"]) for one in answer["victims"]] == [("tune", 1, False)]
    told = answer["verdicts"][0]
    assert (told["why"], told["numbers"]["members"], told["numbers"]["of"]) == ("shrunk", 1, 2)
    assert "tune would yield (1 member)" in relume("plan", "-f", str(file), live=live).out


def test_names_are_completed(live: LiveAdmin, relume: Relume, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs after `train logs` and after `get training`, reclaims after `reclaims explain`."""
    from deploy.cli.getting import get  # noqa: PLC0415 - the command, as the shell's completion walks it
    from deploy.cli.options import complete_listed, complete_reclaims, complete_training  # noqa: PLC0415 - as above

    running(live)
    live.do(live.admin.say(reclaim()))
    context = get.make_context("get", ["training"], resilient_parsing=True)
    context.params.update(admin=live.admin.url, kind="training")
    parameter = get.params[0]
    assert [item.value for item in complete_training(context, parameter, "t")] == ["tune"]
    assert [item.value for item in complete_listed(context, parameter, "t")] == ["tune"]
    assert [item.value for item in complete_reclaims(context, parameter, "r")] == ["r1"]
    assert complete_training(context, parameter, "x") == []


def test_the_schema_of_a_job(relume: Relume) -> None:
    """`relume schema` is of models, `relume schema training` of jobs."""
    assert json.loads(relume("schema").out)["title"] == "Model"
    assert json.loads(relume("schema", "training").out)["title"] == "TrainingJob"
