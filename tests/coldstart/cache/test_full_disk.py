"""The disk is full at any write of a fetch: a typed error, nothing half to be seen, and the next fetch is right."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coldstart.cache.wanting import Got
from coldstart.core.cache.errors import CacheError
from tests.coldstart.cache.conftest import Cache
from tests.support.flaky_origin import Origin

WRITES = ("write", "pwrite", "posix_fallocate", "link", "mkdir")
MOST = 400
"""More writes than a fetch of eleven chunks makes."""


class Disk:
    """Counts writes below a folder and refuses the one of a number, and all after it."""

    def __init__(self, full_at: int) -> None:
        self.left = full_at
        self.refused = False

    def check(self) -> None:
        """One more write."""
        self.left -= 1
        if self.left < 0:
            self.refused = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def full_at(number: int) -> Iterator[Disk]:
    """A disk that has no room from its write of this number on."""
    disk = Disk(number)

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            disk.check()
            return real(*given, **named)

        return act

    real_open = Path.open

    def opening(path: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
        if "w" in mode or "x" in mode or "a" in mode:
            disk.check()
        return real_open(path, mode, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(os, name, refusing(getattr(os, name)))
        patch.setattr(Path, "open", opening)
        yield disk


def fetched(cache: Cache, origin: Origin) -> Got | CacheError:
    """What a fetch gives, or why not; any other exception is a fault."""
    try:
        return cache.fetch(origin.url)
    except CacheError as error:
        return error


def test_at_every_write(tmp_path: Path, origin: Origin, content: bytes) -> None:
    """One after the other, each in a folder of its own, until a fetch needs no more writes than there is room for."""
    for number in range(MOST):
        cache = Cache(tmp_path / str(number))
        with full_at(number) as disk:
            got = fetched(cache, origin)
        if isinstance(got, CacheError):
            assert "space" in str(got).lower()
            assert disk.refused
        else:
            assert got.path.read_bytes() == content
        if not disk.refused:
            assert number > len(WRITES)
            return
        assert all(path.read_bytes() == content for path in cache.snapshots())
        assert cache.fetch(origin.url).path.read_bytes() == content
    raise AssertionError(f"a fetch makes more than {MOST} writes")
