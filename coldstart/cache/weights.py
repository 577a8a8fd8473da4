"""The weight cache of a node: fetch or hit, and never bytes that were not verified.

A hit takes no lock but a use. Everything that writes holds the folder's lock (`holding.writing`).
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from coldstart.cache import holding, inventory, publishing
from coldstart.cache.fetching import Fetch, Fetched, fetch_stream, late
from coldstart.cache.holding import Use
from coldstart.cache.layout import Layout, allocated, delete, key, snapshot_id
from coldstart.cache.manifests import boot, manifests, read_manifest
from coldstart.cache.partial import Partial
from coldstart.core.cache.content import Described, Manifest, Span
from coldstart.core.cache.errors import (
    CacheError,
    DigestMismatch,
    FolderTaken,
    NoSpace,
    RangesIgnored,
    Retryable,
    SourceChanged,
    SourceUnavailable,
    Throttled,
    VersionMoved,
)
from coldstart.core.cache.pace import Patience
from coldstart.core.cache.plan import spans
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from coldstart.core.cache.room import admit, asked, clock_after
from coldstart.ports import Source
from events.clock import Clock
from events.units import Bytes, Instant, Seconds

T = TypeVar("T")

Writing = Callable[[Layout], AbstractContextManager[None]]
"""How a cache becomes its folder's one writer for a while."""

DIGEST_TRIES = 2
"""Wrong content is fetched once more, since it may have been broken on its way; then it is the source's."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to fetch. With a digest, the source is not asked at all on a hit."""

    address: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Got:
    """Weights that are there. `use` keeps them there until it is ended. `transferred`: bytes that the source gave."""

    path: Path
    manifest: Manifest
    seconds: Seconds
    hit: bool
    transferred: int
    note: str
    use: Use


class Progress:
    """Who follows a fetch; does nothing here."""

    def begins(self, total: Bytes) -> None:
        """A fetch of so many bytes begins, or begins anew."""

    def verified(self, more: int) -> None:
        """So many more bytes are verified."""


