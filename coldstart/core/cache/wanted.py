"""What is asked of the weight cache, as values: an address, which of its files, and how its source is spoken with."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """How to speak with a source. Secrets are named, never held: ``env:NAME`` or ``file:/path``."""

    credentials: str | None = None
    """A reference to the secret. Absent: what the store's usual environment variables say."""
    headers: tuple[tuple[str, str], ...] = ()
    """Of HTTP requests: name, and a reference to the value."""
    endpoint: str | None = None
    """Where the store or hub is, if not where it usually is."""
    region: str | None = None
    """Of the store."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to fetch. With a digest, the source is not asked at all on a hit."""

    address: str
    digest: str | None = None
    include: tuple[str, ...] = ()
    """Patterns of names; empty: all files. Rules: `coldstart.core.cache.selection.fits`."""
    exclude: tuple[str, ...] = ()
    access: Access = Access()

    @property
    def identity(self) -> str:
        """Names what is asked for: the address, and which of its files."""
        if not self.include and not self.exclude:
            return self.address
        return json.dumps([self.address, sorted(self.include), sorted(self.exclude)])


@dataclass(frozen=True, slots=True)
class DeclaredWeights:
    """What a model's declaration says of weights."""

    model: Wanted
    cache: bool | None
    """Through the node's cache or not; None: as the address is remote or local."""
    adapters: tuple[tuple[str, Wanted], ...] = ()
    """LoRA adapters by name."""
