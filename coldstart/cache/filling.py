"""The content of one version of an address, file by file: what is there already is not fetched, what is wrong is."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from coldstart.cache import publishing
from coldstart.cache.fetching import Fetch, Part, Told, late
from coldstart.cache.layout import Layout, delete, key
from coldstart.cache.making_room import Rooms
from coldstart.cache.manifests import manifests
from coldstart.cache.partial import Partial
from coldstart.cache.streaming import fetch_stream
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.watch import Watch
from coldstart.core.cache.content import Described, Kept, Listing, digest_of
from coldstart.core.cache.errors import (
    DigestMismatch,
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
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.quotas import Charge
from coldstart.core.cache.selection import INDEX, INDEX_BYTES_MOST, check_index, plan, select
from coldstart.ports import Source
from events.clock import Clock
from events.units import Bytes, Instant

T = TypeVar("T")

DIGEST_TRIES = 2
"""Wrong content is fetched once more, since it may have been broken on its way; then it is the source's."""

FILES_AT_ONCE = 64
"""Of a set: each takes two descriptors, and the usual bound of a process is 1,024. A choice."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Verified files, by what they are called: each a blob, or a sealed partial file in the folder named here."""

    listing: Listing
    files: tuple[Kept, ...]
    folders: Mapping[str, Path]
    transferred: int


