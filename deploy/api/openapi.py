"""The OpenAPI 3.1 document of the admin API, made of the table of routes and the shapes.

``python -m deploy.api.openapi --write`` writes `docs/reference/openapi.yaml`, ``--check`` fails when it is out of date.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import Any, Final

from pydantic.json_schema import models_json_schema
from ruamel.yaml import YAML

from deploy.api.route import CLOUDEVENT, CLOUDEVENTS, JSON, NDJSON, SSE, Answer, Body, Parameter, Route
from deploy.api.routes import ROUTES
from deploy.api.shapes import Problem, Shape
from deploy.generated import ROOT, write_or_check

FILE: Final = ROOT / "docs" / "reference" / "openapi.yaml"

PROBLEM: Final = "application/problem+json"

_ALWAYS: Final = (
    Answer(401, "A token is configured, and this is not it.", Problem),
    Answer(403, "The Host or the Origin is foreign.", Problem),
    Answer(500, "relume made a mistake.", Problem),
    Answer(504, "The answer took too long.", Problem),
)  # fmt: skip

_CLOUDEVENT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A CloudEvent 1.0 in structured mode; the shapes of `data` are in docs/reference/events/.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"}, "id": {"type": "string"}, "source": {"type": "string"},
        "type": {"type": "string", "examples": ["relume.signal.measured.v1"]}, "subject": {"type": "string"},
        "time": {"type": "string", "format": "date-time"}, "partitionkey": {"type": "string"},
        "sequence": {"type": "string"}, "cause": {"type": "string"}, "epoch": {"type": "string"},
        "traceparent": {"type": "string"}, "datacontenttype": {"type": "string"}, "data": {"type": "object"},
    },
}  # fmt: skip


def document() -> dict[str, Any]:
    """The whole document, as plain values."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "relume admin API", "version": "v1alpha1",
            "description": (
                "Models, replicas, training jobs, events and decisions of a running relume. The port listens on "
                "loopback only, unless a bearer token or client certificates are configured. Errors are problem "
                "details (RFC 9457). Add freely; what is here stays."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8081"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**_schemas(), "CloudEvent": _CLOUDEVENT_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def text() -> str:
    """The document in YAML."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.representer.ignore_aliases = lambda _: True
    stream = io.StringIO()
    stream.write("# Made by `python -m deploy.api.openapi --write` from the code; do not edit.\n")
    yaml.dump(document(), stream)
    return stream.getvalue()


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "responses": {str(answer.status): _answer(answer) for answer in _answers(route)},
    }
    if route.parameters:
        operation["parameters"] = [_parameter(one) for one in route.parameters]
    if route.body:
        operation["requestBody"] = _body(route.body)
    return operation


def _answers(route: Route) -> Iterable[Answer]:
    """The route's own answers, then those that every route has; an own one stands before a common one."""
    own = {answer.status: answer for answer in route.answers}
    common = [answer for answer in _ALWAYS if answer.status not in own]
    if route.body and 415 not in own:
        common.append(Answer(415, "The content type is none that a write may have.", Problem))
    return sorted((*own.values(), *common), key=lambda answer: answer.status)


def _answer(answer: Answer) -> dict[str, Any]:
    if answer.shape is Problem:
        return {"description": answer.text, "content": {PROBLEM: {"schema": _ref(Problem)}}}
    schema: dict[str, Any] = {"type": "string"}
    if answer.shape is not None:
        schema = _ref(answer.shape)
    elif answer.content_type == JSON:
        schema = {"type": "object"}
    elif answer.content_type == NDJSON:
        schema = {"$ref": "#/components/schemas/CloudEvent"}
    elif answer.content_type == SSE:
        schema = {"type": "string", "contentMediaType": SSE}
    return {"description": answer.text, "content": {answer.content_type: {"schema": schema}}}


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name, "in": "path" if one.required else "query", "required": one.required, "description": one.text,
        "schema": one.schema,
    }  # fmt: skip


def _body(body: Body) -> dict[str, Any]:
    return {
        "description": body.text,
        "required": True,
        "content": {kind: {"schema": _body_schema(body, kind)} for kind in body.content_types},
    }


def _body_schema(body: Body, kind: str) -> dict[str, Any]:
    event = {"$ref": "#/components/schemas/CloudEvent"}
    if body.shape is not None:
        return _ref(body.shape)
    if kind == CLOUDEVENTS:
        return {"type": "array", "items": event}
    if CLOUDEVENT in body.content_types:
        return event if kind == CLOUDEVENT else {"anyOf": [event, {"type": "array", "items": event}]}
    return {
        "type": "object" if kind == JSON else "string",
        "description": "See docs/reference/model.schema.json and training.schema.json.",
    }


def _ref(shape: type[Shape]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}


def _schemas() -> dict[str, Any]:
    answers = {answer.shape for route in ROUTES for answer in (*route.answers, *_ALWAYS) if answer.shape is not None}
    bodies = {route.body.shape for route in ROUTES if route.body and route.body.shape is not None}
    _, whole = models_json_schema(
        [(shape, "serialization") for shape in sorted(answers | bodies, key=lambda shape: shape.__name__)],
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    definitions: dict[str, Any] = whole["$defs"]
    return dict(sorted(definitions.items()))


def main(arguments: list[str] | None = None) -> int:
    """``--write`` or ``--check``; exit status 1 when --check finds a stale file."""
    return write_or_check("deploy.api.openapi", FILE, text(), arguments)


if __name__ == "__main__":
    sys.exit(main())
