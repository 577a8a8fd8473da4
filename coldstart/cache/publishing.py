"""Verified content becomes weights: blob, snapshot of hard links, manifest; in this order, so that a crash shows
nothing that is not whole."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from coldstart.cache.layout import Layout
from coldstart.cache.manifests import boot, manifests, read_manifest, write_manifest
from coldstart.core.cache.content import Manifest

_PIECE = 8 << 20


def publish(layout: Layout, data: Path | None, manifest: Manifest, address: str) -> None:
    """`data`: a sealed file that becomes the blob; None: the blob is there."""
    blob = layout.blob(manifest.digest)
    if data is not None:
        blob.parent.mkdir(parents=True, exist_ok=True)
        data.replace(blob)
    link(layout, manifest)
    write_manifest(layout.manifest(address), manifest)


def link(layout: Layout, manifest: Manifest) -> None:
    """The snapshot's folder with its hard link to the blob; made anew where it links to something else."""
    blob, folder = layout.blob(manifest.digest), layout.snapshots / manifest.snapshot
    there = folder / manifest.name
    if there.exists() and there.stat().st_ino == blob.stat().st_ino:
        return
    layout.discard(folder)
    scratch = layout.trash / f"{manifest.snapshot}.new"
    layout.discard(scratch)
    scratch.mkdir()
    os.link(blob, scratch / manifest.name)
    scratch.rename(folder)


def whole(layout: Layout, manifest: Manifest) -> bool:
    """Whether the snapshot is there, with its length and still read-only. Cheap: asked at each hit."""
    try:
        told = (layout.snapshots / manifest.snapshot / manifest.name).stat()
        blob = layout.blob(manifest.digest).stat()
    except FileNotFoundError:
        return False
    return told.st_ino == blob.st_ino and told.st_size == manifest.bytes and not told.st_mode & 0o222


def trusted(layout: Layout, manifest: Manifest) -> bool:
    """Whether the bytes are those that were verified: nobody wrote since, and they are on the disk or of this boot."""
    unchanged = layout.blob(manifest.digest).stat().st_mtime_ns == manifest.written_ns
    return unchanged and (manifest.synced or manifest.boot == boot())


def trust(layout: Layout, path: Path, manifest: Manifest) -> None:
    """The blob was read and is right: say so."""
    written = layout.blob(manifest.digest).stat().st_mtime_ns
    write_manifest(path, replace(manifest, written_ns=written, boot=boot(), synced=False))


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
    blob = layout.blob(manifest.digest)
    descriptor = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    write_manifest(path, replace(manifest, synced=True))


def condemn(layout: Layout, digest: str) -> None:
    """The blob is not what it should be: aside with it, and nothing names it any more. Others are not touched."""
    for path, manifest in manifests(layout):
        if manifest.digest == digest:
            path.unlink(missing_ok=True)
            layout.discard(layout.snapshots / manifest.snapshot)
    blob = layout.blob(digest)
    if blob.exists():
        blob.replace(layout.quarantine / blob.name)
