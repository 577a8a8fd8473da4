"""Verified content becomes weights: blobs, snapshot of hard links, manifest; in this order, so that a crash shows
nothing that is not whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from coldstart.cache.layout import Layout
from coldstart.cache.manifests import boot, manifests, read_manifest, write_manifest
from coldstart.core.cache.content import Kept, Manifest

_PIECE = 1 << 20
"""Read at once: fits the second-level cache, so that the digest reads it from there."""


def adopt(layout: Layout, data: Path, digest: str) -> int:
    """A sealed and verified file becomes the blob, unless a sound one is there already; the blob's time of change."""
    blob = layout.blob(digest)
    if blob.exists():
        known = {one for _, manifest in manifests(layout) for one in vouched(manifest)}
        if sound_blob(layout, digest, known):
            layout.discard(data)
            return blob.stat().st_mtime_ns
        condemn(layout, digest)
    blob.parent.mkdir(parents=True, exist_ok=True)
    data.replace(blob)
    return blob.stat().st_mtime_ns


def vouched(manifest: Manifest) -> set[tuple[str, int]]:
    """Digest and time of change of the blobs whose bytes a manifest vouches for."""
    if not manifest.synced and manifest.boot != boot():
        return set()
    return {(kept.digest, kept.written_ns) for kept in manifest.files}


def sound_blob(layout: Layout, digest: str, known: AbstractSet[tuple[str, int]]) -> bool:
    """Whether the blob is there with the content of its name: `known` to be so (`vouched`), else by reading it."""
    try:
        written = layout.blob(digest).stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return (digest, written) in known or digest_of(layout.blob(digest)) == digest


def publish(layout: Layout, manifest: Manifest, address: str) -> None:
    """All its blobs are there: the snapshot, then the manifest."""
    link(layout, manifest)
    write_manifest(layout.manifest(address), manifest)


def link(layout: Layout, manifest: Manifest) -> None:
    """The snapshot's folder with its hard links to the blobs; made anew where it links to something else."""
    folder = layout.snapshots / manifest.snapshot
    if folder.is_dir() and all(_linked(layout, folder, kept) for kept in manifest.files):
        return
    layout.discard(folder)
    scratch = layout.trash / f"{manifest.snapshot}.new"
    layout.discard(scratch)
    for kept in manifest.files:
        place = scratch / kept.name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(layout.blob(kept.digest), place)
    scratch.rename(folder)


def _linked(layout: Layout, folder: Path, kept: Kept) -> bool:
    """Cheap: asked for each file at each hit."""
    try:
        told, blob = (folder / kept.name).stat(), layout.blob(kept.digest).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return told.st_ino == blob.st_ino and told.st_size == kept.bytes and not told.st_mode & 0o222


def whole(layout: Layout, manifest: Manifest) -> bool:
    """Whether the snapshot is there, each file with its length and still read-only."""
    folder = layout.snapshots / manifest.snapshot
    return all(_linked(layout, folder, kept) for kept in manifest.files)


def trusted(layout: Layout, manifest: Manifest, kept: Kept) -> bool:
    """Whether the bytes are those that were verified: nobody wrote since, and they are on the disk or of this boot."""
    unchanged = layout.blob(kept.digest).stat().st_mtime_ns == kept.written_ns
    return unchanged and (manifest.synced or manifest.boot == boot())


def trust(layout: Layout, path: Path, manifest: Manifest) -> None:
    """The blobs were read and are right: say so."""
    files = tuple(replace(kept, written_ns=layout.blob(kept.digest).stat().st_mtime_ns) for kept in manifest.files)
    write_manifest(path, replace(manifest, files=files, boot=boot(), synced=False))


def digest_of(path: Path) -> str:
    """SHA-256 of a file, ``sha256:…``, in bounded memory."""
    whole_file = hashlib.sha256()
    buffer = bytearray(_PIECE)
    with path.open("rb", buffering=0) as file:
        while more := file.readinto(buffer):
            whole_file.update(memoryview(buffer)[:more])
    return f"sha256:{whole_file.hexdigest()}"


def settle(layout: Layout, address: str) -> None:
    """Sync the bytes and say so in the manifest: off the way from the last byte to ready."""
    path = layout.manifest(address)
    manifest = read_manifest(path)
    if manifest is None or manifest.synced:
        return
    for kept in manifest.files:
        descriptor = os.open(layout.blob(kept.digest), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    write_manifest(path, replace(manifest, synced=True))


def condemn(layout: Layout, digest: str) -> None:
    """The blob is not what it should be: aside with it, and with the snapshots that link to it.

    Manifests stay, so that the next fetch has this blob anew, and only this.
    """
    for _, manifest in manifests(layout):
        if any(kept.digest == digest for kept in manifest.files):
            layout.discard(layout.snapshots / manifest.snapshot)
    blob = layout.blob(digest)
    if blob.exists():
        blob.replace(layout.quarantine / blob.name)
