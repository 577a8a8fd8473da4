"""Who may ask and how: Host, Origin, token, client certificates, content types, sizes, bugs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from deploy.api.guard import STREAMS, middlewares
from deploy.api.settings import AdminSettings
from events.log import LogUnavailable
from events.units import Bytes, Seconds
from tests.support.admin import ECHO, Admin, running_admin
from tests.support.certificates import Authority

TOKEN = "0123456789abcdef-secret"


@pytest.fixture
async def with_token() -> AsyncIterator[Admin]:
    """A server that wants a bearer token."""
    async with running_admin(AdminSettings(port=0, token=TOKEN)) as running:
        yield running


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8081", 200), ("127.0.0.1", 200), ("127.0.0.9:1", 200), ("[::1]:8081", 200), ("localhost.", 200),
        ("evil.example", 403), ("evil.example:8081", 403), ("127.0.0.1.evil.example", 403), ("192.168.0.7:8081", 403),
        ("0.0.0.0", 403), ("", 403), ("[::ffff:8.8.8.8]", 403),
    ],
)  # fmt: skip
async def test_only_loopback_hosts_without_a_token(admin: Admin, host: str, status: int) -> None:
    """A name that was rebound to loopback by its owner's DNS is still a foreign name in the Host header."""
    assert (await admin.get("/v1alpha1/models", {"Host": host}))[0] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
async def test_pages_of_other_sites_are_refused(admin: Admin, headers: dict[str, str], status: int) -> None:
    """A browser says where a request comes from; anything but ourselves is refused."""
    assert (await admin.get("/v1alpha1/models", headers))[0] == status


async def test_a_page_of_our_own_origin_may(admin: Admin) -> None:
    """The same origin as the Host is no foreign one."""
    own = admin.url
    assert (await admin.get("/v1alpha1/models", {"Origin": own}))[0] == 200


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200), (None, 401), ("", 401), (f"Bearer {TOKEN}x", 401), (f"Bearer {TOKEN[:-1]}", 401),
        (f"bearer {TOKEN}", 401), (f"Basic {TOKEN}", 401), (TOKEN, 401), ("Bearer ", 401), ("Bearer \u00e9", 401),
    ],
)  # fmt: skip
async def test_token(with_token: Admin, authorization: str | None, status: int) -> None:
    """Only the whole token, as a bearer, opens; the answer says how to give it."""
    headers = {} if authorization is None else {"Authorization": authorization}
    got, body = await with_token.get("/v1alpha1/models", headers)
    assert got == status
    if status == 401:
        assert "RELUME_ADMIN_TOKEN" in body["remedy"]


async def test_a_token_opens_to_any_host_but_not_to_foreign_pages(with_token: Admin) -> None:
    """With a token the Host may be any name; a page of another site is refused all the same."""
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert (await with_token.get("/v1alpha1/models", {**right, "Host": "relume.example"}))[0] == 200
    assert (await with_token.get("/v1alpha1/models", {**right, "Origin": "https://evil.example"}))[0] == 403


async def test_probes_need_no_token_but_metrics_do(with_token: Admin) -> None:
    """Health and readiness answer to anybody who reaches the port; nothing else does."""
    assert (await with_token.get("/healthz"))[0] == 200
    assert (await with_token.get("/readyz"))[0] == 200
    for path in ("/metrics", "/openapi.json", "/v1alpha1/top", "/v1alpha1/events"):
        assert (await with_token.get(path))[0] == 401


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"}, {"host": "::"}, {"host": "admin.example"},
        {"client_ca": Path("ca.pem")}, {"certificate": Path("c.pem")}, {"key": Path("k.pem")},
    ],
)  # fmt: skip
def test_settings_that_would_open_the_port_are_refused(settings: dict[str, object]) -> None:
    """Not loopback without proof of who asks, or half of what TLS needs: no such server is made."""
    with pytest.raises(ValueError, match=r"admin port|client certificates"):
        AdminSettings(**settings)  # type: ignore[arg-type]  # the table names them


