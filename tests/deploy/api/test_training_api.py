"""Training jobs and reclaims over HTTP: applied, listed, paused, cancelled, deleted, explained, counted, logged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.api.reclaim_status import explain
from events.log import Query
from events.names import Topic
from events.types.grants import Placement
from events.types.reclaims import ReclaimLedger
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.types.training import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointStatus,
    MemberGrant,
    TrainingDeclared,
)
from events.units import Instant
from tests.support.admin import ECHO, Admin
from tests.support.training_events import AT, TUNE, granted, observed, reclaim, resumed

JOB = "/v1alpha1/training/tune"

STORY = """\
Model llama lacked GPUs since 2023-11-14T22:13:20.000Z.
So training job tune (run 1) had to give 1 GPU (local/gpu-0) by 2023-11-14T22:14:20.000Z.
tune was chosen because it was the cheapest that freed enough (cost 12); its cost was put at 12 A100-seconds.
guarded was not chosen: it is protected.
2023-11-14T22:13:21.000Z (+1s) selected: chosen, nothing sent yet.
2023-11-14T22:13:21.500Z (+500ms) notified: the notice went out.
2023-11-14T22:13:22.000Z (+500ms) saving: its trainer heard it and saves.
2023-11-14T22:13:24.000Z (+2s) saved: a checkpoint of after the notice was verified.
2023-11-14T22:13:25.000Z (+1s) stopping: told to end (SIGTERM).
2023-11-14T22:13:26.000Z (+1s) draining: its processes have ended; the GPUs are looked at until they are empty.
2023-11-14T22:13:27.000Z (+1s) claimed: the GPUs are empty and set aside for the shortage.
2023-11-14T22:13:28.000Z (+1s) parked: the GPUs were handed over or given back; the job waits for capacity.
2023-11-14T22:14:50.000Z (+1m22s) resuming: the job was started again from its checkpoint.
2023-11-14T22:14:55.000Z (+5s) resumed: the job made a step beyond its checkpoint: it is back.
The checkpoint of step 120 was committed and verified.
It cost 8.0 GPU-seconds: 2.0 saving, 1.0 waiting for empty GPUs, 5.0 coming back.
No step was lost.
From the demand to usable GPUs it took 4s: plan 1s, save 2s, drain 1s.
"""


async def apply(admin: Admin, text: str, query: str = "") -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/yaml"}
    async with admin.http.post(f"/v1alpha1/apply{query}", data=text, headers=headers) as response:
        return response.status, await response.json(content_type=None)


async def get(admin: Admin, path: str) -> tuple[int, Any]:
    return await admin.get(path)


async def send(admin: Admin, method: str, path: str) -> tuple[int, Any]:
    return await admin.send(method, path)


async def told(admin: Admin) -> list[TrainingDeclared]:
    """Declarations of jobs that stand in the log."""
    found = [record.envelope.data async for record in admin.log.read(Query(Topic.MODELS))]
    return [one for one in found if isinstance(one, TrainingDeclared)]


async def uid_of(admin: Admin) -> str:
    return (await told(admin))[-1].uid


async def test_both_kinds_are_applied_at_once(admin: Admin) -> None:
    """One text declares a model and a job; the second time nothing changes; a dry run writes nothing."""
    status, body = await apply(admin, ECHO + "---\n" + TUNE, "?dryRun")
    assert (status, await told(admin)) == (200, [])
    status, body = await apply(admin, ECHO + "---\n" + TUNE)
    assert [(one["kind"], one["metadata"]["name"], one["action"]) for one in body["items"]] == [
        ("Model", "echo", "created"), ("TrainingJob", "tune", "created"),
    ]  # fmt: skip
    status, body = await apply(admin, ECHO + "---\n" + TUNE)
    assert [one["action"] for one in body["items"]] == ["unchanged", "unchanged"]
    assert len(await told(admin)) == 1


async def test_all_or_none(admin: Admin) -> None:
    """A wrong job keeps the right model from being declared, and both problems have their path."""
    status, body = await apply(admin, ECHO + "---\n" + TUNE.replace("train.py]", "train.py]\n  prioritee: 3"))
    assert status == 422
    assert [one["path"] for one in body["problems"]] == ["spec.prioritee"]
    assert (await get(admin, "/v1alpha1/models"))[1] == {"items": []}


async def test_names_of_jobs_and_models_are_apart(admin: Admin) -> None:
    """A model and a job may be called the same; a job twice in a text is refused."""
    status, _ = await apply(admin, ECHO.replace("{name: echo}", "{name: tune}") + "---\n" + TUNE)
    assert status == 200
    status, body = await apply(admin, TUNE + "---\n" + TUNE)
    assert status == 409
    assert body["problems"][0]["rule"] == "this training job is declared twice"


async def test_a_job_is_listed_with_its_status(admin: Admin) -> None:
    """List and single answer are the same item; what was observed is in it."""
    await apply(admin, TUNE)
    uid = await uid_of(admin)
    await admin.say(granted(uid=uid), observed(uid=uid))
    _, body = await get(admin, "/v1alpha1/training")
    _, item = await get(admin, JOB)
    status = item["status"]
    assert body["items"][0] | {"status": status} == item
    assert body["goodput"]["heldGpuSeconds"] == pytest.approx(status["goodput"]["heldGpuSeconds"], rel=1e-3)
    assert sum(status["goodput"]["gpuSeconds"].values()) == pytest.approx(status["goodput"]["heldGpuSeconds"], rel=1e-9)
    assert (status["state"], status["run"], status["step"], status["checkpoint"]["step"]) == ("Running", 1, 120, 100)


async def test_pause_resume_cancel_delete(admin: Admin) -> None:
    """Each is a declaration; what is done already changes nothing; what was cancelled is resumed, not paused."""
    await apply(admin, TUNE)
    for _ in range(2):
        _, item = await send(admin, "PUT", f"{JOB}/pause")
        assert item["status"]["state"] == "Paused"
    _, item = await send(admin, "DELETE", f"{JOB}/pause")
    assert item["status"]["state"] == "Pending"
    _, item = await send(admin, "PUT", f"{JOB}/cancel")
    assert item["status"]["state"] == "Cancelled"
    status, problem = await send(admin, "PUT", f"{JOB}/pause")
    assert (status, problem["type"]) == (409, "urn:relume:problem:cancelled")
    assert "relume train resume tune" in str(problem["remedy"])
    _, item = await send(admin, "DELETE", f"{JOB}/pause")
    assert item["status"]["state"] == "Pending"
    status, _ = await send(admin, "DELETE", JOB)
    assert status == 200
    status, _ = await send(admin, "DELETE", f"{JOB}?purge=true")
    assert status == 200
    assert [(one.paused, one.cancelled, one.deleted, one.purge, one.generation) for one in await told(admin)] == [
        (False, False, False, False, 1), (True, False, False, False, 2), (False, False, False, False, 3),
        (False, True, False, False, 4), (False, False, False, False, 5), (False, False, True, False, 6),
        (False, False, True, True, 7),
    ]  # fmt: skip
    status, problem = await get(admin, JOB)
    assert (status, problem["type"]) == (404, "urn:relume:problem:training-job-not-found")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_an_unknown_job_is_told_with_the_nearest(admin: Admin, method: str) -> None:
    """404 with what was probably meant."""
    await apply(admin, TUNE)
    status, problem = await send(admin, method, "/v1alpha1/training/tun/pause")
    assert (status, problem["remedy"]) == (404, "did you mean tune?")


async def test_reclaims_are_listed_filtered_and_read(admin: Admin) -> None:
    """Those that ended come first; a filter names the job or the model; an unknown id is 404."""
    await admin.say(resumed("r1"), reclaim(name="r2"), reclaim(name="r3", job="other", shortage="qwen"))
    names = [one["metadata"]["name"] for one in (await get(admin, "/v1alpha1/reclaims"))[1]["items"]]
    assert names == ["r1", "r2", "r3"]
    for query, found in (("job=other", ["r3"]), ("model=llama", ["r1", "r2"]), ("limit=1", ["r3"])):
        _, body = await get(admin, f"/v1alpha1/reclaims?{query}")
        assert [one["metadata"]["name"] for one in body["items"]] == found
    _, item = await get(admin, "/v1alpha1/reclaims/r1")
    status = item["status"]
    assert (status["state"], status["ended"], status["checkpointStep"], status["cost"]) == ("resumed", True, 120, 12.0)
    assert status["ledger"]["lost"] == {"save": 2.0, "drain": 1.0, "restore": 5.0}
    assert [one["state"] for one in status["history"]][:2] == ["selected", "notified"]
    assert (await get(admin, "/v1alpha1/reclaims/r9"))[0] == 404


async def test_a_reclaim_is_explained(admin: Admin) -> None:
    """Who needed what, why this job and not another, each stage with its time, what it cost."""
    await admin.say(resumed())
    _, body = await get(admin, "/v1alpha1/reclaims/r1/explain")
    assert "\n".join(body["sentences"]) + "\n" == STORY


async def test_only_what_is_known_is_explained(admin: Admin) -> None:
    """No checkpoint is spoken of where none is known, and no shortage where a person took the GPUs back."""
    await admin.say(replace(resumed(), step=-1, manifest=""), replace(resumed("r2"), shortage=""))
    _, bare = await get(admin, "/v1alpha1/reclaims/r1/explain")
    story = "\n".join(bare["sentences"])
    assert "resuming: the job was started again." in story
    assert "its checkpoint" not in story
    _, asked = await get(admin, "/v1alpha1/reclaims/r2/explain")
    assert "claimed: the GPUs are empty." in "\n".join(asked["sentences"])


async def test_growing_and_lost_cards_are_explained(admin: Admin) -> None:
    """Neither is anybody's shortage, nor a person's wish; what they cost is the job's, and no preemption."""
    await apply(admin, TUNE)
    uid = await uid_of(admin)
    lost = ReclaimLedger(lost={"cards_gone": 12.0})
    none: Any = {"shortage": "", "job_uid": uid, "verdicts": (), "cost": 0.0}
    await admin.say(
        observed(uid=uid), replace(reclaim(), **none, cause="grows", cards=(), ledger=ReclaimLedger()),
        replace(reclaim(name="r2"), **none, cause="cards_gone", ledger=lost),
    )  # fmt: skip
    _, grows = await get(admin, "/v1alpha1/reclaims/r1/explain")
    assert "There was room for more members of training job tune" in str(grows["sentences"][0])
    _, gone = await get(admin, "/v1alpha1/reclaims/r2/explain")
    assert "of training job tune (run 1) were gone at" in str(gone["sentences"][0])
    assert "It cost 12.0 GPU-seconds: 12.0 work to be done again, for its GPUs vanished." in gone["sentences"]
    _, body = await get(admin, "/v1alpha1/reclaims")
    assert [one["status"]["cause"] for one in body["items"]] == ["grows", "cards_gone"]
    _, item = await get(admin, JOB)
    assert (item["status"]["gpuSecondsLost"], item["status"]["preemptions"]) == ({"cards_gone": 12.0}, 0)
    assert 'relume_preempt_gpu_seconds_lost_total{cause="cards_gone"} 12.0' in await admin.text("/metrics")


