"""What is asked of the weight cache, what it gives, and who follows how far it has come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coldstart.cache.holding import Use
from coldstart.core.cache.content import Manifest
from events.units import Seconds


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to fetch. With a digest, the source is not asked at all on a hit."""

    address: str
    digest: str | None = None
    include: tuple[str, ...] = ()
    """Patterns of names; empty: all files. Rules: `coldstart.core.cache.selection.fits`."""
    exclude: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Names what is asked for: the address, and which of its files."""
        if not self.include and not self.exclude:
            return self.address
        return json.dumps([self.address, sorted(self.include), sorted(self.exclude)])


@dataclass(frozen=True, slots=True)
class Got:
    """Weights that are there. `use` keeps them there until it is ended. `transferred`: bytes that the source gave."""

    path: Path
    """The file that an engine is given, or the folder of all."""
    manifest: Manifest
    seconds: Seconds
    hit: bool
    transferred: int
    note: str
    use: Use


class Progress:
    """Who follows a fetch; does nothing here."""

    def begins(self, total: int) -> None:
        """A fetch of so many bytes begins, or begins anew."""

    def verified(self, more: int) -> None:
        """So many more bytes are verified."""
