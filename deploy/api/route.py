"""What a route is: its path, what it takes, what it answers; and the parts that many of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from deploy.api import shapes
from deploy.api.shapes import Shape

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
SSE: Final = "text/event-stream"
TEXT: Final = "text/plain"
CLOUDEVENT: Final = "application/cloudevents+json"
CLOUDEVENTS: Final = "application/cloudevents-batch+json"
YAML: Final = "application/yaml"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the path (then `required`) or of the query; `schema` is JSON Schema."""

    name: str
    text: str
    schema: dict[str, JsonValue]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a status means; `shape` None: plain text or a stream of `content_type`."""

    status: int
    text: str
    shape: type[Shape] | None = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Body:
    """What a write carries: `shape`, or documents or events in any of `content_types`."""

    text: str
    content_types: tuple[str, ...]
    shape: type[Shape] | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One operation; `operation` is also the name of the method that serves it."""

    method: str
    path: str
    operation: str
    summary: str
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    stream: bool = False


STRING: Final[dict[str, JsonValue]] = {"type": "string"}
LIMIT = Parameter(
    "limit", "At most so many.", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}
)  # fmt: skip
FOLLOW = Parameter("follow", "Go on with what comes.", {"type": "boolean", "default": False})
TAIL = Parameter(
    "tail", "The last so many lines.", {"type": "integer", "minimum": 0, "maximum": 10_000, "default": 100}
)  # fmt: skip

REFUSED = Answer(422, "The documents are wrong, field by field.", shapes.Problem)
UNKNOWN = Answer(404, "There is none of that name.", shapes.Problem)
BAD = Answer(400, "A parameter or the body cannot be read.", shapes.Problem)
UNAVAILABLE = Answer(503, "The event log cannot be used now, or too many streams are open.", shapes.Problem)