class Filling:
    """One fetch of one address. `run` once."""

    def __init__(self, layout: Layout, rooms: Rooms, policy: FetchPolicy, clock: Clock) -> None:
        self._layout = layout
        self._rooms = rooms
        self._policy = policy
        self._clock = clock
        self._transferred = 0
        self.watch = Watch(clock)

    def run(self, wanted: Wanted, source: Source, progress: Progress) -> Filled:
        """All files, verified. Raises a CacheError; what was verified until then is kept."""
        self._wanted, self._source, self._progress = wanted, source, progress
        tries = 0
        while True:
            listing, files = self._version()
            wrong = self._wrong(listing, files)
            if wrong is None:
                self._check_indices(listing, files)
                folders = {file.name: self._folder(listing, file.name) for file in listing.files}
                return Filled(listing, tuple(files[name] for name in sorted(files)), folders, self._transferred)
            tries += 1
            if tries >= DIGEST_TRIES:
                raise wrong

    def _version(self) -> tuple[Listing, dict[str, Kept]]:
        """The files of one version; planned anew when one changes meanwhile."""
        moved = 0
        while True:
            listing = self._patiently(0, lambda: listed(self._wanted, self._source))
            self._rooms.claim(
                self._wanted.identity, frozenset(self._folder(listing, file.name) for file in listing.files)
            )
            files = self._there(listing)
            missing = [file for file in listing.files if file.name not in files]
            folders = {self._folder(listing, file.name): file.bytes for file in missing}
            charge, awaited = self._charge(missing, files), self._progress.awaited
            self._rooms.promise(self._wanted.identity, folders, charge, awaited=awaited)
            self._progress.begins(sum(file.bytes for file in listing.files))
            for kept in files.values():
                self._progress.verified(kept.bytes)
            try:
                for batch in _batches(missing, self._policy.chunk_bytes):
                    files.update(self._transfer(listing, batch))
            except NoSpace:
                self._forget(listing, missing)
                raise
            except VersionMoved:
                self._forget(listing, [file for file in missing if self._whole(listing, file) is None])
                moved += 1
                if moved > self._policy.restarts:
                    raise SourceChanged(self._source.shown(), moved) from None
            else:
                return listing, files

    def _charge(self, missing: list[Described], files: dict[str, Kept]) -> Charge:
        """What of its quotas the address will take."""
        blobs = tuple({kept.digest: (kept.digest, int(kept.bytes)) for kept in files.values()}.values())
        return Charge(self._source.shown(), Bytes(sum(file.bytes for file in missing)), len(missing), blobs)

    def _folder(self, listing: Listing, name: str) -> Path:
        only = len(listing.files) == 1 and listing.main == name
        return self._layout.partial_of(self._wanted.identity, "" if only else name)

    def _forget(self, listing: Listing, files: list[Described]) -> None:
        for file in files:
            delete(self._folder(listing, file.name))

    def _there(self, listing: Listing) -> dict[str, Kept]:
        """Files that need not be fetched: blobs of that digest, or of that version of that name, from whatever model;
        and those that an earlier try has whole."""
        place, known, same = key(self._wanted.address), dict[str, Kept](), dict[tuple[str, str, int], Kept]()
        vouched = set[tuple[str, int]]()
        for _, manifest in manifests(self._layout):
            vouched |= publishing.vouched(manifest)
            known.update((kept.digest, kept) for kept in manifest.files)
            if manifest.place == place:
                same.update(((kept.name, kept.version, kept.bytes), kept) for kept in manifest.files)
        found: dict[str, Kept] = {}
        for file in listing.files:
            digest = file.digest
            old = same.get((file.name, file.version, file.bytes))
            if digest is None and old is not None and file.version:
                digest = old.digest
            if digest is not None and publishing.sound_blob(self._layout, digest, vouched):
                blob = self._layout.blob(digest).stat()
                chunks = known[digest].chunks if digest in known else ()
                found[file.name] = Kept(file.name, file.bytes, file.version, digest, chunks, blob.st_mtime_ns)
            elif (kept := self._whole(listing, file)) is not None:
                found[file.name] = kept
        return found

    def _whole(self, listing: Listing, file: Described) -> Kept | None:
        """A partial file that has all, and was not written to since that was verified."""
        folder = self._folder(listing, file.name)
        told = Partial(folder, file, self._policy.chunk_bytes).whole()
        if told is None:
            return None
        try:
            data = (folder / "data").stat()
        except FileNotFoundError:
            return None
        if data.st_mtime_ns != told.written_ns or data.st_size != file.bytes:
            return None
        return Kept(file.name, file.bytes, file.version, told.digest, told.chunks, told.written_ns)

    def _wrong(self, listing: Listing, files: Mapping[str, Kept]) -> DigestMismatch | None:
        """What is not what was asked for, or what the source vouched for. It is deleted."""
        wrong: DigestMismatch | None = None
        for file in listing.files:
            expected, got = file.digest, files[file.name].digest
            if expected is not None and got != expected:
                self._forget(listing, [file])
                wrong = wrong or DigestMismatch(expected, got, f"{self._source.shown()} ({file.name})")
        if wrong is None and self._wanted.digest is not None:
            got = digest_of(files.values(), listing.main)
            if got != self._wanted.digest:
                self._forget(listing, list(listing.files))
                wrong = DigestMismatch(self._wanted.digest, got, self._source.shown())
        return wrong

    def _check_indices(self, listing: Listing, files: Mapping[str, Kept]) -> None:
        """A safetensors index whose shards are not all there makes no model."""
        names = set(files)
        for kept in files.values():
            if kept.name.endswith(INDEX) and len(names) > 1 and kept.bytes <= INDEX_BYTES_MOST:
                blob, data = self._layout.blob(kept.digest), self._folder(listing, kept.name) / "data"
                check_index(kept.name, (data if data.exists() else blob).read_bytes(), names, self._source.shown())

    def _transfer(self, listing: Listing, batch: list[Described]) -> dict[str, Kept]:
        """Fetch these files side by side, those without ranges one after the other."""
        kept: dict[str, Kept] = {}
        ranged = [file for file in batch if file.ranges or not file.bytes]
        if ranged:
            with contextlib.suppress(RangesIgnored):
                self._ranged(listing, ranged, kept)
        for file in batch:
            if file.name not in kept:
                kept[file.name] = self._streamed(listing, file)
        return kept

    def _ranged(self, listing: Listing, files: list[Described], kept: dict[str, Kept]) -> None:
        with self._opened(listing, files) as parts:
            fetch = Fetch(self._source, parts, self._policy, self._clock, self.watch)

            def whole(part: Part, digest: str) -> None:
                kept[part.of.name] = _sealed(part, digest)

            try:
                fetch.run(
                    plan(files, self._policy.chunk_bytes), Told(self._progress.verified, whole, self._progress.check)
                )
            finally:
                self._transferred += fetch.transferred

    @contextlib.contextmanager
    def _opened(self, listing: Listing, files: list[Described]) -> Iterator[tuple[Part, ...]]:
        with contextlib.ExitStack() as stack:
            yield tuple(
                Part(
                    file, stack.enter_context(Partial(self._folder(listing, file.name), file, self._policy.chunk_bytes))
                )
                for file in files
            )

    def _streamed(self, listing: Listing, file: Described) -> Kept:
        until = Instant(self._clock.now() + self._policy.patience)

        def verified(more: int) -> None:
            self._transferred += more
            self._progress.verified(more)
            if self._clock.now() > until:
                raise late(self._source, self._policy)

        def once() -> Kept:
            delete(self._folder(listing, file.name))
            if len(listing.files) == 1:
                self._progress.begins(file.bytes)
            with self._opened(listing, [file]) as (part,):
                return _sealed(part, fetch_stream(self._source, part, self._policy, verified, self.watch))

        return self._patiently(len(spans(file.bytes, self._policy.chunk_bytes)), once)

    def _patiently(self, chunks: int, once: Callable[[], T]) -> T:
        patience = Patience(self._policy, chunks)
        while True:
            try:
                return once()
            except Retryable as error:
                wanted = error.retry_after if isinstance(error, Throttled) else None
                wait = patience.failed(wanted, random.random())  # noqa: S311 - jitter, no secret
                if wait is None:
                    why = f"{error} (and no retries are left)"
                    raise SourceUnavailable(self._source.shown(), why) from error
                self._progress.pause(wait)


def _sealed(part: Part, digest: str) -> Kept:
    part.partial.seal()
    told = part.partial.mark_whole(digest)
    return Kept(part.of.name, part.of.bytes, part.of.version, digest, told.chunks, told.written_ns)


def _batches(files: list[Described], chunk_bytes: int) -> Iterator[list[Described]]:
    """Small files first, then in the order of names."""
    ordered = sorted(files, key=lambda file: (file.bytes > chunk_bytes, file.name))
    for at in range(0, len(ordered), FILES_AT_ONCE):
        yield ordered[at : at + FILES_AT_ONCE]


def listed(wanted: Wanted, source: Source) -> Listing:
    """What the source has of what is wanted. Raises as `Source.describe`, and as `select`.

    The digest that is wanted of a single file is that file's, whatever the source says.
    """
    listing = select(source.describe(), wanted.include, wanted.exclude, source.shown())
    if wanted.digest is None or len(listing.files) > 1 or not listing.main:
        return listing
    return replace(listing, files=(replace(listing.files[0], digest=wanted.digest),))
