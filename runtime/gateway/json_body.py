"""The `model` and `stream` of a JSON body, exactly as an engine will read them.

The whole body is parsed by orjson, which refuses bad UTF-8, lone surrogates, trailing bytes and nesting beyond 1,024.
It takes the last of duplicate keys, and engines differ in that, so a body in which a second `model` or `stream` is
possible (the word occurs again, or a letter is written as an escape, which no encoder does) is walked key by key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import orjson

from runtime.gateway.errors import Refused, bad_request

_LETTER_ESCAPED: Final = re.compile(rb"\\u00(?:6[1-9a-fA-F]|7[0-9aA])")
_BIG: Final = 1024 * 1024
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_VALUES: Final = json.JSONDecoder()


def read_json(body: bytes | bytearray, max_items: int) -> tuple[object, bool]:
    """(value of `model`, None when it is absent; whether a stream is asked for). Raises Refused with a 400."""
    if not body:
        raise bad_request("empty_body", "The request has no body; send JSON that names a model.")
    if len(body) > _BIG and body.count(b",") + body.count(b"[") + body.count(b"{") > max_items:
        raise bad_request("json_too_complex", f"The JSON body has more than {max_items} elements.")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request("invalid_json", f"The body is not valid JSON: {error}.") from None
    if type(fields) is not dict:
        raise bad_request("invalid_json", "The body is not a JSON object.")
    # (`in` on bytes first tries the left side as a number, and catches the error: twice the price of `find`.)
    # A single byte is found by memchr; most bodies have no backslash.
    escaped = body.find(b"\\") >= 0 and body.find(b"\\u00") >= 0 and _LETTER_ESCAPED.search(body) is not None
    if escaped or body.count(b'"model"') > 1 or body.count(b'"stream"') > 1:
        _refuse_duplicates(bytes(body).decode("utf-8"))
    stream = fields.get("stream")
    if stream is not None and type(stream) is not bool:
        raise bad_request("invalid_stream", "`stream` is true or false.", "stream")
    return fields.get("model"), stream is True


def _refuse_duplicates(text: str) -> None:
    seen: set[str] = set()
    try:
        for key in _top_level_keys(text):
            if key in seen and key in {"model", "stream"}:
                raise bad_request("duplicate_key", f"The JSON body names {key!r} twice.", key)
            seen.add(key)
    except (RecursionError, ValueError):
        # orjson has accepted it, so only its depth or size can be at fault here.
        raise _too_deep() from None


def _too_deep() -> Refused:
    return bad_request("json_too_deep", "The JSON body is nested too deeply.")


def _top_level_keys(text: str) -> Iterator[str]:
    """The keys of the object in `text`, which is known to be valid JSON, in their order and with repetitions."""
    position = text.index("{") + 1
    while True:
        position = _skip(text, position)
        if text[position] == "}":
            return
        key, position = _VALUES.raw_decode(text, position)
        yield key
        position = _skip(text, position) + 1  # the colon
        _, position = _VALUES.raw_decode(text, _skip(text, position))
        position = _skip(text, position)
        if text[position] == ",":
            position += 1


def _skip(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return position if space is None else space.end()
