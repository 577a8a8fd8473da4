"""The `model` and `stream` fields of a multipart/form-data body (audio endpoints), without copying the files in it.

RFC 7578 as clients write it; what parsers read differently (unquoted names, `name*`, a preamble) is refused.
"""

from __future__ import annotations

import re
from typing import Final

from runtime.gateway.errors import Refused, bad_request

_BOUNDARY: Final = re.compile(
    rb'(?i)multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))\s*'
)
_DISPOSITION: Final = re.compile(rb"(?i)content-disposition\s*:\s*form-data((?:\s*;[^\r\n]*)?)\s*")
_PARAMETER: Final = re.compile(rb';\s*(name|filename|filename\*)\s*=\s*(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s";]+))\s*')
_MAX_PARTS: Final = 256
_MAX_HEAD: Final = 8192
_MAX_VALUE: Final = 1024


def is_multipart(content_type: bytes | None) -> bool:
    """Whether the body is a form with parts."""
    return content_type is not None and content_type[:19].lower() == b"multipart/form-data"


def read_multipart(content_type: bytes, body: bytes | bytearray) -> tuple[str | None, bool]:
    """(the `model` field or None, whether a stream is asked for). Raises Refused with a 400."""
    found = _BOUNDARY.fullmatch(content_type)
    if found is None:
        raise _bad("its Content-Type has no usable boundary")
    fields: dict[bytes, str] = {}
    delimiter = b"--" + (found[1] or found[2])
    if not body.startswith(delimiter):
        raise _bad("it does not begin with its boundary")
    position = len(delimiter)
    for _ in range(_MAX_PARTS):
        if body[position : position + 2] == b"--":
            if body[position + 2 :].strip(b"\r\n"):
                raise _bad("something follows its last boundary")
            return fields.get(b"model"), _stream(fields.get(b"stream"))
        if body[position : position + 2] != b"\r\n":
            raise _bad("a boundary is not alone on its line")
        end = body.find(b"\r\n" + delimiter, position)
        if end < 0:
            raise _bad("it ends without its boundary")
        _read_part(body, position + 2, end, fields)
        position = end + 2 + len(delimiter)
    raise _bad(f"it has more than {_MAX_PARTS} parts")


def _read_part(body: bytes | bytearray, start: int, end: int, fields: dict[bytes, str]) -> None:
    head_end = body.find(b"\r\n\r\n", start, end)
    if head_end < 0 or head_end - start > _MAX_HEAD:
        raise _bad("a part has no head")
    name = _name(bytes(body[start:head_end]))
    if name not in {b"model", b"stream"}:
        return
    if name in fields:
        raise bad_request("duplicate_key", f"The form names {name.decode('ascii')!r} twice.", name.decode("ascii"))
    value = bytes(body[head_end + 4 : end])
    if len(value) > _MAX_VALUE:
        raise _bad("the field is too long")
    try:
        fields[name] = value.decode("utf-8")
    except UnicodeDecodeError:
        raise _bad("a field is not UTF-8") from None


def _name(head: bytes) -> bytes:
    """The `name` of a part: exactly one disposition with exactly one quoted name."""
    dispositions = [line for line in head.split(b"\r\n") if line[:19].lower() == b"content-disposition"]
    found = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    if found is None:
        raise _bad("a part has no single Content-Disposition")
    parameters = found[1].strip()
    names = []
    position = 0
    while position < len(parameters):
        parameter = _PARAMETER.match(parameters, position)
        if parameter is None:
            raise _bad("a Content-Disposition has parameters that are not understood")
        if parameter[1] == b"name":
            names.append(parameter[2])
        position = parameter.end()
    if len(names) != 1 or names[0] is None or b"\\" in names[0]:
        raise _bad("a part has no single quoted name")
    return bytes(names[0])


def _stream(value: str | None) -> bool:
    if value is None or value.lower() in {"false", "0", ""}:
        return False
    if value.lower() in {"true", "1"}:
        return True
    raise bad_request("invalid_stream", "`stream` is true or false.", "stream")


def _bad(why: str) -> Refused:
    return bad_request("invalid_multipart", f"The multipart body is not usable: {why}.")
