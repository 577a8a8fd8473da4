"""A source that has no ranges: a file in one stream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from blake3 import blake3

from coldstart.cache.fetching import Part
from coldstart.cache.watch import Watch
from coldstart.core.cache.busy import Stage
from coldstart.core.cache.content import Span
from coldstart.core.cache.policy import FetchPolicy
from coldstart.ports import Source


def fetch_stream(
    source: Source, part: Part, policy: FetchPolicy, verified: Callable[[int], None], watch: Watch
) -> str:  # fmt: skip
    """From a source that has no ranges: a file in one stream, in order; its SHA-256. A failed try begins anew.

    The caller retries: Retryable, VersionMoved and CacheErrors are raised as they come.
    """
    buffer = memoryview(bytearray(min(policy.chunk_bytes, max(1, part.of.bytes))))
    whole, at = hashlib.sha256(), 0

    def take(length: int) -> None:
        nonlocal at
        view, span = buffer[:length], Span(at // policy.chunk_bytes, at, length)
        with watch.at(Stage.DISK):
            part.partial.write(span, view)
        part.partial.record(span, blake3(view).hexdigest())
        with watch.at(Stage.DIGEST):
            whole.update(view)
        at += length
        verified(length)

    channel = source.connect()
    try:
        with watch.at(Stage.NETWORK):
            channel.stream(part.of, buffer, take)
    finally:
        channel.close()
    return f"sha256:{whole.hexdigest()}"
