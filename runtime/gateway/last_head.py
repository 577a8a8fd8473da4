"""The last request head of a connection: a client sends the same again and again, but for its Content-Length.

A head that differs from an accepted one in the digits of its Content-Length alone is accepted too, and means the same
but for that number; so it need not be parsed and judged again, which is a tenth of what a request costs.
"""

from __future__ import annotations

import re
from typing import Final

from runtime.gateway.request_head import RequestHead
from runtime.gateway.routing import Target
from runtime.gateway.settings import GatewaySettings

_LENGTH: Final = re.compile(rb"\r\n(?:Content-Length|content-length): ([0-9]{1,18})\r\n")


class LastHead:
    """One connection's. It must carry one request at a time, since the head is the same object for all of them."""

    __slots__ = ("_after", "_before", "_head", "_target")

    _target: Target

    def __init__(self) -> None:
        self._before = b""
        self._after = b""
        """What stood before and behind the digits."""
        self._head: RequestHead | None = None

    def remember(self, raw: bytes, head: RequestHead, target: Target) -> None:
        """`raw` was accepted, and is for this target."""
        self._head = head
        self._target = target
        length = _LENGTH.search(raw)
        if length is None:
            self._before, self._after = raw, b""
        else:
            self._before, self._after = raw[: length.start(1)], raw[length.end(1) :]

    def recall(self, raw: bytes, settings: GatewaySettings) -> tuple[RequestHead, Target] | None:
        """Head and target, if `raw` is the last one but for its length. None: parse it."""
        head = self._head
        if head is None:
            return None
        before, after = self._before, self._after
        if not after:
            return (head, self._target) if raw == before else None
        begin = len(before)
        end = len(raw) - len(after)
        if raw[:begin] != before or raw[end:] != after:
            return None
        digits = raw[begin:end]
        if not digits.isdigit() or len(digits) > 18:
            return None
        size = int(digits)
        if size > settings.max_body_bytes:
            return None
        head.length = size
        return head, self._target
