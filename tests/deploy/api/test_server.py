"""Models, replicas and decisions over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from deploy.api.ports import Explanation
from deploy.api.server import AdminParts, AdminServer
from deploy.api.settings import AdminSettings
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Position, Query, Start, Subscription
from events.names import Topic
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.models import ModelDeclared
from events.types.replicas import ReplicaState
from tests.support.admin import ECHO, Admin, Load, observed, replica


async def test_apply_then_get_shows_the_model_at_zero(admin: Admin) -> None:
    """A declared model is there at once, in the list shape, with state Zero."""
    status, body = await admin.apply()
    assert status == 200
    assert body["items"][0]["action"] == "created"
    status, body = await admin.get("/v1alpha1/models")
    (item,) = body["items"]
    assert item["metadata"]["name"] == "echo"
    assert item["spec"]["scaling"]["keepAlive"] == "5m"
    assert item["status"]["state"] == "Zero"
    assert item["status"]["heldRequests"] is None


async def test_the_declaration_stands_in_the_log(admin: Admin) -> None:
    """What was applied can be read from the log, under the model's key."""
    await admin.apply()
    records = [record async for record in admin.log.read(Query(Topic.MODELS))]
    assert [(record.envelope.key, record.envelope.data.model) for record in records] == [("model/echo", "echo")]


async def test_applying_the_same_twice_changes_nothing(admin: Admin) -> None:
    """The second time is unchanged and writes nothing; another engine option makes a revision."""
    await admin.apply()
    _, again = await admin.apply()
    assert again["items"][0]["action"] == "unchanged"
    _, changed = await admin.apply(ECHO.replace("500ms", "700ms"))
    assert changed["items"][0]["action"] == "configured"
    assert changed["items"][0]["metadata"]["revision"] == 2
    assert len([record async for record in admin.log.read(Query(Topic.MODELS))]) == 2


async def test_dry_run_writes_nothing(admin: Admin) -> None:
    """dryRun says what would happen and leaves the log alone."""
    status, body = await admin.apply(query="?dryRun=true")
    assert (status, body["dryRun"], body["items"][0]["action"]) == (200, True, "created")
    assert [record async for record in admin.log.read(Query(Topic.MODELS))] == []


async def test_several_documents_are_declared_all_or_none(admin: Admin) -> None:
    """One wrong document refuses the others too, and every wrong field is told."""
    wrong = ECHO.replace("name: echo", "name: other").replace("aliases: [org/echo]", "slots: 0\n  prioritty: 3")
    status, body = await admin.apply(ECHO + "---\n" + wrong)
    assert status == 422
    paths = {problem["path"]: problem for problem in body["problems"]}
    assert set(paths) == {"spec.slots", "spec.prioritty"}
    assert "priority" in paths["spec.prioritty"]["remedy"]
    assert (await admin.get("/v1alpha1/models"))[1]["items"] == []


@pytest.mark.parametrize(("name", "alias"), [("two", "org/echo"), ("two", "echo")])
async def test_an_alias_belongs_to_one_model(admin: Admin, name: str, alias: str) -> None:
    """An alias or name of another model is refused with 409 and the owner's name."""
    await admin.apply()
    status, body = await admin.apply(ECHO.replace("name: echo", f"name: {name}").replace("org/echo", alias))
    assert status == 409
    assert "model echo" in body["problems"][0]["rule"]


async def test_one_model_twice_in_a_body_is_refused(admin: Admin) -> None:
    """Two documents of one name cannot both be right."""
    status, body = await admin.apply(ECHO + "---\n" + ECHO)
    assert (status, body["problems"][0]["path"]) == (409, "metadata.name")


async def test_applies_at_the_same_time_are_one_after_the_other(admin: Admin) -> None:
    """Twenty changes at once: generations count up without a gap, one winner each."""
    texts = [ECHO.replace("500ms", f"{n + 1}s") for n in range(20)]
    answers = await asyncio.gather(*(admin.apply(text) for text in texts))
    assert {status for status, _ in answers} == {200}
    assert sorted(body["items"][0]["metadata"]["generation"] for _, body in answers) == list(range(1, 21))
    records = [record async for record in admin.log.read(Query(Topic.MODELS))]
    assert [record.envelope.data.generation for record in records] == list(range(1, 21))


async def test_a_model_is_found_by_its_alias(admin: Admin) -> None:
    """An alias with a slash, encoded in the path, means its model."""
    await admin.apply()
    status, body = await admin.get("/v1alpha1/models/org%2Fecho")
    assert (status, body["metadata"]["name"]) == (200, "echo")


async def test_an_unknown_model_is_answered_with_the_nearest(admin: Admin) -> None:
    """404 says which name was meant."""
    await admin.apply()
    status, body = await admin.get("/v1alpha1/models/ecko")
    assert (status, body["type"], body["remedy"]) == (404, "urn:relume:problem:model-not-found", "did you mean echo?")


