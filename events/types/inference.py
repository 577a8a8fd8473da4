"""`relume.inference.*`: asynchronous inference. Producers put requests, the runtime answers each exactly once.

The key of all of them is the model's name as the request gave it, so a request, its answer and what became of it in
between stand in the same partition of their topics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from annotated_types import Len, MaxLen
from pydantic import JsonValue

from events.kinds import event, value
from events.names import Topic
from events.types.shared import At, Count

MAX_NAME: Final = 256
"""Characters of a model's name or alias, of a key, of a caller."""

_Text = Annotated[str, Len(1, MAX_NAME)]


@event("relume.inference.requested", Topic.INFERENCE_REQUESTS)
class InferenceRequested:
    """Somebody wants `body` answered at `path` of an OpenAI-compatible server, whenever there is room.

    The model is the body's `model`, else the event's key. `deadline` is RFC 3339 (none: 24 hours after the event was
    appended); `priority` orders the requests of one caller for one model, larger first. Requests with the same
    `idempotency_key` and model share one answer. `reply_topic` must be one that relume's settings allow. With `stream`
    (and ``"stream": true`` in the body) the answer comes as ordered chunks before it is complete.
    """

    path: Annotated[str, Len(1, 1024)] = "/v1/chat/completions"
    body: dict[str, JsonValue]
    deadline: Annotated[str, MaxLen(64)] | None = None
    priority: int = 0
    idempotency_key: _Text | None = None
    reply_topic: Annotated[str, Len(1, 249)] | None = None
    correlation_id: Annotated[str, MaxLen(1024)] | None = None
    caller: _Text | None = None
    stream: bool = False


@value
class Origin:
    """Where a request stands in the log, and who sent it."""

    id: str
    source: str
    topic: str = ""
    partition: Count = 0
    offset: Count = 0


@event("relume.inference.parked", Topic.INFERENCE_PARKED)
class InferenceParked:
    """A request that waits aside, so that others in its partition go on. It still counts as waiting.

    `since` is when it was first appended; `not_before` when it may be tried again; `parks` how often it was parked.
    """

    model: str
    origin: Origin
    requested: InferenceRequested
    since: At
    not_before: At | None = None
    attempts: Count = 0
    parks: Count = 1
    why: str = ""


@event("relume.inference.completed", Topic.INFERENCE_RESULTS)
class InferenceCompleted:
    """The answer to one request: the engine's status (200, or a 4xx that is the request's own fault) and body.

    `cause` of the event and `origin.id` are the request's id. A body that is not JSON comes as text. With `chunks` not
    zero the answer was streamed, and the body is what all chunks say together.
    """

    model: str
    origin: Origin
    status: Count
    body: JsonValue
    attempts: Count = 1
    chunks: Count = 0
    idempotency_key: str | None = None
    correlation_id: str | None = None


@event("relume.inference.chunk", Topic.INFERENCE_RESULTS)
class InferenceChunk:
    """A part of a streamed answer. Chunks of one attempt are in order of `index`; the last one says so.

    Chunks are told at least once: after a failure a new attempt begins at index 0. The answer that counts is the
    `relume.inference.completed` that follows.
    """

    model: str
    origin: Origin
    attempt: Count
    index: Count
    data: str
    last: bool = False


class FailureReason(StrEnum):
    """Why a request ended without an answer."""

    INVALID = "invalid"
    """The request cannot be read, or is none that could be sent."""
    UNSUPPORTED_VERSION = "unsupported_version"
    UNKNOWN_MODEL = "unknown_model"
    REPLY_TOPIC = "reply_topic_not_allowed"
    DEADLINE = "deadline_exceeded"
    ATTEMPTS = "attempts_exhausted"
    ANSWER_TOO_LARGE = "answer_too_large"


@event("relume.inference.failed", Topic.INFERENCE_DEAD_LETTERS)
class InferenceFailed:
    """The dead letter of one request: why it has no answer. `cause` of the event is the request's id.

    `status` is the engine's last one, where there was any. `requested` is left out when it could not be read or would
    make the letter too large; `origin` says where it stands.
    """

    model: str
    origin: Origin
    reason: FailureReason
    message: str
    status: Count | None = None
    attempts: Count = 0
    failed_at: At
    requested: InferenceRequested | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None


def model_of(requested: InferenceRequested) -> str | None:
    """The model that the body names; None when it names none."""
    name = requested.body.get("model")
    return name if isinstance(name, str) and 0 < len(name) <= MAX_NAME else None
