"""Weights and cold starts over HTTP: what nodes tell, what a process without an agent says, the report."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.api.coldstarts import report, told_of
from events.types.caches import CachedWeights, CacheObserved, ModelWarmth, WeightsFetching
from events.types.phases import ColdStartFinished
from events.types.replicas import Phase
from tests.support.admin import Admin

TOLD = CacheObserved(
    node="n1", used_bytes=10, capacity_bytes=100, network=5.0,
    contents=(CachedWeights(source="https://x/a", digest="sha256:a", bytes=8, models=("echo",), in_use=True),),
    fetching=(WeightsFetching(source="https://x/b", bytes=4, done=1, why="prewarm"),),
    models=(ModelWarmth(model="echo", tier="memory", bytes=8),),
)  # fmt: skip


def started(took: float, verdict: str = "met", by: str = "", **more: Any) -> ColdStartFinished:
    """A cold start of so many seconds, all of it load but a tenth."""
    fields: dict[str, Any] = {"phases": {"hold": took / 10, "load": took * 0.9}, "tier": "remote", **more}
    return ColdStartFinished(
        model="echo", request="r", replica="echo-r1-0", arrived_at=100.0, first_byte_at=100.0 + took, sla_seconds=3.0,
        held_requests=1, verdict=verdict, missed_by=by, **fields,
    )  # fmt: skip


async def get(admin: Admin, path: str) -> tuple[int, Any]:
    """GET JSON of any shape."""
    return await admin.get(path)


async def test_what_nodes_tell_is_listed(admin: Admin) -> None:
    """The newest state of each node, with what is not known as null."""
    await admin.say(TOLD)
    status, answer = await get(admin, "/v1alpha1/caches")
    assert status == 200
    (item,) = answer["items"]
    assert item["metadata"]["name"] == "n1"
    assert item["status"]["contents"][0] | {} == {
        "source": "https://x/a", "digest": "sha256:a", "bytes": 8, "models": ["echo"], "pinned": False, "inUse": True,
        "fetchedAt": None,
    }  # fmt: skip
    assert item["status"]["fetching"][0]["rate"] is None
    assert item["status"]["models"] == [{"model": "echo", "tier": "memory", "bytes": 8, "seconds": None}]
    assert (item["status"]["network"], item["status"]["disk"]) == (5.0, None)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("models/echo/prewarm", {}), ("cache/fetch", {"uri": "https://x/a"}), ("cache/pin", {"name": "a"}),
        ("cache/evict", {"name": "a"}), ("cache/verify", {"digest": f"sha256:{'0' * 64}"}), ("cache/collect", {}),
    ],
)  # fmt: skip
async def test_a_process_without_an_agent_says_so(admin: Admin, path: str, body: dict[str, str]) -> None:
    """What only a node's agent can do is answered 421, with whom to ask."""
    assert (await admin.apply())[0] == 200
    async with admin.http.post(f"/v1alpha1/{path}", json=body) as answer:
        told = await answer.json(content_type=None)
        assert (answer.status, told["type"]) == (421, "urn:relume:problem:not-here")
        assert "relume agent" in told["remedy"]


async def test_wrong_questions(admin: Admin) -> None:
    """An unknown model is 404, a body without an address 422 with the field, a wrong time 400."""
    async with admin.http.post("/v1alpha1/models/nobody/prewarm", json={}) as answer:
        assert answer.status == 404
    async with admin.http.post("/v1alpha1/cache/fetch", json={"url": "x"}) as answer:
        assert answer.status == 422
        assert {one["path"] for one in (await answer.json(content_type=None))["problems"]} >= {"uri"}
    async with admin.http.post("/v1alpha1/cache/verify", json={"digest": "sha256:short"}) as answer:
        assert answer.status == 422
    assert (await get(admin, "/v1alpha1/coldstarts?since=yesterday"))[0] == 400


async def test_the_report(admin: Admin) -> None:
    """Starts by model: how many kept the promise, which phase broke it, and the quantiles of each phase."""
    await admin.say(started(1.0), started(2.0), started(6.0, "missed", "load", least_seconds=1.5))
    status, answer = await get(admin, "/v1alpha1/coldstarts?model=echo")
    assert status == 200
    (item,) = answer["items"]
    assert (item["starts"], item["met"], item["missed"], item["impossible"]) == (3, 2, 1, 0)
    assert (item["missedBy"], item["tiers"]) == ({"load": 1}, {"remote": 3})
    assert (item["p50"], item["p95"], item["leastSeconds"]) == (2.0, 6.0, 1.5)
    assert item["phases"] == [{"phase": "hold", "p50": 0.2, "p95": 0.6}, {"phase": "load", "p50": 1.8, "p95": 5.4}]
    assert (await get(admin, "/v1alpha1/coldstarts?model=other"))[1]["items"] == []


def test_phases_stand_in_their_order_whatever_came_first() -> None:
    """A cold start and a wake have some phases in common; the report has each once, as a start goes through them."""
    cold = started(1.0, phases={"spawn": 0.2, "load": 0.6, "warmup": 0.1, "answer": 0.1}, tier="disk")
    woken = started(0.2, phases={"hold": 0.05, "wake": 0.05, "warmup": 0.05, "answer": 0.05}, tier="sleep")
    (item,) = report([cold, woken])
    assert [one.phase for one in item.phases] == ["hold", "spawn", "load", "wake", "warmup", "answer"]
    assert item.tiers == {"disk": 1, "sleep": 1}


def test_an_older_event_is_not_judged() -> None:
    """Cold starts of an earlier release have no verdict: they count, and nobody is blamed."""
    (item,) = report([started(9.0, "", phases={}, tier="")])
    assert (item.starts, item.unjudged, item.missed, item.phases) == (1, 1, 0, [])


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (started(2.0), "took 2.00 s of the promised 3 s (hold 0.20 s, load 1.80 s). The promise was kept."),
        (started(6.0, "missed", "load", least_seconds=1.5),
         "weights being not on the node. The promise was missed by the phase load (the engine loaded the weights)."),
        (started(9.0, "impossible", "fetch", least_seconds=8.0, tier="disk"),
         "The promise could not be kept, because of the phase fetch (weights came to the node)."),
        (started(6.0, "missed", "read", phases={"read": 5.0, "load": 1.0}, least_seconds=1.0, tier="disk"),
         "on the disk. The promise was missed by the phase read (weights came from the disk into memory)."),
        (started(0.5, least_seconds=0.4, tier="sleep"),
         "0.40 s, its weights being in an engine that slept. The promise was kept."),
    ],
)  # fmt: skip
def test_the_sentence_of_an_explanation(start: ColdStartFinished, words: str) -> None:
    """What it took, the least, and the verdict, in words."""
    assert told_of(start).endswith(words)


def test_each_phase_has_words() -> None:
    """Whichever it was that broke the promise."""
    for phase in (*Phase, "answer"):
        assert f"the phase {phase} (" in told_of(started(9.0, "missed", str(phase)))
    assert told_of(started(9.0, "missed", "later")).endswith("by the phase later.")


async def test_verdicts_are_counted(admin: Admin) -> None:
    """``relume_cold_start_verdicts_total`` by model and verdict."""
    assert (await admin.apply())[0] == 200
    await admin.say(started(1.0), started(6.0, "missed", "load"))
    text = await admin.text("/metrics")
    assert 'relume_cold_start_verdicts_total{model="echo",verdict="met"} 1.0' in text
    assert 'relume_cold_start_verdicts_total{model="echo",verdict="missed"} 1.0' in text
