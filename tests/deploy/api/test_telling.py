"""Events for readers outside: lines, server-sent events, resuming, slow readers, foreign producers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from deploy.api.settings import AdminSettings
from events.log import LogUnavailable, Query
from events.names import Topic
from events.types.metrics import SignalMeasured
from events.types.phases import ReplicaDrained
from events.types.requests import ActivationRequested
from events.units import Seconds, format_instant
from tests.support.admin import Admin, running_admin

DEADLINE = 10.0
"""Seconds after which a stream that says nothing fails its test; what is awaited comes at once."""


def asked(model: str = "echo", replicas: int = 1) -> ActivationRequested:
    return ActivationRequested(model=model, replicas=replicas)


async def lines(response: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    """The next so many lines of JSON."""
    async with asyncio.timeout(DEADLINE):
        return [json.loads(await response.content.readline()) for _ in range(count)]


async def sse(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    """Server-sent events as they come; comments as ``{"comment": text}``."""
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith(":"):
            yield {"comment": line[1:].strip()}
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


async def next_event(events: AsyncIterator[dict[str, str]]) -> dict[str, str]:
    """The next event that is no comment and no retry."""
    async with asyncio.timeout(DEADLINE):
        async for event in events:
            if "data" in event:
                return event
    raise AssertionError("the stream ended")


async def no_streams(admin: Admin) -> None:
    """Wait until no reader is left."""
    async with asyncio.timeout(DEADLINE):
        while admin.server.open_streams:  # noqa: ASYNC110 - the server tells nobody when a place is free
            await asyncio.sleep(0.02)


async def test_what_stands_in_the_log_as_lines(admin: Admin) -> None:
    """Without follow the answer is all that stands there, one CloudEvent a line, and then ends."""
    await admin.say(asked(), asked("other"), SignalMeasured(model="echo", name="x", value=3))
    async with admin.http.get("/v1alpha1/events") as response:
        assert response.content_type == "application/x-ndjson"
        events = [json.loads(line) for line in (await response.read()).splitlines()]
    assert sorted(event["type"] for event in events) == [
        "relume.activation.requested.v1", "relume.activation.requested.v1", "relume.signal.measured.v1",
    ]  # fmt: skip
    assert {event["specversion"] for event in events} == {"1.0"}


@pytest.mark.parametrize(
    ("query", "models"),
    [
        ("topic=relume.requests", ["echo", "other"]), ("topic=requests", ["echo", "other"]),
        ("topic=requests&model=other", ["other"]), ("model=echo&topic=requests,phases", ["echo", "echo"]),
        ("topic=phases", ["echo"]), ("topic=metrics", []), ("topic=requests&limit=1", ["echo"]),
        ("topic=requests&from=now", []),
    ],
)  # fmt: skip
async def test_filters(admin: Admin, query: str, models: list[str]) -> None:
    """Topics, a model, a limit and a beginning each leave out what they should."""
    await admin.say(asked(), asked("other"), ReplicaDrained(model="echo", replica="echo-r1-0"))
    text = await admin.text(f"/v1alpha1/events?{query}")
    assert [json.loads(line)["data"]["model"] for line in text.splitlines()] == models


async def test_from_a_time(admin: Admin) -> None:
    """Reading can begin at an append time."""
    await admin.say(asked(replicas=1))
    await asyncio.sleep(0.005)
    middle = format_instant(admin.clock.now())
    await asyncio.sleep(0.005)
    await admin.say(asked(replicas=2))
    text = await admin.text(f"/v1alpha1/events?topic=requests&from={middle}")
    assert [json.loads(line)["data"]["replicas"] for line in text.splitlines()] == [2]


async def test_following_brings_what_comes(admin: Admin) -> None:
    """With follow, the past (if asked for) and then each new event at once."""
    await admin.say(asked(replicas=1))
    async with admin.http.get("/v1alpha1/events?topic=requests&follow=true&from=beginning") as response:
        assert [event["data"]["replicas"] for event in await lines(response, 1)] == [1]
        for count in (2, 3):
            await admin.say(asked(replicas=count))
            assert [event["data"]["replicas"] for event in await lines(response, 1)] == [count]


async def test_following_ends_at_the_limit(admin: Admin) -> None:
    """A limit ends a followed stream too."""
    async with admin.http.get("/v1alpha1/events?topic=requests&follow=true&from=beginning&limit=2") as response:
        await admin.say(asked(), asked(), asked())
        async with asyncio.timeout(DEADLINE):
            assert len((await response.read()).splitlines()) == 2


async def test_server_sent_events(admin: Admin) -> None:
    """Each event has an id, its type and a CloudEvent as data."""
    async with admin.http.get("/v1alpha1/events/stream?topic=requests&from=beginning") as response:
        assert response.content_type == "text/event-stream"
        await admin.say(asked(replicas=7))
        event = await next_event(sse(response))
    assert event["event"] == "relume.activation.requested.v1"
    assert json.loads(event["data"])["data"]["replicas"] == 7
    assert event["id"].split("/")[1:] == ["relume.requests", "0", "0"]


async def test_a_reader_that_comes_back_goes_on_where_it_was(admin: Admin) -> None:
    """Last-Event-ID brings what came after it and not the event itself."""
    await admin.say(*(asked(replicas=count) for count in (1, 2, 3)))
    path = "/v1alpha1/events/stream?topic=requests&from=beginning"
    async with admin.http.get(path) as response:
        events = sse(response)
        seen = [await next_event(events) for _ in range(2)]
    await admin.say(asked(replicas=4))
    async with admin.http.get(path, headers={"Last-Event-ID": seen[-1]["id"]}) as response:
        events = sse(response)
        after = [json.loads((await next_event(events))["data"])["data"]["replicas"] for _ in range(2)]
    assert after == [3, 4]


@pytest.mark.parametrize("ident", ["x", "1/2/3", "a/relume.requests/0/0", "1.0/relume.requests/0/zero"])
async def test_a_foreign_last_event_id_is_refused(admin: Admin, ident: str) -> None:
    """An id that is none of ours is wrong use, not a stream from anywhere."""
    status, _ = await admin.get("/v1alpha1/events/stream", {"Last-Event-ID": ident})
    assert status == 400


async def test_quiet_streams_have_a_heartbeat() -> None:
    """A comment comes when nothing happens, so that both ends see a dead connection."""
    async with running_admin(AdminSettings(port=0, heartbeat=Seconds(0.05))) as admin:
        async with admin.http.get("/v1alpha1/events/stream?topic=phases") as response:
            events = sse(response)
            comments = []
            async with asyncio.timeout(DEADLINE):
                async for event in events:
                    comments.append(event.get("comment"))
                    if comments.count("quiet") == 2:
                        break
        assert "data" not in "".join(str(comment) for comment in comments)


async def stalled(admin: Admin, count: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A reader that took the head of a stream and then nothing, while `count` events of 200 kB came."""
    host, port = admin.server.address
    reader, writer = await asyncio.open_connection(host, port, limit=1024)
    writer.write(b"GET /v1alpha1/events/stream?topic=metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"retry: 2000\n")
    big = SignalMeasured(model="echo", name="n" * 200_000, value=1)
    async with admin.http.get("/v1alpha1/events/stream?topic=metrics") as other:
        events = sse(other)
        for _ in range(count):
            await admin.say(big)
            await next_event(events)  # a reader that reads is not held up by one that does not
    return reader, writer


async def test_a_slow_reader_is_cut_with_a_last_word() -> None:
    """Who takes nothing until the write deadline gets no more events, but a last one that says why, and the end."""
    async with running_admin(AdminSettings(port=0, write_timeout=Seconds(0.2), farewell=Seconds(8.0))) as admin:
        reader, writer = await stalled(admin, 100)
        await asyncio.sleep(0.5)  # longer than the write deadline, shorter than the farewell
        async with asyncio.timeout(DEADLINE):
            rest = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
    assert rest.count(b"event: relume.signal.measured.v1") < 100
    assert b"event: relume.stream.cut.v1" in rest[-1000:]
    assert b"took nothing for 0.2 s" in rest[-1000:]


async def test_a_reader_that_never_comes_back_is_aborted() -> None:
    """When the farewell is not taken either, the connection is aborted and its place is free."""
    async with running_admin(AdminSettings(port=0, write_timeout=Seconds(0.1), farewell=Seconds(0.1))) as admin:
        _, writer = await stalled(admin, 100)
        await no_streams(admin)
        writer.transport.abort()


async def test_streams_end_with_a_last_word_at_shutdown() -> None:
    """A follower is told that relume ends, and the connection closes at once."""
    async with running_admin() as admin, admin.http.get("/v1alpha1/events/stream?topic=phases") as response:
        events = sse(response)
        closing = asyncio.create_task(admin.server.close())
        event = await next_event(events)
        assert json.loads(event["data"])["data"]["reason"] == "relume is shutting down"
        async with asyncio.timeout(DEADLINE):
            await closing


async def test_only_so_many_streams() -> None:
    """One stream too many gets 503; a place that was left is free again."""
    async with running_admin(AdminSettings(port=0, max_streams=1, heartbeat=Seconds(0.05))) as admin:
        path = "/v1alpha1/events/stream?topic=phases"
        async with admin.http.get(path) as first:
            assert first.status == 200
            assert (await admin.get(path))[0] == 503
        await no_streams(admin)
        async with admin.http.get(path) as again:
            assert again.status == 200


def cloud(**changes: object) -> dict[str, object]:
    event: dict[str, object] = {
        "specversion": "1.0", "id": "1", "source": "orders", "type": "relume.activation.requested.v1",
        "time": "2026-11-29T18:00:00Z", "data": {"model": "echo", "replicas": 2},
    }  # fmt: skip
    return {**event, **changes}


async def tell(admin: Admin, body: object) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/cloudevents+json"}
    data = body if isinstance(body, bytes) else json.dumps(body)
    async with admin.http.post("/v1alpha1/events", data=data, headers=headers) as response:
        return response.status, await response.json(content_type=None)


async def test_a_foreign_producer_tells_demand(admin: Admin) -> None:
    """A CloudEvent of somebody else stands in the log with its own id and source; told twice, it stands there once."""
    for _ in range(2):
        assert await tell(admin, cloud()) == (200, {"appended": 1, "ids": ["1"]})
    records = [record async for record in admin.log.read(Query(Topic.REQUESTS))]
    assert [(record.envelope.source, record.envelope.data.replicas) for record in records] == [("orders", 2)]


async def test_a_batch_is_told_all_or_none(admin: Admin) -> None:
    """One bad event refuses the batch, says which it is, and ends as a dead letter that can be listed."""
    status, body = await tell(admin, [cloud(), cloud(id="2", data={"model": "echo", "replicas": -1})])
    assert (status, body["problems"][0]["path"]) == (400, "[1]")
    assert [record async for record in admin.log.read(Query(Topic.REQUESTS))] == []
    letters = (await admin.get("/v1alpha1/dead-letters"))[1]["items"]
    assert [(one["source"], one["type"]) for one in letters] == [("orders", "relume.activation.requested.v1")]
    assert "replicas" in letters[0]["reason"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400), (b'{"a":' * 1000 + b"1" + b"}" * 1000, 400),
        (b"{", 400), (b"[]", 200), (b"3", 400), (b"\xff\xfe", 400), (cloud(specversion="0.3"), 400),
        (cloud(type="relume.unknown.v1"), 400), (cloud(data=None), 400), ([cloud()] * 1001, 400),
        (cloud(type="relume.model.declared.v1", data={
            "model": "echo", "uid": "x", "revision": 1, "generation": 1, "spec": {}}), 403),
        (cloud(type="relume.gateway.beat.v1", data={"gateway": "g", "boot": "b"}), 403),
    ],
)  # fmt: skip
async def test_what_nobody_may_tell(admin: Admin, body: object, status: int) -> None:
    """States have one writer each, and what cannot be read is refused with a reason."""
    got, answer = await tell(admin, body)
    assert got == status
    if status != 200:
        assert answer["detail"]
    assert [record async for record in admin.log.read(Query(Topic.MODELS))] == []


async def test_a_reader_that_leaves_frees_its_place_at_once(admin: Admin) -> None:
    """A closed connection ends its stream now, not at the next event or heartbeat (15 s)."""
    async with admin.http.get("/v1alpha1/events/stream?topic=phases") as response:
        assert response.status == 200
        assert admin.server.open_streams == 1
    await no_streams(admin)


@pytest.mark.parametrize(
    ("failure", "reason"), [(LogUnavailable("broker away"), "broker away"), (KeyError("a bug"), "made a mistake")]
)
async def test_what_fails_in_a_stream_is_its_last_word(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, failure: Exception, reason: str
) -> None:
    """After the first byte there is no status to change: the stream says why it ends, and a bug's words stay inside."""

    def broken(*_: object) -> None:
        raise failure

    monkeypatch.setattr(admin.log, "subscribe", broken)
    text = await admin.text("/v1alpha1/events?topic=phases")
    last = json.loads(text)
    assert (last["type"], admin.server.open_streams) == ("relume.stream.cut.v1", 0)
    assert reason in last["data"]["reason"]
    assert "a bug" not in text
