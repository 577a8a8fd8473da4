"""The weight cache of a node: fetch or hit, and never bytes that were not verified.

A hit takes no lock but a use. Everything that writes holds the folder's lock (`holding.writing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from coldstart.cache import holding, inventory, publishing
from coldstart.cache.filling import Filled, Filling, listed
from coldstart.cache.layout import BLOCK, Layout, delete, key, out_of_room, snapshot_id
from coldstart.cache.making_room import Rooms
from coldstart.cache.manifests import boot, manifests, read_manifest
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.core.cache.content import Kept, Manifest, digest_of
from coldstart.core.cache.errors import CacheError, FolderTaken, Retryable
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from coldstart.core.cache.quotas import Charge
from coldstart.core.cache.room import asked
from coldstart.ports import Source
from events.clock import Clock
from events.units import Bytes, Instant, Seconds

__all__ = ("Got", "Progress", "Wanted", "WeightCache", "Writing")  # what is asked and given, beside who gives it

Writing = Callable[[Layout], AbstractContextManager[None]]
"""How a cache becomes its folder's one writer for a while."""


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
        self._clock = clock
        self._writing = writing
        self._rooms = Rooms(self.layout, room)
        self.changing = self._rooms.changing

    def keep(self, digests: frozenset[str]) -> None:
        """From now on these contents, and no others, are evicted for room only where somebody waits for it and all else
        is not enough, as long as this process lives."""
        self._rooms.kept = digests

    def running(self) -> frozenset[Path]:
        """Partial files of the fetches that run."""
        return self._rooms.running()

    def hit(self, wanted: Wanted, source: Source) -> Got | None:
        """The weights, if they are there and what is wanted. A source that cannot be asked does not break a hit."""
        began = self._clock.now()
        manifest = read_manifest(self.layout.manifest(wanted.identity))
        if manifest is None or (wanted.digest is not None and manifest.digest != wanted.digest):
            return None
        use = holding.take_use(self.layout, manifest.snapshot)
        if use is None:
            return None
        note = self._current(wanted, manifest, source)
        if note is None or not self._sound(self.layout.manifest(wanted.identity), manifest):
            use.end()
            return None
        self._asked_for(manifest)
        seconds = Seconds(self._clock.now() - began)
        return Got(self._path(manifest), manifest, seconds, hit=True, transferred=0, note=note, use=use)

    def _path(self, manifest: Manifest) -> Path:
        folder = self.layout.snapshots / manifest.snapshot
        return folder / manifest.main if manifest.main else folder

    def _current(self, wanted: Wanted, manifest: Manifest, source: Source) -> str | None:
        """ "": it is what the source has now; None: it is not; else why that is not known."""
        if wanted.digest is not None or source.fixed() == manifest.version:
            return ""
        try:
            return "" if listed(wanted, source).version == manifest.version else None
        except (CacheError, Retryable) as error:
            return f"{source.shown()} could not be asked whether this is its newest ({error})"

    def _sound(self, path: Path, manifest: Manifest) -> bool:
        if not publishing.whole(self.layout, manifest):
            return False
        doubtful = [kept for kept in manifest.files if not publishing.trusted(self.layout, manifest, kept)]
        if any(publishing.digest_of(self.layout.blob(kept.digest)) != kept.digest for kept in doubtful):
            return False
        if doubtful:
            publishing.trust(self.layout, path, manifest)
        return True

    def _asked_for(self, manifest: Manifest) -> None:
        heat = holding.read_heat(self.layout, manifest.snapshot)
        clock = inventory.clock_of(self.layout)
        with contextlib.suppress(OSError):  # a full disk: what is here is had all the same
            holding.write_heat(self.layout, manifest.snapshot, asked(heat, self._clock.now(), clock))

    def fetch(self, wanted: Wanted, source: Source, progress: Progress) -> Got:
        """The weights, fetched if need be. Raises a CacheError; FolderTaken while another process writes here."""
        try:
            self.layout.make()
            there = self.hit(wanted, source)
            if there is not None:
                return there
            with self._writing(self.layout), self._rooms.turn(wanted.identity):
                there = self.hit(wanted, source)
                return self._fetched(wanted, source, progress) if there is None else there
        except OSError as error:  # at whichever write
            full = out_of_room(error, self.layout.root, BLOCK)
            if full is None:
                raise
            raise full from error

    def settle(self, wanted: Wanted) -> None:
        """Sync what was fetched, when nobody waits for it any more. Leaves it to the next one while another writes."""
        with contextlib.suppress(FolderTaken), self._writing(self.layout):
            publishing.settle(self.layout, wanted.identity)

    def _fetched(self, wanted: Wanted, source: Source, progress: Progress) -> Got:
        began = self._clock.now()
        self._condemn_unsound(wanted)
        with self.changing:
            self.layout.empty_trash()
            shared = self._shared(wanted, source, awaited=progress.awaited)
            if shared is not None:
                return self._got(shared, began, 0)
        try:
            filling = Filling(self.layout, self._rooms, self._fetching, self._clock)
            filled = filling.run(wanted, source, progress)
            with self.changing:
                manifest = self._manifest(wanted, source, filled, began)
                publishing.publish(self.layout, manifest, wanted.identity)
                for folder in filled.folders.values():
                    delete(folder)
                return replace(self._got(manifest, began, filled.transferred), times=filling.watch.times())
        finally:
            self._rooms.release(wanted.identity)

    def _condemn_unsound(self, wanted: Wanted) -> None:
        """What the address had, if it is no longer what was verified: aside, so that only that blob is fetched anew."""
        manifest = read_manifest(self.layout.manifest(wanted.identity))
        for kept in () if manifest is None else manifest.files:
            blob = self.layout.blob(kept.digest)
            if (
                manifest is not None
                and blob.exists()
                and not publishing.trusted(self.layout, manifest, kept)
                and publishing.digest_of(blob) != kept.digest
            ):
                with self.changing:
                    publishing.condemn(self.layout, kept.digest)

    def _shared(self, wanted: Wanted, source: Source, *, awaited: bool) -> Manifest | None:
        """The same digest came from another address before: nothing to fetch."""
        if wanted.digest is None:
            return None
        for path, manifest in manifests(self.layout):
            if manifest.digest == wanted.digest and self._sound(path, manifest):
                same = replace(_called(manifest, source.shown()), place=key(wanted.address))
                blobs = tuple((kept.digest, int(kept.bytes)) for kept in same.files)
                self._rooms.charge(wanted.identity, Charge(source.shown(), Bytes(0), 0, blobs), awaited=awaited)
                self._rooms.release(wanted.identity)
                publishing.publish(self.layout, same, wanted.identity)
                return same
        return None

    def _manifest(self, wanted: Wanted, source: Source, filled: Filled, began: Instant) -> Manifest:
        """The files that came become blobs."""
        now, listing = self._clock.now(), filled.listing
        files = tuple(self._adopted(kept, filled.folders[kept.name] / "data") for kept in filled.files)
        digest = digest_of(files, listing.main)
        return Manifest(
            source=source.shown(), place=key(wanted.address), version=listing.version,
            snapshot=snapshot_id(listing.main, digest),
            main=listing.main, digest=digest, chunk_bytes=self._fetching.chunk_bytes, files=files, fetched_at=now,
            fetch_seconds=Seconds(max(0.0, now - began)), boot=boot(), synced=False,
        )  # fmt: skip

    def _adopted(self, kept: Kept, data: Path) -> Kept:
        if not data.exists():
            return kept
        return replace(kept, written_ns=publishing.adopt(self.layout, data, kept.digest))

    def _got(self, manifest: Manifest, began: Instant, transferred: int) -> Got:
        use = holding.take_use(self.layout, manifest.snapshot)
        assert use is not None, "published under the lock, so nobody evicted it"
        self._asked_for(manifest)
        seconds = Seconds(self._clock.now() - began)
        return Got(self._path(manifest), manifest, seconds, hit=False, transferred=transferred, note="", use=use)


def _called(manifest: Manifest, source: str) -> Manifest:
    """The same content from another address; a single file is called as it is there."""
    if not manifest.main or len(manifest.files) > 1:
        return replace(manifest, source=source)
    name = Path(source).name or manifest.main
    files = (replace(manifest.files[0], name=name),)
    return replace(manifest, source=source, main=name, files=files, snapshot=snapshot_id(name, manifest.digest))
