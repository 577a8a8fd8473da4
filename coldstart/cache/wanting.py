"""What is asked of the weight cache, what it gives, and who follows how far it has come."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from coldstart.cache.holding import Use
from coldstart.core.cache.content import Manifest
from coldstart.core.cache.wanted import Wanted
from events.types.caches import FetchTimes
from events.units import Seconds

__all__ = ("Got", "Progress", "Wanted")  # what is asked and given together


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
    times: FetchTimes | None = None
    """Of a fetch."""


class Progress:
    """Who follows a fetch; does nothing here."""

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it, or it is ahead of demand."""
        return True

    def begins(self, total: int) -> None:
        """A fetch of so many bytes begins, or begins anew."""

    def verified(self, more: int) -> None:
        """So many more bytes are verified."""

    def check(self) -> None:
        """Asked several times a second while nothing comes: raises where the fetch is to end."""

    def pause(self, seconds: Seconds) -> None:
        """Wait before the next try, or raise as `check` does."""
        threading.Event().wait(seconds)
