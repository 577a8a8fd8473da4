"""What starts need of the node's weight cache: weights with a use, and why they cannot be had."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from coldstart.cache.holding import Use
from coldstart.cache.wanting import Wanted
from coldstart.core.budget import Tier
from coldstart.core.cache.errors import (
    CacheError,
    DigestMismatch,
    NoSpace,
    SourceChanged,
    SourceRefused,
    TooLarge,
    UnsupportedSource,
)
from coldstart.core.cache.transfer import Transferred
from deploy.local.declared import Reason
from events.units import Bytes, Seconds

Listen = Callable[[Transferred | None], None]
"""Hears how a fetch gets on; None: it waits for its turn."""

_REASONS: tuple[tuple[type[CacheError], Reason], ...] = (
    (NoSpace, Reason.WEIGHTS_NO_SPACE), (TooLarge, Reason.WEIGHTS_NO_SPACE),
    (DigestMismatch, Reason.WEIGHTS_MISMATCH), (SourceChanged, Reason.WEIGHTS_MISMATCH),
    (SourceRefused, Reason.WEIGHTS_NOT_FOUND), (UnsupportedSource, Reason.INVALID_SPEC),
)  # fmt: skip


def reason_of(error: CacheError | OSError) -> Reason:
    """The reason of a start that failed for its weights."""
    named = (reason for kind, reason in _REASONS if isinstance(error, kind))
    return next(named, Reason.WEIGHTS_UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Had:
    """Weights that a replica may load. `tier`: where they were when it asked; `least`: what bringing them takes at
    least, None: unknown. The use is the holder's to `end`; processes that inherit its descriptor hold it too."""

    path: Path
    use: Use
    bytes: Bytes
    tier: Tier
    least: Seconds | None
    loaded: threading.Event = field(default_factory=threading.Event)
    """Set it when the engine has them: nobody need read ahead of it any more."""
    read: asyncio.Future[None] | None = None
    """Done when they are read into the page cache, as far as they will be; None: nobody reads them ahead."""

    def end(self) -> None:
        """Nobody loads or reads them here any more. Harmless twice."""
        self.loaded.set()
        self.use.end()


class OtherAgent(Protocol):
    """Another process of this node that writes to the folder."""

    async def fetch(self, wanted: Wanted, listen: Listen) -> bool:
        """Have it fetch; return when the weights are here. False: nobody answers. Raises a CacheError."""


class Keeper(Protocol):
    """The node's weights."""

    async def have(self, wanted: Wanted, listen: Listen) -> Had:
        """Have weights here, fetched if need be. Raises a CacheError or an OSError."""


class NoKeeper:
    """For a cluster without a cache."""

    async def have(self, wanted: Wanted, listen: Listen) -> Had:  # noqa: ARG002 - the port's shape
        """See `Keeper`."""
        raise UnsupportedSource(f"{wanted.address} needs a weight cache, and this cluster has none")