async def test_client_certificates(tmp_path: Path) -> None:
    """With a CA of clients, who shows a certificate of it may ask; who shows none does not get as far as HTTP."""
    ca = Authority(tmp_path)
    certificate, key = ca.issue("localhost")
    mine, my_key = ca.issue("operator")
    settings = AdminSettings(port=0, certificate=certificate, key=key, client_ca=ca.certificate)
    async with running_admin(settings) as running:
        url = f"https://localhost:{running.server.address[1]}/v1alpha1/models"
        known = ssl.create_default_context(cafile=ca.certificate)
        known.load_cert_chain(mine, my_key)
        async with aiohttp.ClientSession() as http:
            async with http.get(url, ssl=known) as response:
                assert response.status == 200
            with pytest.raises(aiohttp.ClientError):
                await http.get(url, ssl=ssl.create_default_context(cafile=ca.certificate))


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/yaml", 200), ("application/json", 422), ("application/yaml; charset=utf-8", 200),
        ("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("multipart/form-data; boundary=x", 415),
        ("application/octet-stream", 415),
    ],
)  # fmt: skip
async def test_writes_need_a_content_type_that_a_form_cannot_send(admin: Admin, kind: str, status: int) -> None:
    """A form of a foreign page can send only three content types, and none of them declares a model."""
    body = ECHO if status != 422 else "[1"
    async with admin.http.post("/v1alpha1/models", data=body, headers={"Content-Type": kind}) as response:
        assert response.status == status
        assert response.content_type == ("application/json" if status == 200 else "application/problem+json")


async def test_a_body_that_is_too_large_is_refused() -> None:
    """413, without reading it to its end, and the server lives on."""
    async with running_admin(AdminSettings(port=0, max_body=Bytes(1024))) as running:
        status, body = await running.apply("# " + "x" * 5000)
        assert (status, body["type"]) == (413, "urn:relume:problem:body-too-large")
        assert (await running.get("/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404), ("PATCH", "/v1alpha1/models", 415), ("DELETE", "/v1alpha1/models", 405),
        ("GET", "/v1alpha1/models?dryrun=1", 400), ("GET", "/v1alpha1/decisions?limit=0", 400),
        ("GET", "/v1alpha1/decisions?limit=\u0663", 400), ("GET", "/v1alpha1/events?follow=perhaps", 400),
        ("GET", "/v1alpha1/events?topic=relume.modles", 400), ("GET", "/v1alpha1/events?from=yesterday", 400),
        ("GET", "/v1alpha1/events/stream?limit=3", 400), ("GET", "/v1alpha1/replicas/none/logs", 404),
    ],
)  # fmt: skip
async def test_every_no_is_a_problem_document(admin: Admin, method: str, path: str, status: int) -> None:
    """Title, detail and type, whatever went wrong."""
    async with admin.http.request(method, path) as response:
        assert response.status == status
        assert response.content_type == "application/problem+json"
        body = await response.json(content_type=None)
        assert body["status"] == status
        assert body["type"].startswith("urn:relume:problem:")
        assert body["detail"]


async def _serve(handler: web.Handler, settings: AdminSettings) -> tuple[int, dict[str, object]]:
    """One GET to an application with our middlewares and this handler."""
    app = web.Application(middlewares=middlewares(settings))
    app[STREAMS] = frozenset()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{runner.addresses[0][1]}/") as response:
            return response.status, await response.json(content_type=None)
    finally:
        await runner.cleanup()


async def test_a_bug_leaves_with_a_number_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets an incident number; the log has the traceback under the same number."""

    async def broken(_: web.Request) -> web.Response:
        raise ZeroDivisionError("secret detail")

    status, body = await _serve(broken, AdminSettings())
    assert status == 500
    assert "secret" not in str(body)
    incident = str(body["detail"]).rsplit(" ", 1)[-1]
    assert incident in caplog.text
    assert "secret detail" in caplog.text


async def test_a_log_that_cannot_be_used_is_503() -> None:
    """The world failed the log: the client may try again, and is told when."""

    async def unavailable(_: web.Request) -> web.Response:
        raise LogUnavailable("disk full")

    status, body = await _serve(unavailable, AdminSettings())
    assert (status, body["type"]) == (503, "urn:relume:problem:log-unavailable")
    assert "disk full" in str(body["detail"])


async def test_an_answer_that_takes_too_long_is_504() -> None:
    """No request waits for ever."""

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    status, body = await _serve(slow, AdminSettings(request_timeout=Seconds(0.05)))
    assert (status, body["type"]) == (504, "urn:relume:problem:too-slow")
