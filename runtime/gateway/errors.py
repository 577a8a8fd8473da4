"""Every way in which the gateway says no: a status, an OpenAI error object, and headers that tell whether to retry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import orjson

from events.units import Seconds
from runtime.ports import Refusal, RefusalCode


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error. `retry_after` None: `x-should-retry` is false unless `should_retry` says so."""

    status: int
    code: str
    message: str
    retry_after: Seconds | None = None
    should_retry: bool = False
    param: str | None = None
    allow: bytes = b""
    """Value of the Allow header of a 405."""


class Refused(Exception):
    """Raised where a request turns out to be wrong; carries the answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


_REFUSAL_STATUS: Final = {
    RefusalCode.UNKNOWN_MODEL: 404,
    RefusalCode.QUEUE_FULL: 429,
    RefusalCode.IMPOSSIBLE: 503,
    RefusalCode.START_FAILED: 503,
    RefusalCode.DEADLINE: 504,
    RefusalCode.SHUTTING_DOWN: 503,
    RefusalCode.DELETED: 404,
}

_KINDS: Final = {429: "rate_limit_error", 502: "server_error", 503: "service_unavailable", 504: "timeout_error"}
"""OpenAI's `type`; every other status is the client's fault."""


def bad_request(code: str, message: str, param: str | None = None) -> Refused:
    """A 400."""
    return Refused(Failure(400, code, message, param=param))


def of_refusal(refusal: Refusal) -> Failure:
    """The answer to a request that the desk refused."""
    after = refusal.retry_after
    return Failure(_REFUSAL_STATUS[refusal.code], refusal.code.value, refusal.message, after, after is not None)


def unknown_model(name: str) -> Failure:
    """404: no declaration has this name or alias."""
    return Failure(404, "model_not_found", f"The model {name!r} is not declared here.", param="model")


def error_object(failure: Failure) -> bytes:
    """OpenAI's error object as JSON."""
    kind = _KINDS.get(failure.status, "invalid_request_error")
    fields = {"message": failure.message, "type": kind, "param": failure.param, "code": failure.code}
    return orjson.dumps({"error": fields})


def error_headers(failure: Failure) -> bytes:
    """The header lines that belong to a failure: retry advice, and Allow."""
    lines = b"x-should-retry: true\r\n" if failure.should_retry else b"x-should-retry: false\r\n"
    if failure.retry_after is not None:
        # An integer, rounded up: RFC 9110 knows no fractions, and 0 would mean at once.
        lines += b"Retry-After: %d\r\n" % max(1, math.ceil(failure.retry_after))
    if failure.allow:
        lines += b"Allow: " + failure.allow + b"\r\n"
    return lines
