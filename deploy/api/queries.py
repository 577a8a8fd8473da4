"""Reading query parameters: each is checked, and an unknown one is refused with the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from deploy.api.problem import bad_parameter, refuse
from events.names import TOPIC_KINDS
from events.units import Instant, parse_instant

_TRUE: Final = frozenset({"true", "1", "yes", ""})
_FALSE: Final = frozenset({"false", "0", "no"})


def check_known(request: web.Request, known: Iterable[str]) -> None:
    """Refuse parameters that the operation does not have."""
    names = list(known)
    for given in request.query:
        if given not in names:
            near = difflib.get_close_matches(given, names, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"it has: {', '.join(names) or 'none'}"
            raise refuse(HTTPStatus.BAD_REQUEST, "bad-parameter", f"there is no parameter {given!r}", remedy=remedy)


def flag(request: web.Request, name: str) -> bool:
    """``name`` or ``name=true`` is true; absent is false."""
    text = request.query.get(name, "false").lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise bad_parameter(name, text, "true or false")


def number(request: web.Request, name: str, default: int, *, least: int = 1, most: int = 10_000) -> int:
    """A whole number between `least` and `most`."""
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
        raise bad_parameter(name, text, f"a whole number from {least} to {most}")
    return int(text)


def instant(request: web.Request, name: str) -> Instant | None:
    """An RFC 3339 time; None: it is not given."""
    text = request.query.get(name)
    if not text:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise bad_parameter(name, text, "an RFC 3339 time, such as 2026-11-29T18:53:42Z") from error


def topics(request: web.Request) -> tuple[str, ...]:
    """The topics that are asked for, with or without ``relume.``; none named means all."""
    known = [str(topic) for topic in TOPIC_KINDS]
    given = [part for text in request.query.getall("topic", []) for part in text.split(",") if part]
    chosen = []
    for name in given:
        full = name if name.startswith("relume.") else f"relume.{name}"
        if full not in known:
            near = difflib.get_close_matches(full, known, n=1)
            raise bad_parameter("topic", name, f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}")
        chosen.append(full)
    return tuple(dict.fromkeys(chosen)) or tuple(known)