async def test_delete_then_declare_anew(admin: Admin) -> None:
    """A deleted model is gone when nothing of it runs; declared again it has another uid and the next revision."""
    _, first = await admin.apply()
    async with admin.http.delete("/v1alpha1/models/echo") as response:
        assert response.status == 200
    assert (await admin.get("/v1alpha1/models/echo"))[0] == 404
    async with admin.http.delete("/v1alpha1/models/echo") as response:
        assert response.status == 404
    _, second = await admin.apply()
    assert second["items"][0]["action"] == "created"
    assert second["items"][0]["metadata"]["uid"] != first["items"][0]["metadata"]["uid"]
    assert second["items"][0]["metadata"]["revision"] == 2


async def test_a_deleted_model_is_shown_while_its_replicas_drain(admin: Admin) -> None:
    """Draining until the last replica is gone, then 404."""
    _, body = await admin.apply()
    uid = body["items"][0]["metadata"]["uid"]
    await admin.say(observed(replica(uid=uid), uid=uid))
    async with admin.http.delete("/v1alpha1/models/echo"):
        pass
    status, body = await admin.get("/v1alpha1/models/echo")
    assert (status, body["status"]["state"], body["status"]["reason"]) == (200, "Draining", "Deleted")
    await admin.say(observed(uid=uid))
    assert (await admin.get("/v1alpha1/models/echo"))[0] == 404


async def test_scale_sets_an_override(admin: Admin) -> None:
    """A person's number stands in the declaration with its end."""
    await admin.apply()
    async with admin.http.put("/v1alpha1/models/echo/scale", json={"replicas": 3, "for": "10m"}) as response:
        assert response.status == 200
        assert (await response.json())["status"]["override"]["replicas"] == 3
    data: ModelDeclared = [record async for record in admin.log.read(Query(Topic.MODELS))][-1].envelope.data
    assert data.override is not None
    assert 590 < data.override.until - admin.clock.now() <= 600
    async with admin.http.delete("/v1alpha1/models/echo/scale") as response:
        assert (await response.json())["status"]["override"] is None
    async with admin.http.delete("/v1alpha1/models/none/scale") as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"replicas": -1, "for": "10m"}, 422), ({"replicas": 1}, 422), ({"replicas": 1, "for": "ten"}, 400),
        ({"replicas": 1, "for": "0s"}, 400), ({"replicas": 1, "for": "31d"}, 400), ([], 422),
        ({"replicas": True, "for": "1m"}, 422), ({"replicas": "1", "for": "1m"}, 422),
        ({"replicas": 501, "for": "1m"}, 422), ({"replicas": 1.5, "for": "1m"}, 422), ({"replicas": 1, "for": 60}, 422),
    ],
)  # fmt: skip
async def test_scale_refuses_what_makes_no_sense(admin: Admin, body: object, status: int) -> None:
    """Wrong numbers and durations are told field by field and change nothing."""
    await admin.apply()
    async with admin.http.put("/v1alpha1/models/echo/scale", json=body) as response:
        assert response.status == status
        problem = (await response.json(content_type=None))["problems"][0]
        assert problem["remedy"]
        assert problem["rule"] == "Field required" or problem["value"]
    assert (await admin.get("/v1alpha1/models/echo"))[1]["status"]["override"] is None


async def test_status_follows_the_log_and_the_slots(admin: Admin) -> None:
    """Observed replicas and the desk's numbers meet in one status."""
    _, body = await admin.apply()
    uid = body["items"][0]["metadata"]["uid"]
    admin.traffic.loads = [Load("echo", running=2, held=5)]
    await admin.say(observed(replica(uid=uid), uid=uid))
    status = (await admin.get("/v1alpha1/models/echo"))[1]["status"]
    assert (status["state"], status["readyReplicas"]) == ("Ready", 1)
    assert (status["runningRequests"], status["heldRequests"]) == (2, 5)
    assert status["expectedStartSeconds"] == 2.0


async def test_replicas_of_one_model(admin: Admin) -> None:
    """Replicas are listed by name and can be asked for by model; an unknown model is 404."""
    _, body = await admin.apply()
    uid = body["items"][0]["metadata"]["uid"]
    both = (replica("echo-r1-1", ReplicaState.STARTING, uid), replica("echo-r1-0", uid=uid))
    await admin.say(observed(*both, uid=uid))
    items = (await admin.get("/v1alpha1/replicas?model=org/echo"))[1]["items"]
    assert [item["metadata"]["name"] for item in items] == ["echo-r1-0", "echo-r1-1"]
    assert (items[1]["status"]["state"], items[1]["status"]["phase"]) == ("Starting", "load")
    assert (await admin.get("/v1alpha1/replicas?model=nobody"))[0] == 404


def wish(model: str, replicas: int) -> WishDecided:
    return WishDecided(
        model=model, uid="u", revision=1, replicas=replicas, priority=100, reasons=("edge",),
        snapshot={"waiting": replicas}, policy={}, memory={},
    )  # fmt: skip


