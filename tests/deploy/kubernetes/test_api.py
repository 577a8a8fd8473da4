"""Calls and watches over real HTTP: what an API server may answer, and how a connection may break."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.kubernetes import api as calling
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, KubernetesMissing, VersionGone, connect
from events.units import Seconds

pytest.importorskip("kubernetes")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(folder: Path, handler: Handler) -> AsyncIterator[KubeApi]:
    """An API server that answers everything by `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as running:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": str(running.make_url("/")).rstrip("/")}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }  # fmt: skip
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        made = await connect(path)
        try:
            yield made
        finally:
            await made.close()


def status(code: int, reason: str, message: str = "why", **headers: str) -> web.Response:
    """A refusal as the API server writes it."""
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code,
                             headers=headers)  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "raised", "told"),
    [
        (status(403, "Forbidden", "cannot list pods"), ApiError, "Forbidden: cannot list pods"),
        (status(422, "Invalid", "spec.slots: too many"), ApiError, "Invalid: spec.slots: too many"),
        (status(410, "Expired"), VersionGone, "why"),
        (status(401, "Unauthorized"), ApiUnavailable, "Unauthorized"),
        (status(429, "TooManyRequests"), ApiUnavailable, "TooManyRequests"),
        (status(503, "ServiceUnavailable"), ApiUnavailable, "503"),
        (web.Response(status=502, text="<html>bad gateway</html>"), ApiUnavailable, "bad gateway"),
    ],
    ids=["forbidden", "invalid", "gone", "token ran out", "throttled", "unavailable", "proxy"],
)
async def test_refusals_say_no_or_later(
    tmp_path: Path, answer: web.Response, raised: type[Exception], told: str
) -> None:
    """What will not change by asking again is an ApiError; what may is told apart."""

    async def handler(_: web.Request) -> web.Response:
        return answer

    async with server(tmp_path, handler) as api:
        with pytest.raises(raised, match=told):
            await api.get("/api/v1/pods")


async def test_a_status_leaves_out_what_an_older_definition_does_not_know(tmp_path: Path) -> None:
    """The server calls it a failure of its own (500), which would be tried for ever; a field that only its object lacks
    is a refusal with a remedy."""
    asked: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append(body)
        unknown = [f".status.{name}: field not declared in schema" for name in body["status"] if name.startswith("new")]
        if unknown or "spec" in body:
            told = "errors:\n  " + "\n  ".join(unknown) if unknown else ".spec.newer: field not declared in schema"
            return status(500, "", f"failed to create typed patch object (/a; v1, Kind=Model): {told}")
        return web.json_response(body)

    async with server(tmp_path, handler) as api:
        stored = await api.apply_status("/models/a", {"status": {"state": "Zero", "new": [1], "newer": {"a": 1}}})
        assert stored == {"status": {"state": "Zero"}}
        assert len(asked) == 2
        with pytest.raises(ApiError, match="relume install --only-crds"):
            await api.apply_status("/models/a", {"spec": {"newer": 1}, "status": {}})


async def test_a_throttled_call_is_told_when_to_come_again(tmp_path: Path) -> None:
    """The server's Retry-After is what a pause takes."""

    async def handler(_: web.Request) -> web.Response:
        return status(429, "TooManyRequests", **{"Retry-After": "7"})

    async with server(tmp_path, handler) as api:
        with pytest.raises(ApiUnavailable) as caught:
            await api.get("/api/v1/pods")
        assert caught.value.after == 7.0


async def test_calls_carry_who_we_are_and_what_we_mean(tmp_path: Path) -> None:
    """The token, the field manager, the kind of patch, and a body that is the JSON that was given."""
    asked: list[tuple[str, str, str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        raw = await request.read()
        kind = request.headers.get("Content-Type", "")
        asked.append((request.method, request.path_qs, kind, json.loads(raw) if raw else None))
        assert request.headers["Authorization"] == "Bearer secret"
        return web.json_response({"ok": True})

    async with server(tmp_path, handler) as api:
        await api.apply("/api/v1/namespaces/n/pods/a", {"spec": {"x": []}})
        await api.merge("/api/v1/namespaces/n/pods/a", {})
        await api.delete("/api/v1/namespaces/n/pods/a", grace=3, uid="u1")
    (apply, merge, delete) = asked
    assert apply == ("PATCH", "/api/v1/namespaces/n/pods/a?fieldManager=relume&force=true",
                     "application/apply-patch+yaml", {"spec": {"x": []}})  # fmt: skip
    assert (merge[0], merge[2], merge[3]) == ("PATCH", "application/merge-patch+json", {})
    assert delete[3]["preconditions"] == {"uid": "u1"}
    assert delete[3]["gracePeriodSeconds"] == 3


@pytest.mark.parametrize("code", [404, 409])
async def test_what_is_gone_needs_no_deletion(tmp_path: Path, code: int) -> None:
    """Deleting what is not there, or another object of that name, is done."""

    async def handler(_: web.Request) -> web.Response:
        return status(code, "Conflict")

    async with server(tmp_path, handler) as api:
        assert not await api.delete("/api/v1/namespaces/n/pods/a", uid="u1")


def event(version: int, kind: str = "ADDED") -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"


def streams(*parts: bytes | None) -> Handler:
    """A watch of these bytes; None: the connection is cut, or with nothing behind it stays silent."""

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        for part in parts:
            if part is None:
                assert request.transport is not None
                request.transport.abort()
                break
            await answer.write(part)
        else:
            if parts and parts[-1] == b"":
                await asyncio.sleep(60)
        return answer

    return handler


async def watched(api: KubeApi) -> tuple[list[str], Exception | None]:
    """What a watch told, and how it broke."""
    seen: list[str] = []
    try:
        async for one in api.watch("/api/v1/pods", {}):
            seen.append(one["object"]["metadata"]["resourceVersion"])  # noqa: PERF401 - what came before a break counts
    except (ApiUnavailable, VersionGone) as error:
        return seen, error
    return seen, None


async def test_a_watch_ends_with_the_servers_answer(tmp_path: Path) -> None:
    """Events that come in pieces are whole; the end of the answer is no error."""
    whole = event(1) + event(2)
    async with server(tmp_path, streams(whole[:20], whole[20:])) as api:
        assert await watched(api) == (["1", "2"], None)


async def test_a_watch_that_is_cut_is_told(tmp_path: Path) -> None:
    """In the middle of an event, after some: those count, and the break is one that trying again mends."""
    async with server(tmp_path, streams(event(1), event(2)[:10], None)) as api:
        seen, error = await watched(api)
        assert (seen, type(error)) == (["1"], ApiUnavailable)


async def test_a_watch_that_says_nothing_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is silent for long has nothing to say, or is not connected any more: the watch ends as if the server had
    ended it."""
    monkeypatch.setattr(calling, "SILENT_FOR", Seconds(0.2))
    async with server(tmp_path, streams(event(1), b" ", b"")) as api:
        seen, error = await watched(api)
        assert (seen, error) == (["1"], None)


async def test_a_past_that_is_forgotten_is_told_in_the_stream(tmp_path: Path) -> None:
    """410 comes as an event; other errors are ones that trying again may mend."""
    for code, kind in ((410, VersionGone), (500, ApiUnavailable)):
        ended = {"type": "ERROR", "object": {"code": code, "reason": "r", "message": "m"}}
        async with server(tmp_path, streams(event(1), json.dumps(ended).encode() + b"\n")) as api:
            seen, error = await watched(api)
            assert (seen, type(error)) == (["1"], kind)


async def test_a_token_of_a_plug_in_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that a program gives are asked for again while relume runs, also after the program failed once."""
    from kubernetes.aio import config  # noqa: PLC0415 - an extra

    asked = asyncio.Event()
    failed = asyncio.Event()

    async def refresh(loader: Any, configuration: Any) -> None:
        del loader, configuration
        if not failed.is_set():
            failed.set()
            raise OSError("the program is away")
        asked.set()

    async def at_once(seconds: float) -> None:
        del seconds

    monkeypatch.setattr(config, "refresh_token", refresh)

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({})

    real = asyncio.sleep
    async with server(tmp_path, handler) as api:
        monkeypatch.setattr(calling.asyncio, "sleep", at_once)
        async with asyncio.timeout(5):
            await asked.wait()
        monkeypatch.setattr(calling.asyncio, "sleep", real)
        assert await api.get("/api/v1/pods") == {}


async def test_without_a_cluster_it_is_said_what_to_give(tmp_path: Path) -> None:
    """A kubeconfig that is none, or not there, is told with the option."""
    broken = tmp_path / "broken"
    broken.write_text("{}")
    for path in (broken, tmp_path / "none"):
        with pytest.raises(KubernetesMissing, match="--kubeconfig"):
            await connect(path)