class WeightCache:
    """One folder of weights. Its methods block, and may be called from several threads.

    `writing`: who is the folder's writer all the time passes one that does nothing; then fetches of different addresses
    may run side by side, of which none takes room that was promised to another.
    """

    def __init__(
        self, root: Path, fetching: FetchPolicy, room: RoomPolicy, clock: Clock, writing: Writing = holding.writing
    ) -> None:
        self.layout = Layout(root)
        self._fetching = fetching
        self._room = room
        self._clock = clock
        self._writing = writing
        self._promised: dict[Path, Bytes] = {}
        self.changing = threading.RLock()
        """Held while something is published, evicted or put aside, so that nobody evicts what is being published."""

    def hit(self, wanted: Wanted, source: Source) -> Got | None:
        """The weights, if they are there and what is wanted. A source that cannot be asked does not break a hit."""
        began = self._clock.now()
        manifest = read_manifest(self.layout.manifest(wanted.address))
        if manifest is None or (wanted.digest is not None and manifest.digest != wanted.digest):
            return None
        use = holding.take_use(self.layout, manifest.snapshot)
        if use is None:
            return None
        note = self._current(wanted, manifest, source)
        if note is None or not self._sound(self.layout.manifest(wanted.address), manifest):
            use.end()
            return None
        self._asked_for(manifest)
        path = self.layout.snapshots / manifest.snapshot / manifest.name
        return Got(path, manifest, Seconds(self._clock.now() - began), hit=True, transferred=0, note=note, use=use)

    def _current(self, wanted: Wanted, manifest: Manifest, source: Source) -> str | None:
        """ "": it is what the source has now; None: it is not; else why that is not known."""
        if wanted.digest is not None:
            return ""
        try:
            return "" if source.describe().version == manifest.version else None
        except (CacheError, Retryable) as error:
            return f"{source.shown()} could not be asked whether this is its newest ({error})"

    def _sound(self, path: Path, manifest: Manifest) -> bool:
        if not publishing.whole(self.layout, manifest):
            return False
        if publishing.trusted(self.layout, manifest):
            return True
        if publishing.digest_of(self.layout.blob(manifest.digest)) != manifest.digest:
            return False
        publishing.trust(self.layout, path, manifest)
        return True

    def _asked_for(self, manifest: Manifest) -> None:
        heat = holding.read_heat(self.layout, manifest.snapshot)
        clock = inventory.clock_of(self.layout)
        holding.write_heat(self.layout, manifest.snapshot, asked(heat, self._clock.now(), clock))

    def fetch(self, wanted: Wanted, source: Source, progress: Progress) -> Got:
        """The weights, fetched if need be. Raises a CacheError; FolderTaken while another process writes here."""
        self.layout.make()
        there = self.hit(wanted, source)
        if there is not None:
            return there
        with self._writing(self.layout):
            there = self.hit(wanted, source)
            return self._fetched(wanted, source, progress) if there is None else there

    def settle(self, wanted: Wanted) -> None:
        """Sync what was fetched, when nobody waits for it any more. Leaves it to the next one while another writes."""
        with contextlib.suppress(FolderTaken), self._writing(self.layout):
            publishing.settle(self.layout, wanted.address)

    def _fetched(self, wanted: Wanted, source: Source, progress: Progress) -> Got:
        began = self._clock.now()
        self._condemn_unsound(wanted)
        with self.changing:
            self.layout.empty_trash()
            shared = self._shared(wanted, source)
            if shared is not None:
                return self._got(shared, began, 0)
        folder = self.layout.partial / key(wanted.address)
        try:
            described, got = self._right_content(wanted, source, folder, progress)
            manifest = self._manifest(source, (described, got), folder / "data", began)
            with self.changing:
                publishing.publish(self.layout, folder / "data", manifest, wanted.address)
                delete(folder)
                return self._got(manifest, began, got.transferred)
        finally:
            with self.changing:
                self._promised.pop(folder, None)

    def _right_content(
        self, wanted: Wanted, source: Source, folder: Path, progress: Progress
    ) -> tuple[Described, Fetched]:
        tries = 0
        while True:
            described, got = self._content(source, folder, progress)
            expected = wanted.digest or described.digest
            if expected is None or got.digest == expected:
                return described, got
            delete(folder)
            tries += 1
            if tries >= DIGEST_TRIES:
                raise DigestMismatch(expected, got.digest, source.shown())

    def _condemn_unsound(self, wanted: Wanted) -> None:
        """What the address had, if it is no longer what was verified: aside, so that only that blob is fetched anew."""
        manifest = read_manifest(self.layout.manifest(wanted.address))
        if (
            manifest is not None
            and self.layout.blob(manifest.digest).exists()
            and not self._sound(self.layout.manifest(wanted.address), manifest)
        ):
            with self.changing:
                publishing.condemn(self.layout, manifest.digest)

    def _shared(self, wanted: Wanted, source: Source) -> Manifest | None:
        """The same digest came from another address before: nothing to fetch."""
        if wanted.digest is None:
            return None
        for path, manifest in manifests(self.layout):
            if manifest.digest == wanted.digest and self._sound(path, manifest):
                name = Path(source.shown()).name or manifest.name
                same = replace(manifest, source=source.shown(), name=name, snapshot=snapshot_id(name, manifest.digest))
                publishing.publish(self.layout, None, same, wanted.address)
                return same
        return None

    def _manifest(self, source: Source, content: tuple[Described, Fetched], data: Path, began: Instant) -> Manifest:
        described, got = content
        now = self._clock.now()
        return Manifest(
            source=source.shown(), version=described.version, snapshot=snapshot_id(described.name, got.digest),
            name=described.name, bytes=described.bytes, digest=got.digest, chunk_bytes=self._fetching.chunk_bytes,
            chunks=got.chunks, fetched_at=now, fetch_seconds=Seconds(max(0.0, now - began)),
            written_ns=data.stat().st_mtime_ns, boot=boot(), synced=False,
        )  # fmt: skip

    def _got(self, manifest: Manifest, began: Instant, transferred: int) -> Got:
        use = holding.take_use(self.layout, manifest.snapshot)
        assert use is not None, "published under the lock, so nobody evicted it"
        self._asked_for(manifest)
        path = self.layout.snapshots / manifest.snapshot / manifest.name
        seconds = Seconds(self._clock.now() - began)
        return Got(path, manifest, seconds, hit=False, transferred=transferred, note="", use=use)

    def _content(self, source: Source, folder: Path, progress: Progress) -> tuple[Described, Fetched]:
        """The content of one version; planned anew when it changes meanwhile."""
        moved = 0
        while True:
            described = self._described(source)
            self._make_room(described, folder)
            progress.begins(described.bytes)
            try:
                return described, self._transfer(source, described, folder, progress)
            except NoSpace:
                delete(folder)
                raise
            except VersionMoved:
                delete(folder)
                moved += 1
                if moved > self._fetching.restarts:
                    raise SourceChanged(source.shown(), moved) from None

    def _described(self, source: Source) -> Described:
        return self._patiently(source, 0, source.describe)

    def _transfer(self, source: Source, described: Described, folder: Path, progress: Progress) -> Fetched:
        chunks = spans(described.bytes, self._fetching.chunk_bytes)
        if described.ranges or not described.bytes:
            try:
                return self._ranged(source, described, folder, chunks, progress)
            except RangesIgnored:
                delete(folder)

        until = self._clock.now() + self._fetching.patience

        def verified(more: int) -> None:
            progress.verified(more)
            if self._clock.now() > until:
                raise late(source, self._fetching)

        def once() -> Fetched:
            progress.begins(described.bytes)
            with Partial(folder, described, self._fetching.chunk_bytes) as partial:
                got = fetch_stream(source, described, partial, self._fetching, verified)
                partial.seal()
                return got

        return self._patiently(source, len(chunks), once)

    def _ranged(
        self, source: Source, described: Described, folder: Path, chunks: tuple[Span, ...], progress: Progress
    ) -> Fetched:
        with Partial(folder, described, self._fetching.chunk_bytes) as partial:
            fetch = Fetch(source, described, partial, self._fetching, self._clock)
            got = fetch.run(chunks, progress.verified)
            partial.seal()
            return got

    def _patiently(self, source: Source, chunks: int, once: Callable[[], T]) -> T:
        patience = Patience(self._fetching, chunks)
        while True:
            try:
                return once()
            except Retryable as error:
                wanted = error.retry_after if isinstance(error, Throttled) else None
                wait = patience.failed(wanted, random.random())  # noqa: S311 - jitter, no secret
                if wait is None:
                    raise SourceUnavailable(source.shown(), f"{error} (and no retries are left)") from error
                threading.Event().wait(wait)

    def _make_room(self, described: Described, folder: Path) -> None:
        """Before the first byte: what it will take is there, or is made, or the fetch is refused with the numbers."""
        with self.changing:
            needed = Bytes(max(0, described.bytes - allocated(folder / "data")))
            self._promised.pop(folder, None)
            others = sum(max(0, size - allocated(of / "data")) for of, size in self._promised.items())
            there = inventory.cached(self.layout)
            space = inventory.space(self.layout, self._room)
            space = replace(space, used=Bytes(space.used + others))
            gone = admit(needed, space, inventory.entries(self.layout, there), self._room)
            by_digest = inventory.by_digest(there)
            for entry in gone:
                inventory.evict(self.layout, by_digest[entry.digest])
            if gone:
                inventory.move_clock(self.layout, clock_after(inventory.clock_of(self.layout), gone, self._room.sla))
                self.layout.empty_trash()
            self._promised[folder] = described.bytes
