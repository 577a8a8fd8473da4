"""Units that cannot be swapped: instants, durations, bytes, and how they are written.

Durations are written as Kubernetes and Go write them (``90s``, ``500ms``, ``1h30m``), quantities of bytes as Kubernetes
does (``16Gi``, ``500M``), instants on the wire as RFC 3339 in UTC.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NewType

Instant = NewType("Instant", float)
"""Seconds since the Unix epoch, as a `Clock` gives them. Only differences of instants are durations."""

Seconds = NewType("Seconds", float)
"""A duration in seconds."""

Bytes = NewType("Bytes", int)
"""A number of bytes."""

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"
"""What a written duration looks like; also the pattern in JSON Schemas."""

LONGEST = Seconds(3650 * 86400.0)
"""The longest duration that is read: ten years. Chosen: longer than anything that relume waits for."""

_LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, the last that RFC 3339 can write."""

_QUANTITY_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)$")
QUANTITY_PATTERN = r"^\d+(\.\d+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
"""What a written quantity of bytes looks like; also the pattern in JSON Schemas."""


def parse_duration(text: str) -> Seconds:
    """Read ``1h30m``, ``90s``, ``500ms`` or ``0`` into seconds; ValueError says what was wrong and what to write.

    Nothing is longer than `LONGEST`, so that now and a duration are a time that can be written.
    """
    if text == "0":
        return Seconds(0.0)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 500ms, 90s, 5m, 1h30m")
    seconds = math.fsum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
    if seconds > LONGEST:
        raise ValueError(f"{text!r} is longer than ten years; write 3650d or less")
    return Seconds(seconds)


def format_duration(seconds: float) -> str:
    """Write seconds for people and specs: ``0s``, ``250ms``, ``1.5s``, ``2m5s``, ``1h30m``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1:
        millis = round(seconds * 1000, 3)
        return f"{millis:g}ms" if millis else "0s"
    if seconds < 60:
        return f"{round(seconds, 2):g}s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    return "".join(f"{number}{unit}" for number, unit in parts if number)


def parse_quantity(text: str) -> Bytes:
    """Read ``16Gi``, ``500M`` or ``1024`` into bytes; ValueError says what was wrong and what to write."""
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write a number and a unit, such as 512Mi, 16Gi, 2G")
    return Bytes(round(float(match[1]) * _QUANTITY_UNITS[match[2]]))


def format_quantity(amount: int) -> str:
    """Write bytes with the largest binary unit that keeps at most one decimal: ``16Gi``, ``1.5Mi``, ``512``."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        size = _QUANTITY_UNITS[unit]
        if amount >= size:
            return f"{round(amount / size, 1):g}{unit}"
    return str(amount)


def write_duration(seconds: float) -> str:
    """Write seconds exactly (to the microsecond) in the largest unit that keeps them whole: reads back as it was."""
    millis = round(seconds * 1000, 3)
    if millis % 1:
        return f"{millis:.3f}".rstrip("0") + "ms"
    for unit in ("d", "h", "m", "s"):
        size = round(_DURATION_UNITS[unit] * 1000)
        if millis and millis % size == 0:
            return f"{int(millis // size)}{unit}"
    return f"{int(millis)}ms" if millis else "0s"


def write_quantity(amount: int) -> str:
    """Write bytes exactly in the largest binary unit that divides them: reads back as it was."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        size = _QUANTITY_UNITS[unit]
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)


def format_instant(instant: float) -> str:
    """RFC 3339 in UTC with microseconds, for people: ``2026-11-29T18:53:42.123456Z``. One after the year 9999 (a wrong
    number that somebody told) is shown as that year's end, one before 1970 as its beginning."""
    return write_instant(min(max(instant, 0.0), float(_LAST_SECOND)))


def write_instant(instant: float) -> str:
    """RFC 3339 in UTC with microseconds, exactly; ValueError or OverflowError: the calendar has no such time."""
    second = math.floor(instant)
    micros = round((instant - second) * 1e6)
    if micros == 1_000_000:
        second, micros = second + 1, 0
    return f"{_second(second)}.{micros:06d}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    """The whole seconds of an instant; thousands of events share one."""
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def parse_instant(text: str) -> Instant:
    """Read RFC 3339; a time without a zone is refused, since nobody could say when it was."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an RFC 3339 time such as 2026-11-29T18:53:42Z") from error
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write 2026-11-29T18:53:42Z")
    return Instant(moment.timestamp())
