"""Messages of protocol buffers, read by their wire format. Pure.

Four small messages of the kubelet are all that is read: the library for that is 1.5 MB and its messages have no types.
(protobuf.dev/programming-guides/encoding: a message is a row of fields; a field is a number, a kind and a value.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_LONGEST_VARINT: Final = 10
"""Bytes: 64 bits, seven in each."""


class BadMessage(ValueError):
    """The bytes are no message."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and value: whole numbers as they stand, all else as bytes. Raises BadMessage.

    Fields that nobody knows are given as well; who reads takes those that it knows (so newer kubelets are understood).
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise BadMessage("a field has the number 0")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise BadMessage(f"field {number} is of the unknown kind {kind}")
        if at + length > len(message):
            raise BadMessage(f"field {number} ends after the message")
        yield number, message[at : at + length]
        at += length


def texts(message: bytes) -> dict[int, list[str]]:
    """The fields that are bytes, as texts, by their number. Raises BadMessage."""
    found: dict[int, list[str]] = {}
    for number, value in fields(message):
        if isinstance(value, bytes):
            found.setdefault(number, []).append(value.decode("utf-8", "replace"))
    return found


def messages(message: bytes, wanted: int) -> list[bytes]:
    """The messages that stand in a field, in their order. Raises BadMessage."""
    return [value for number, value in fields(message) if number == wanted and isinstance(value, bytes)]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if at + index >= len(message):
            raise BadMessage("a number ends after the message")
        byte = message[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise BadMessage(f"a number has more than {_LONGEST_VARINT} bytes")
