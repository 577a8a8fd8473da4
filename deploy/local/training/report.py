"""What a trainer says, a line at a time. Pure: bytes in, a report out, or nothing.

The file is the trainer's to write, so anything may stand in it. A line that is no report, or whose numbers cannot be
meant, is no report; a field that is missing or odd is left out of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import orjson

LONGEST_LINE: Final = 64 << 10
"""Bytes; a longer line is no report. (The SDK's are a few hundred.)"""
LONGEST_TEXT: Final = 2000
"""Characters of a message or a path that are kept: they go into a state."""
LARGEST: Final = 1 << 53
"""Whole numbers beyond this are garbage: JSON's own writers cannot tell them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report. `kind` and `id` as the SDK writes them; `at`: the trainer's clock; None: not said."""

    kind: str
    at: float | None = None
    id: str = ""
    step: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    eta: float | None = None
    path: str = ""
    manifest: str = ""
    message: str = ""


def read_report(line: bytes) -> Report | None:
    """The report that `line` is; None when it is none."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, dict) or not (kind := _text(said.get("kind"))):
        return None
    return Report(
        kind=kind, at=_number(said.get("time_unix")), id=_text(said.get("id")), step=_count(said.get("step")),
        bytes=_count(said.get("bytes")), seconds=_number(said.get("seconds")), eta=_number(said.get("eta")),
        path=_text(said.get("path")), manifest=_text(said.get("manifest")), message=_text(said.get("message")),
    )  # fmt: skip


def _text(said: object) -> str:
    """Without what a log cannot hold: lone surrogates, NUL."""
    if not isinstance(said, str):
        return ""
    return said[:LONGEST_TEXT].replace("\0", "").encode("utf-8", "replace").decode()


def _count(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < LARGEST else None


def _number(said: object) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return float(said) if math.isfinite(said) and 0 <= said < LARGEST else None
