"""Reading blobs anew, slowly: bits rot, and a disk does not tell. Only what is wrong is put aside."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from coldstart.cache import publishing
from coldstart.cache.layout import Layout, write_soon
from coldstart.cache.manifests import manifests
from coldstart.cache.warming import resident
from coldstart.core.cache.content import Kept

_HOT = 0.1
"""Share of pages in memory above which a file is somebody's: scrubbing leaves its pages where they are. A choice."""


def blobs(layout: Layout) -> list[tuple[Kept, int]]:
    """Every blob that a manifest names, each once, in the order of their digests, with the length of its chunks."""
    found = {kept.digest: (kept, manifest.chunk_bytes) for _, manifest in manifests(layout) for kept in manifest.files}
    return [found[digest] for digest in sorted(found)]


def after_mark(layout: Layout, all_blobs: list[tuple[Kept, int]]) -> list[tuple[Kept, int]]:
    """Beginning behind the one that was read last, also before a restart, so that each has its turn."""
    try:
        mark = (layout.root / "scrubbed").read_text(encoding="ascii").strip()
    except OSError:
        mark = ""
    return sorted(all_blobs, key=lambda one: (one[0].digest <= mark, one[0].digest))


def scrub(layout: Layout, kept: Kept, chunk_bytes: int, pause: Callable[[int], bool]) -> bool | None:
    """Whether a blob is what it was; None: it went meanwhile, or `pause(bytes)` said to end. Blocking."""
    path = layout.blob(kept.digest)
    hot = (resident(path) or 0.0) > _HOT
    try:
        with path.open("rb", buffering=0) as file:
            right = _compare(file.fileno(), kept, chunk_bytes, pause)
            if not hot and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except FileNotFoundError:
        return None
    if right is not None:
        write_soon(layout.root / "scrubbed", kept.digest.encode())
    return right


def _compare(descriptor: int, kept: Kept, chunk_bytes: int, pause: Callable[[int], bool]) -> bool | None:
    if os.fstat(descriptor).st_size != kept.bytes:
        return False
    buffer = memoryview(bytearray(chunk_bytes))
    for index, wanted in enumerate(kept.chunks):
        got = os.preadv(descriptor, [buffer], index * chunk_bytes)
        if blake3(buffer[:got]).hexdigest() != wanted:
            return False
        if not pause(got):
            return None
    return True


def put_aside(layout: Layout, digest: str, changing: threading.RLock) -> bool:
    """Quarantine a blob whose content is wrong, after one more look under the lock; whether it was so."""
    with changing:
        path = layout.blob(digest)
        if not path.exists() or publishing.digest_of(path) == digest:
            return False
        publishing.condemn(layout, digest)
        return True


def clear_scratch(layout: Layout, older: float) -> int:
    """Half-written small files that a crash left (their names begin with a dot), if older than this instant."""
    count = 0
    for folder in (layout.root, layout.manifests, layout.pins, layout.heat):
        for path in folder.glob(".*"):
            count += _clear(path, older)
    return count


def _clear(path: Path, older: float) -> bool:
    try:
        if not path.is_file() or path.stat().st_mtime > older:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True