async def test_decisions_newest_first_and_by_model(admin: Admin) -> None:
    """The newest so many decisions of a model, with what they were taken from."""
    for count in range(1, 5):
        await admin.say(wish("echo", count), wish("other", 9))
    items = (await admin.get("/v1alpha1/decisions?model=echo&limit=3"))[1]["items"]
    assert [item["replicas"] for item in items] == [4, 3, 2]
    assert items[0]["snapshot"] == {"waiting": 4}


async def test_decisions_of_who_had_lost_the_partition_do_not_count(admin: Admin) -> None:
    """Not in the list, and not on the board."""
    _, body = await admin.apply()
    ours = replace(wish("echo", 2), uid=body["items"][0]["metadata"]["uid"])
    await admin.say(OwnershipTaken(partition=0, owner="zombie"), OwnershipTaken(partition=0, owner="owner"))
    await admin.log.append(
        [admin.writer.envelope(ours, epoch=1), admin.writer.envelope(replace(ours, replicas=7), epoch=0)]
    )
    items = (await admin.get("/v1alpha1/decisions?model=echo"))[1]["items"]
    assert [item["replicas"] for item in items] == [2]
    entry = admin.server.board.entry("echo")
    assert entry is not None
    assert entry.wish == ours


async def test_explain(admin: Admin) -> None:
    """The explanation of the autoscaler's part is passed on; before the first decision it says so."""
    await admin.apply()
    _, body = await admin.get("/v1alpha1/models/echo/explain")
    assert body["sentences"] == ["Nothing was decided for this model yet."]
    admin.explainer.by_model["echo"] = Explanation(["One request waits, so one replica."], {"replicas": 1})
    _, body = await admin.get("/v1alpha1/models/org%2Fecho/explain")
    assert (body["model"], body["sentences"], body["facts"]) == (
        "echo", ["One request waits, so one replica."], {"replicas": 1},
    )  # fmt: skip


async def test_ready_only_when_every_part_is(admin: Admin) -> None:
    """readyz is 503 with the reasons until nothing is missing; healthz lives all along."""
    admin.readiness.reasons = ["the gateway does not listen yet"]
    waiting = {"ready": False, "missing": ["the gateway does not listen yet"], "troubles": []}
    assert await admin.get("/readyz") == (503, waiting)
    assert (await admin.get("/healthz"))[0] == 200
    admin.readiness.reasons = []
    assert await admin.get("/readyz") == (200, {"ready": True, "missing": [], "troubles": []})


async def test_ready_with_troubles(admin: Admin) -> None:
    """What does not work though requests are taken is told, and the process stays ready."""
    admin.readiness.wrong = ["the event log takes nothing"]
    told = {"ready": True, "missing": [], "troubles": ["the event log takes nothing"]}
    assert await admin.get("/readyz") == (200, told)


async def test_a_declaration_made_before_the_start_is_known(admin: Admin) -> None:
    """A second server on the same log shows what the first one declared."""
    await admin.apply()
    parts = AdminParts(admin.log, admin.clock, admin.traffic, admin.logs, admin.explainer, admin.readiness)
    second = AdminServer(parts, AdminSettings(port=0))
    await second.start()
    try:
        await second.caught_up()
        assert second.board.names() == ["echo"]
    finally:
        await second.close()


async def test_a_follower_that_breaks_makes_the_process_unready(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in the board is told in the log, and readiness says that what is shown may be old."""

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(admin.server.board, "apply", broken)
    await admin.say(observed(replica()))
    status, body = await admin.get("/readyz")
    assert (status, body["missing"]) == (503, ["admin-states has ended: see the log of this process"])
    assert "a bug" in caplog.text


async def test_the_board_follows_again_after_the_log_failed(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that fails for a moment is followed again from the newest values, and nothing is missed."""
    monkeypatch.setattr("events.following.REREAD", 0.01)
    failures = iter([LogUnavailable("broker away"), LogUnavailable("still away")])
    subscribe = admin.log.subscribe

    def flaky(topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        if (failure := next(failures, None)) is not None:
            raise failure
        return subscribe(topics, start, group)

    monkeypatch.setattr(admin.log, "subscribe", flaky)
    parts = AdminParts(admin.log, admin.clock, admin.traffic, admin.logs, admin.explainer, admin.readiness)
    second = AdminServer(parts, AdminSettings(port=0))
    await admin.apply()
    await second.start()
    try:
        async with asyncio.timeout(10):
            await second.caught_up()
        assert second.board.names() == ["echo"]
    finally:
        await second.close()


async def test_who_leaves_while_applying_loses_nothing(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apply whose asker has gone is finished: log and board agree afterwards."""
    append, begun, release = admin.log.append, asyncio.Event(), asyncio.Event()

    async def slow(events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        begun.set()
        await release.wait()
        return await append(events)

    monkeypatch.setattr(admin.log, "append", slow)
    asking = asyncio.create_task(admin.apply())
    async with asyncio.timeout(20):
        await begun.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0.05)  # the server may see that nobody waits; what is shown does not hang on it
    release.set()
    _, again = await admin.apply()
    assert again["items"][0]["action"] == "unchanged"
    assert len([record async for record in admin.log.read(Query(Topic.MODELS))]) == 1
