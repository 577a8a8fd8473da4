"""The OpenAPI document: whole, right about the answers, and checked in."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from deploy.api.openapi import document, main, text
from deploy.api.ports import Explanation
from deploy.api.routes import ROUTES
from events.types.decisions import WishDecided
from events.types.replicas import CardsObserved
from events.types.training import NoticeGiven
from tests.support.admin import ECHO, Admin, Load, observed, replica
from tests.support.training_events import AT, TUNE, declared, granted, reclaim
from tests.support.training_events import observed as training

DOCUMENT = document()


def validator(path: str, method: str, status: int) -> jsonschema.Draft202012Validator:
    """What the document says of an answer's JSON."""
    (content,) = DOCUMENT["paths"][path][method]["responses"][str(status)]["content"].values()
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(schema)


def test_every_route_is_documented_and_every_documented_route_is_served(admin: Admin) -> None:
    """The application's router and the document have the same operations."""
    served = {
        (route.resource.canonical, route.method.lower())
        for route in admin.server.application().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    written = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert served == written
    assert len(ROUTES) == len(written)


def test_every_reference_leads_somewhere() -> None:
    """No $ref dangles, and each schema of the document is a schema."""
    written = json.dumps(DOCUMENT)
    names = {part.split('"')[0] for part in written.split("#/components/schemas/")[1:]}
    assert names <= set(DOCUMENT["components"]["schemas"])
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_operation_says_what_it_is() -> None:
    """Summary, answers with content, and the parameters of its path."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), (path, method)
            assert "500" in operation["responses"], (path, method)
            given = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
            assert given == {part[1:-1] for part in path.split("/") if part.startswith("{")}, (path, method)


async def prepared(admin: Admin) -> None:
    """A model with everything that answers can show."""
    _, body = await admin.apply()
    uid = body["items"][0]["metadata"]["uid"]
    admin.traffic.loads = [Load("echo", 1, 2)]
    admin.logs.lines["echo-r1-0"] = ["hello"]
    admin.explainer.by_model["echo"] = Explanation(["Because."], {"n": 1})
    await admin.say(
        observed(replica(uid=uid), uid=uid),
        WishDecided(model="echo", uid=uid, revision=1, replicas=1, priority=1, reasons=("edge",), snapshot={},
                    policy={}, memory={}),
        CardsObserved(node="local", cpu=2, memory_bytes=1 << 30),
        declared(), granted(notice=NoticeGiven(id="r1", deadline=AT + 9)), training(), reclaim(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "asked", "body"),
    [
        ("get", "/healthz", "/healthz", None),
        ("get", "/readyz", "/readyz", None),
        ("get", "/v1alpha1/models", "/v1alpha1/models", None),
        ("post", "/v1alpha1/models", "/v1alpha1/models", ECHO),
        ("get", "/v1alpha1/models/{name}", "/v1alpha1/models/echo", None),
        ("get", "/v1alpha1/models/{name}", "/v1alpha1/models/none", None),
        ("put", "/v1alpha1/models/{name}/scale", "/v1alpha1/models/echo/scale", '{"replicas": 1, "for": "1m"}'),
        ("put", "/v1alpha1/models/{name}/scale", "/v1alpha1/models/echo/scale", '{"replicas": "x"}'),
        ("delete", "/v1alpha1/models/{name}/scale", "/v1alpha1/models/echo/scale", None),
        ("get", "/v1alpha1/models/{name}/explain", "/v1alpha1/models/echo/explain", None),
        ("get", "/v1alpha1/replicas", "/v1alpha1/replicas", None),
        ("get", "/v1alpha1/decisions", "/v1alpha1/decisions", None),
        ("get", "/v1alpha1/dead-letters", "/v1alpha1/dead-letters", None),
        ("get", "/v1alpha1/top", "/v1alpha1/top", None),
        ("post", "/v1alpha1/apply", "/v1alpha1/apply", ECHO + "---\n" + TUNE),
        ("get", "/v1alpha1/training", "/v1alpha1/training", None),
        ("get", "/v1alpha1/training/{name}", "/v1alpha1/training/tune", None),
        ("get", "/v1alpha1/training/{name}", "/v1alpha1/training/none", None),
        ("put", "/v1alpha1/training/{name}/pause", "/v1alpha1/training/tune/pause", "{}"),
        ("delete", "/v1alpha1/training/{name}/pause", "/v1alpha1/training/tune/pause", None),
        ("put", "/v1alpha1/training/{name}/cancel", "/v1alpha1/training/tune/cancel", "{}"),
        ("delete", "/v1alpha1/training/{name}", "/v1alpha1/training/tune", None),
        ("get", "/v1alpha1/training/{name}/logs", "/v1alpha1/training/tune/logs", None),
        ("get", "/v1alpha1/reclaims", "/v1alpha1/reclaims", None),
        ("get", "/v1alpha1/reclaims/{name}", "/v1alpha1/reclaims/r1", None),
        ("get", "/v1alpha1/reclaims/{name}/explain", "/v1alpha1/reclaims/r1/explain", None),
        ("post", "/v1alpha1/models", "/v1alpha1/models", "kind: Model"),
        ("delete", "/v1alpha1/models/{name}", "/v1alpha1/models/echo", None),
    ],
)
async def test_answers_are_as_documented(admin: Admin, method: str, path: str, asked: str, body: str | None) -> None:
    """Real answers validate against the document's schema for their status."""
    await prepared(admin)
    headers = {"Content-Type": "application/yaml"} if body else {}
    async with admin.http.request(method, asked, data=body, headers=headers) as response:
        answer: Any = await response.json(content_type=None)
        validator(path, method, response.status).validate(answer)


async def test_the_server_gives_the_document(admin: Admin) -> None:
    """/openapi.json is the very document."""
    assert (await admin.get("/openapi.json"))[1] == DOCUMENT


def test_the_file_is_up_to_date() -> None:
    """docs/reference/openapi.yaml is what the code says; `--check` finds a difference."""
    assert main(["--check"]) == 0
    assert "openapi: 3.1.0" in text()
