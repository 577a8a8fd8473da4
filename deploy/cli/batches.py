"""OpenAI's batch files: lines of requests in; lines of answers and of errors out.

A line in is ``{"custom_id", "method": "POST", "url", "body"}``; a line out ``{"id", "custom_id", "response":
{"status_code", "request_id", "body"} or null, "error": {"code", "message"} or null}``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from events.envelope import AnyEnvelope, Envelope
from events.types.inference import MAX_NAME, InferenceRequested
from events.units import Instant, format_instant

SOURCE: Final = "relume/submit"
MOST: Final = 50_000
"""Requests of one file: OpenAI's own limit."""


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a file."""

    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """A file's requests. `name` follows from its content, so the same file again is the same batch."""

    name: str
    lines: tuple[Line, ...]

    def ident(self, line: Line) -> str:
        """The id of its request: submitted twice, it is one."""
        return f"{self.name}/{line.custom_id}"


def read_batch(file: Path) -> Batch:
    """Read a file; click.UsageError tells the first line that is wrong, and what is."""
    raw = file.read_bytes()
    lines: list[Line] = []
    seen: set[str] = set()
    for number, text in enumerate(raw.splitlines(), 1):
        if not text.strip():
            continue
        line = _line(number, text)
        if line.custom_id in seen:
            raise click.UsageError(f"line {number}: custom_id {line.custom_id!r} stands there twice; make it unique")
        seen.add(line.custom_id)
        lines.append(line)
    if not 0 < len(lines) <= MOST:
        raise click.UsageError(f"{file} has {len(lines)} requests; a batch has 1 to {MOST}")
    return Batch("batch_" + hashlib.sha256(raw).hexdigest()[:24], tuple(lines))


def _line(number: int, text: bytes) -> Line:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"line {number} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.UsageError(f"line {number}: must be an object with custom_id, method, url and body")
    custom_id, url, body = found.get("custom_id"), found.get("url"), found.get("body")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= 512:
        raise click.UsageError(f"line {number}: custom_id must be a text of 1 to 512 characters")
    if found.get("method", "POST") != "POST":
        raise click.UsageError(f"line {number}: method must be POST")
    if not isinstance(url, str) or not url.startswith("/v1/"):
        raise click.UsageError(f"line {number}: url must begin with /v1/, such as /v1/chat/completions")
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise click.UsageError(f"line {number}: body must be an object that names a model")
    if not 0 < len(body["model"]) <= MAX_NAME:
        raise click.UsageError(f"line {number}: the model's name has 1 to {MAX_NAME} characters")
    return Line(custom_id, url, body)


def requests_of(batch: Batch, lines: Sequence[Line], deadline: Instant | None, priority: int, now: Instant
                ) -> list[AnyEnvelope]:  # fmt: skip
    """The events that ask for these lines."""
    until = None if deadline is None else format_instant(deadline)
    return [
        Envelope(
            id=batch.ident(line), source=SOURCE, subject=line.body["model"], key=line.body["model"], time=now,
            data=InferenceRequested(
                path=line.url, body=line.body, deadline=until, priority=priority, correlation_id=line.custom_id,
            ),
        )
        for line in lines
    ]  # fmt: skip


def line_out(custom_id: str, event: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """An outcome as a line of OpenAI's, and whether it is an answer (else it belongs in the file of errors)."""
    data = event["data"]
    line: dict[str, Any] = {"id": event["id"].replace("outcome/", "batch_req_"), "custom_id": custom_id}
    if "body" in data:
        answer = {"status_code": data["status"], "request_id": event["id"], "body": data["body"]}
        return line | {"response": answer, "error": None}, data["status"] < 400
    return line | {"response": None, "error": {"code": data["reason"], "message": data["message"]}}, False