@pytest.mark.parametrize(
    ("shortage", "words"),
    [("training/big", "Training job big lacked GPUs"), ("", "A person paused, cancelled or deleted training job tune")],
)
async def test_who_else_may_need_the_cards(admin: Admin, shortage: str, words: str) -> None:
    """A job of higher priority, or a person."""
    await admin.say(reclaim(shortage=shortage))
    _, body = await get(admin, "/v1alpha1/reclaims/r1/explain")
    assert str(body["sentences"][0]).startswith(words)
    assert "No checkpoint is proven yet." in body["sentences"]


async def test_metrics_count_each_thing_once(admin: Admin) -> None:
    """A reclaim that is told again and again adds what is new; jobs are counted by state."""
    await apply(admin, TUNE)
    uid = await uid_of(admin)
    at = CheckpointStatus(step=100, at=AT, size=2048, seconds=0.5)
    stopping = reclaim("stopping", history=resumed().history[:5], ledger=ReclaimLedger(lost={"save": 1.5}))
    await admin.say(
        granted(uid=uid), observed(uid=uid), reclaim(), stopping, stopping, resumed(), resumed(), reclaim(name="open"),
        reclaim(name="by-hand", shortage=""), CheckpointCommitted(job="tune", run=1, checkpoint=at),
        CheckpointFailed(job="tune", run=1, step=3, message="disk full"),
    )  # fmt: skip
    text = await admin.text("/metrics")
    for line in (
        'relume_training_jobs{state="Running"} 1.0',
        'relume_training_jobs{state="Parked"} 0.0',
        'relume_training_step{job="tune"} 120.0',
        'relume_training_checkpoint_step{job="tune"} 100.0',
        'relume_preempt_reclaims{state="saving"} 1.0',
        'relume_preempt_preemptions_total{outcome="resumed"} 1.0',
        'relume_preempt_escalations_total{to="term"} 1.0',
        'relume_preempt_gpu_seconds_lost_total{cause="save"} 2.5',
        'relume_preempt_gpu_seconds_lost_total{cause="restore"} 5.0',
        "relume_preempt_steps_lost_total 0.0",
        'relume_preempt_reclaim_seconds_count{stage="save"} 1.0',
        'relume_preempt_checkpoints_total{outcome="committed"} 1.0',
        'relume_preempt_checkpoints_total{outcome="failed"} 1.0',
        "relume_preempt_resume_seconds_count 1.0",
        "relume_preempt_resume_seconds_sum 87.0",
        'relume_training_gpu_seconds{part="kept"} 9.5',
        'relume_training_gpu_seconds{part="barrier"} 0.0',
        "relume_preempt_thrash_total 0.0",
        "relume_preempt_claims_expired_total 0.0",
        "relume_preempt_checkpoint_bytes_total 2048.0",
        "relume_preempt_checkpoint_seconds_count 1.0",
    ):
        assert line in text.splitlines(), line
    assert 'relume_training_last_commit_age_seconds{job="tune"}' in text


