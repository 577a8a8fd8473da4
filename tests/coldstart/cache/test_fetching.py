"""One fetch by itself: what its readers do beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coldstart.cache import fetching
from coldstart.cache.fetching import Fetch, Part, Told
from coldstart.cache.partial import Partial
from coldstart.core.cache.content import Described, Listing, Span, alone
from coldstart.core.cache.errors import Interrupted
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import plan
from events.clock import SystemClock
from events.units import Bytes, Seconds

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


class AllowsTwo(OneConnection):
    """Whoever reads while two others do is refused at once; those two read until somebody was."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        del of
        with self.changed:
            if self.reading == 2:
                self.refused += 1
                self.changed.notify_all()
                raise Interrupted("503")
            self.begun += 1
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)
            if self.begun > 2 and not self.refused:
                self.changed.wait_for(lambda: self.refused > 0, WITHIN)
        into[:] = bytes([span.index]) * span.length
        with self.changed:
            self.reading -= 1


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


def test_who_was_one_too_many_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that allows two: connections that it refuses after they grew are given up, at the cost of no try and of
    no wait, however long a failure is waited for otherwise."""
    monkeypatch.setattr(fetching, "takes_in", lambda *_: None)  # or a quick machine would need no more than two
    chunks = 40
    of = Described("model.gguf", Bytes(CHUNK * chunks), "v1", ranges=True)
    patient = FetchPolicy(
        chunk_bytes=CHUNK, connections_first=2, ahead_chunks=chunks, retries=0, retries_share=0.0,
        backoff_first=Seconds(600.0), backoff_most=Seconds(600.0), patience=Seconds(WITHIN),
    )  # fmt: skip
    source = AllowsTwo()
    with Partial(tmp_path / "partial", of, CHUNK) as partial:
        fetch = Fetch(source, (Part(of, partial),), patient, SystemClock())
        fetch.run(plan([of], CHUNK), Told(lambda _: None, lambda *_: None))
        assert partial.data.read_bytes() == b"".join(bytes([index]) * CHUNK for index in range(chunks))
    assert (source.begun, source.most_reading) == (chunks, 2)
    assert source.refused


def test_there_are_as_many_readers_as_connections_and_one_more(tmp_path: Path) -> None:
    """Not as many as there could be."""
    names: list[str] = []

    class Names(OneConnection):
        def read(self, span: Span, of: Described, into: memoryview) -> None:
            names.extend(one.name for one in threading.enumerate() if one.name.startswith("weights-"))
            super().read(span, of, into)

    with Partial(tmp_path / "partial", OF, CHUNK) as partial:
        few = FetchPolicy(chunk_bytes=CHUNK, connections_first=1, connections_most=1)
        Fetch(Names(), (Part(OF, partial),), few, SystemClock()).run(
            plan([OF], CHUNK), Told(lambda _: None, lambda *_: None)
        )
    assert set(names) == {"weights-0", "weights-1"}
