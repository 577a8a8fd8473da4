"""One fetch by itself: what its readers do beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from coldstart.cache.fetching import Fetch, Part, Told
from coldstart.cache.partial import Partial
from coldstart.core.cache.content import Described, Listing, Span, alone
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import plan
from events.clock import SystemClock
from events.units import Bytes

CHUNK, CHUNKS = 1000, 6
POLICY = FetchPolicy(chunk_bytes=CHUNK, connections_first=1, connections_most=1, ahead_chunks=CHUNKS)
OF = Described("model.gguf", Bytes(CHUNK * CHUNKS), "v1", ranges=True)
WITHIN = 30.0


class OneConnection:
    """A source that counts: connections, and reads at a time. Also its channel."""

    def __init__(self) -> None:
        self.connected = self.reading = self.most_reading = self.begun = 0
        self.changed = threading.Condition()

    def describe(self) -> Listing:
        return alone(OF)

    def fixed(self) -> str | None:
        return None

    def connect(self) -> OneConnection:
        self.connected += 1
        return self

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        del of
        with self.changed:
            self.begun += 1
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)
            self.changed.notify_all()
        into[:] = bytes([span.index]) * span.length
        with self.changed:
            self.reading -= 1

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        raise AssertionError("it has ranges")

    def close(self) -> None:
        """Nothing to close."""

    def shown(self) -> str:
        return "one"


class SlowDisk(Partial):
    """The first chunk is written only when the next is being read."""

    source: OneConnection
    overlapped = False

    def write(self, span: Span, content: memoryview) -> None:
        if not span.index:
            with self.source.changed:
                self.overlapped = self.source.changed.wait_for(lambda: self.source.begun > 1, WITHIN)
        super().write(span, content)


def test_a_connection_is_read_on_while_its_last_chunk_is_written(tmp_path: Path) -> None:
    """Where one connection is all that can be had, the disk's time is not added to the network's; and there is one."""
    source = OneConnection()
    with SlowDisk(tmp_path / "partial", OF, CHUNK) as partial:
        partial.source = source
        fetch = Fetch(source, (Part(OF, partial),), POLICY, SystemClock())
        digests: list[str] = []
        fetch.run(plan([OF], CHUNK), Told(lambda _: None, lambda _, digest: digests.append(digest)))
        assert partial.overlapped
        assert partial.data.read_bytes() == b"".join(bytes([index]) * CHUNK for index in range(CHUNKS))
    assert len(digests) == 1
    assert (source.connected, source.most_reading, source.begun) == (1, 1, CHUNKS)
