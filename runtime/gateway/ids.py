"""Identities of a request: its id, its trace context, its caller."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Final

ANONYMOUS: Final = "anonymous"
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
_TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
"""W3C Trace Context §3.2: lower case hex; version ff, trace id 0 and parent id 0 are void."""
_CACHED_CALLERS: Final = 4096
_TRACE_DIGITS: Final = 48
"""Hex digits of a trace id and of a parent id."""
_DRAWN: Final = 128
"""Traces whose random digits are drawn at once: a system call for so many (0.05 µs each)."""


class Identities:
    """Makes ids without a system call a request."""

    def __init__(self) -> None:
        self._boot = os.urandom(5).hex() + "-"
        self._count = 0
        self._digits = b""
        self._at = 0
        self._callers: dict[bytes, str] = {}

    def of(self, noted: Mapping[bytes, bytes]) -> tuple[str, bytes, bytes]:
        """(unique id of the ticket, id that the client is told, traceparent to send on) of a request's headers."""
        given = noted.get(b"x-request-id")
        parent = noted.get(b"traceparent")
        if given is None and parent is None:  # nearly always: the two methods below, written out
            self._count = count = self._count + 1
            own = self._boot + str(count)
            return own, own.encode("ascii"), self._new_trace()
        ticket, told = self.request(given)
        return ticket, told.encode(), self.trace(parent)

    def request(self, given: bytes | None) -> tuple[str, str]:
        """(unique id of the ticket, id that the client is told): the client's own `x-request-id` where it is sane.

        A client may repeat its id, so the ticket's has a count behind it.
        """
        self._count += 1
        if given is not None and _REQUEST_ID.fullmatch(given):
            told = given.decode("ascii")
            return f"{told}#{self._boot}{self._count}", told
        own = self._boot + str(self._count)
        return own, own

    def trace(self, given: bytes | None) -> bytes:
        """The `traceparent` to send on: the one given, or a new one that is not sampled."""
        if given is not None and _TRACEPARENT.fullmatch(given):
            return given
        return self._new_trace()

    def _new_trace(self) -> bytes:
        """Random, as W3C asks (an id of zeros, which is void, comes once in 2^64)."""
        at = self._at
        if at == len(self._digits):
            self._digits = os.urandom(_DRAWN * _TRACE_DIGITS // 2).hex().encode("ascii")
            at = 0
        self._at = at + _TRACE_DIGITS
        digits = self._digits
        return b"00-" + digits[at : at + 32] + b"-" + digits[at + 32 : at + 48] + b"-00"

    def caller(self, authorization: bytes | None) -> str:
        """Who asks, for fairness: 16 hex digits of the SHA-256 of the Authorization header."""
        if authorization is None:
            return ANONYMOUS
        known = self._callers.get(authorization)
        if known is None:
            if len(self._callers) >= _CACHED_CALLERS:
                self._callers.clear()
            known = hashlib.sha256(authorization).hexdigest()[:16]
            self._callers[authorization] = known
        return known
