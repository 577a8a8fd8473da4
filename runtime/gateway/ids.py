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
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, odd: the usual step of a Weyl sequence."""


class Identities:
    """Makes ids without a system call a request."""

    def __init__(self) -> None:
        self._boot = os.urandom(5).hex()
        self._count = 0
        self._trace_start = os.urandom(8).hex().encode()
        self._trace = int.from_bytes(os.urandom(8), "big")
        self._span = int.from_bytes(os.urandom(8), "big")
        self._callers: dict[bytes, str] = {}

    def of(self, noted: Mapping[bytes, bytes]) -> tuple[str, bytes, bytes]:
        """(unique id of the ticket, id that the client is told, traceparent to send on) of a request's headers."""
        given = noted.get(b"x-request-id")
        parent = noted.get(b"traceparent")
        if given is None and parent is None:  # nearly always: the two methods below, written out
            self._count = count = self._count + 1
            own = f"{self._boot}-{count:x}"
            self._trace = step = (self._trace + _GOLDEN) & _MASK
            # Bytes from the start: half the price of a string that is encoded (0.4 µs instead of 0.7).
            return own, own.encode(), b"00-%b%016x-%016x-00" % (self._trace_start, step, (step ^ self._span) or 1)
        ticket, told = self.request(given)
        return ticket, told.encode(), self.trace(parent)

    def request(self, given: bytes | None) -> tuple[str, str]:
        """(unique id of the ticket, id that the client is told): the client's own `x-request-id` where it is sane.

        A client may repeat its id, so the ticket's has a count behind it.
        """
        self._count += 1
        if given is not None and _REQUEST_ID.fullmatch(given):
            told = given.decode("ascii")
            return f"{told}#{self._boot}-{self._count:x}", told
        own = f"{self._boot}-{self._count:x}"
        return own, own

    def trace(self, given: bytes | None) -> bytes:
        """The `traceparent` to send on: the one given, or a new one that is not sampled."""
        if given is not None and _TRACEPARENT.fullmatch(given):
            return given
        # A Weyl sequence from random starts: never repeats, spread over all bits, and costs no system call.
        self._trace = (self._trace + _GOLDEN) & _MASK
        return b"00-%b%016x-%016x-00" % (self._trace_start, self._trace, (self._trace ^ self._span) or 1)

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
