"""One fetch by itself: what its readers do beside each other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coldstart.cache import fetching
from coldstart.cache.fetching import Fetch, Part, Told
from coldstart.cache.partial import Partial
from coldstart.core.cache.content import Described, Listing, Span, alone
from coldstart.core.cache.errors import Interrupted, Retryable, Throttled
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import plan
from events.clock import SystemClock
from events.units import Bytes, Seconds

CHUNK, CHUNKS = 1000, 6
POLICY = FetchPolicy(chunk_bytes=CHUNK, connections_first=1, connections_most=1, ahead_chunks=CHUNKS)
OF = Described("model.gguf", Bytes(CHUNK * CHUNKS), "v1", ranges=True)
WITHIN = 30.0


class OneConnection:
    """A source that counts: connections, and reads at a time."""

    def __init__(self) -> None:
        self.connected = self.reading = self.most_reading = self.begun = 0
        self.changed = threading.Condition()

    def describe(self) -> Listing:
        return alone(OF)

    def fixed(self) -> str | None:
        return None

    def connect(self) -> Way:
        self.connected += 1
        return Way(self, self.connected)

    def read(self, span: Span, into: memoryview, by: Way) -> None:
        del by
        with self.changed:
            self.begun += 1
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)
            self.changed.notify_all()
        into[:] = bytes([span.index]) * span.length
        with self.changed:
            self.reading -= 1

    def shown(self) -> str:
        return "one"


class Way:
    """A connection to such a source."""

    def __init__(self, source: OneConnection, number: int) -> None:
        self.source, self.number = source, number
        self.closed = threading.Event()

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        del of
        self.source.read(span, into, self)

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        raise AssertionError("it has ranges")

    def close(self) -> None:
        self.closed.set()


class AllowsTwo(OneConnection):
    """Whoever reads while two others do is refused at once; those two read until somebody was."""

    def __init__(self, error: Retryable) -> None:
        super().__init__()
        self.refused = 0
        self.error = error

    def read(self, span: Span, into: memoryview, by: Way) -> None:
        del by
        with self.changed:
            if self.reading == 2:
                self.refused += 1
                self.changed.notify_all()
                raise self.error
            self.begun += 1
            first_two = self.begun <= 2
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.begun > 1 if first_two else self.refused > 0, WITHIN)
        into[:] = bytes([span.index]) * span.length
        with self.changed:
            self.reading -= 1


class ServesTwo(OneConnection):
    """All connections are taken; only over the first two anything comes, until the others are given up."""

    def read(self, span: Span, into: memoryview, by: Way) -> None:
        if by.number > 2:
            assert by.closed.wait(WITHIN), "they are waited for"
            raise Interrupted("closed")
        super().read(span, into, by)
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun > 1, WITHIN)


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


@pytest.mark.parametrize("error", [Interrupted("503"), Throttled("429", Seconds(20.0)), Throttled("429", Seconds(1e5))])
def test_who_was_one_too_many_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Retryable
) -> None:
    """A server that allows two: connections that it refuses after they grew are given up, at the cost of no try and of
    no wait, however long a failure is waited for otherwise, and whatever patience the server asks of them."""
    hungry(monkeypatch)
    chunks = 40
    of = Described("model.gguf", Bytes(CHUNK * chunks), "v1", ranges=True)
    patient = FetchPolicy(
        chunk_bytes=CHUNK, connections_first=2, ahead_chunks=chunks, retries=0, retries_share=0.0,
        backoff_first=Seconds(600.0), backoff_most=Seconds(600.0), patience=Seconds(WITHIN),
    )  # fmt: skip
    source = AllowsTwo(error)
    with Partial(tmp_path / "partial", of, CHUNK) as partial:
        fetch = Fetch(source, (Part(of, partial),), patient, SystemClock())
        fetch.run(plan([of], CHUNK), Told(lambda _: None, lambda *_: None))
        assert partial.data.read_bytes() == b"".join(bytes([index]) * CHUNK for index in range(chunks))
    assert (source.begun, source.most_reading) == (chunks, 2)
    assert source.refused


def test_a_server_that_leaves_others_waiting_is_not_pressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes all connections and serves two: those are read on, and the others cost no try."""
    hungry(monkeypatch)
    chunks = 100
    of = Described("model.gguf", Bytes(CHUNK * chunks), "v1", ranges=True)
    patient = FetchPolicy(
        chunk_bytes=CHUNK, connections_first=2, ahead_chunks=chunks, retries=0, retries_share=0.0,
        patience=Seconds(WITHIN),
    )  # fmt: skip
    source = ServesTwo()
    with Partial(tmp_path / "partial", of, CHUNK) as partial:
        fetch = Fetch(source, (Part(of, partial),), patient, SystemClock())
        fetch.run(plan([of], CHUNK), Told(lambda _: None, lambda *_: None))
        assert partial.data.read_bytes() == b"".join(bytes([index]) * CHUNK for index in range(chunks))
    assert source.begun == chunks


def test_without_more_threads_it_goes_on_with_those_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that gives one thread and no more."""
    start, started = threading.Thread.start, list[str]()

    def one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one)
    with Partial(tmp_path / "partial", OF, CHUNK) as partial:
        fetch = Fetch(OneConnection(), (Part(OF, partial),), FetchPolicy(chunk_bytes=CHUNK), SystemClock())
        fetch.run(plan([OF], CHUNK), Told(lambda _: None, lambda *_: None))
        assert partial.data.read_bytes() == b"".join(bytes([index]) * CHUNK for index in range(CHUNKS))
    assert started == ["weights-0"]


def test_small_files_do_not_say_how_wide_the_way_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenizer and configuration come first, and as fast as the source answers: they are not compared with shards."""
    counted: list[float] = []
    came = fetching.Connections.came

    def count(self: fetching.Connections, speed: float, by: int) -> bool:
        counted.append(speed)
        return came(self, speed, by)

    monkeypatch.setattr(fetching.Connections, "came", count)
    small = [Described(f"{number}.json", Bytes(10), "v1", ranges=True) for number in range(5)]
    files = [*small, OF]
    with contextlib.ExitStack() as stack:
        parts = tuple(
            Part(of, stack.enter_context(Partial(tmp_path / str(at), of, CHUNK))) for at, of in enumerate(files)
        )
        Fetch(OneConnection(), parts, POLICY, SystemClock()).run(
            plan(files, CHUNK), Told(lambda _: None, lambda *_: None)
        )
    assert len(counted) == CHUNKS


def test_there_are_as_many_readers_as_connections_and_one_more(tmp_path: Path) -> None:
    """Not as many as there could be."""
    names: list[str] = []

    class Names(OneConnection):
        def read(self, span: Span, into: memoryview, by: Way) -> None:
            names.extend(one.name for one in threading.enumerate() if one.name.startswith("weights-"))
            super().read(span, into, by)

    with Partial(tmp_path / "partial", OF, CHUNK) as partial:
        few = FetchPolicy(chunk_bytes=CHUNK, connections_first=1, connections_most=1)
        Fetch(Names(), (Part(OF, partial),), few, SystemClock()).run(
            plan([OF], CHUNK), Told(lambda _: None, lambda *_: None)
        )
    assert set(names) == {"weights-0", "weights-1"}


def hungry(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are of use, however quick or busy the machine is."""
    monkeypatch.setattr(fetching, "takes_in", lambda *_: None)
    monkeypatch.setattr(fetching.Hunger, "share", lambda *_: 1.0)