async def test_metrics_tell_thrash_and_claims_in_vain(admin: Admin) -> None:
    """A job that yields again within an hour is one that thrashes; a claim that ended by its time was in vain."""
    expired = [
        replace(one, happened="timeout") if one.state == "parked" else one for one in resumed().history[:8]
    ]  # fmt: skip
    later = [replace(one, at=one.at + 600) for one in resumed().history]
    much_later = [replace(one, at=one.at + 9000) for one in resumed().history]
    await admin.say(
        resumed("a"), resumed("b", history_of=later), resumed("c", history_of=much_later),
        reclaim("parked", "d", history=tuple(expired), job_uid="other"),
    )  # fmt: skip
    lines = (await admin.text("/metrics")).splitlines()
    assert "relume_preempt_thrash_total 1.0" in lines
    assert "relume_preempt_claims_expired_total 1.0" in lines


async def test_logs_of_members(admin: Admin) -> None:
    """The first member's without a name, any by its name; a member that wrote nothing yet is told apart from an
    unknown one."""
    await apply(admin, TUNE.replace("resources:", "members: 2\n  resources:"))
    admin.training_logs.lines = {"tune-0": ["step 1", "step 2"]}
    assert await admin.text(f"{JOB}/logs?tail=1") == "step 2\n"
    assert await admin.text(f"{JOB}/logs?member=tune-0") == "step 1\nstep 2\n"
    for member, kind in (("tune-1", "no-output"), ("other-0", "member-not-found")):
        status, problem = await get(admin, f"{JOB}/logs?member={member}")
        assert (status, problem["type"]) == (404, f"urn:relume:problem:{kind}")
    assert (await get(admin, "/v1alpha1/training/nobody/logs"))[0] == 404


