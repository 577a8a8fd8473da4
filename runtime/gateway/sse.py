"""Server-sent events that the gateway itself writes: comments while a request is held, errors where a stream breaks."""

from __future__ import annotations

from typing import Final

import orjson

from runtime.gateway.errors import Failure, error_object
from runtime.ports import Progress

CONTENT_TYPE: Final = b"text/event-stream"


def is_event_stream(content_type: bytes | None) -> bool:
    """Whether a Content-Type is that of server-sent events."""
    return content_type is not None and content_type[:17].lower() == CONTENT_TYPE


def held_comment(progress: Progress | None) -> bytes:
    """``: held phase=load eta=2.1s ahead=3``: a comment, which clients ignore, so that people see why they wait."""
    if progress is None:
        return b": held\n\n"
    eta = "unknown" if progress.eta is None else f"{progress.eta:.1f}s"
    phase = progress.phase.replace("\n", " ").replace("\r", " ")
    return f": held phase={phase} eta={eta} ahead={progress.ahead}\n\n".encode()


def error_event(failure: Failure) -> bytes:
    """An OpenAI error object as an event: OpenAI's clients raise on it."""
    return b"data: " + error_object(failure) + b"\n\n"


def relayed_error_event(status: int, body: bytes) -> bytes:
    """The engine's error answer as an event: its own error object where it sent one."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if isinstance(fields, dict) and "error" in fields:
        return b"data: " + orjson.dumps({"error": fields["error"]}) + b"\n\n"
    return error_event(Failure(status, "engine_error", f"The engine answered with status {status}."))