@pytest.mark.parametrize(
    ("resources", "cards", "words"),
    [
        (Resources(gpus=1), 1, "1 GPU ("), (Resources(gpus=2), 2, "2 GPUs ("),
        (Resources(mig_profile="1g.5gb"), 1, "1 MIG instance ("),
        (Resources(mig_profile="1g.5gb"), 2, "2 MIG instances ("),
        (Resources(gpu_fraction=0.5), 1, "a part of 1 GPU ("), (Resources(gpu_bytes=1 << 30), 2, "parts of 2 GPUs ("),
    ],
)  # fmt: skip
def test_an_instance_that_was_given_is_no_card(resources: Resources, cards: int, words: str) -> None:
    """The story says what the job had to give, not always a card."""
    names = tuple(f"local/c{at}" for at in range(cards))
    (member,) = granted().members
    sentences = explain(reclaim(cards=names, held=(replace(member, resources=resources),)), Instant(AT + 9))
    assert f"had to give {words}" in sentences[1]


async def test_the_cards_of_a_job_are_held_in_the_inventory(admin: Admin) -> None:
    """`relume gpus` shows who has a card, also when it is a training job; `relume top` counts it as granted."""
    cards = (Card(id="gpu-0", virtual=True), Card(id="gpu-1", virtual=True))
    await admin.say(CardsObserved(node="local", cpu=4.0, memory_bytes=1 << 34, cards=cards), granted())
    _, inventory = await get(admin, "/v1alpha1/gpus")
    assert inventory["free"] == 1.0
    assert inventory["nodes"][0]["cards"][0]["holders"] == [
        {"replica": "tune-0", "model": "training/tune", "share": 1.0}
    ]
    _, top = await get(admin, "/v1alpha1/top")
    assert (top["nodes"][0]["gpusGranted"], top["nodes"][0]["gpus"]) == (1, 2)
    mig = tuple(Card(id=f"m{at}", product="NVIDIA A100-SXM4-40GB", profile="1g.5gb", virtual=True) for at in range(7))
    turns = tuple(Card(id=f"t::{at}", product="L4", turns=4, virtual=True) for at in range(4))
    parts = [
        MemberGrant(member=f"tune-{at}", resources=resources, placement=Placement(node="local", gpus=(card,)))
        for at, (card, resources) in enumerate(
            (
                ("gpu-0", Resources(gpus=1)),
                ("m0", Resources(mig_profile="1g.5gb")),
                ("t::1", Resources(gpu_fraction=0.1)),
            )
        )
    ]
    await admin.say(CardsObserved(node="local", cpu=4.0, memory_bytes=1 << 34, cards=(*cards, *mig, *turns)))
    await admin.say(replace(granted(), members=tuple(parts)))
    _, top = await get(admin, "/v1alpha1/top")
    assert (top["nodes"][0]["gpusGranted"], top["nodes"][0]["gpus"]) == (1.39, 4), "parts of a card are no cards"


async def test_a_plan_is_for_jobs_too(admin: Admin) -> None:
    """What would become of a training job: here there is no card for it."""
    async with admin.http.post("/v1alpha1/plan", data=TUNE, headers={"Content-Type": "application/yaml"}) as response:
        assert response.status == 200
        answer = await response.json()
    assert answer["items"] == []
    assert [(one["job"], one["starts"], one["startedMembers"]) for one in answer["jobs"]] == [("tune", "never", 0)]
