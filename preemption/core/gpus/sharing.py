"""Fractions of a card with a hard limit of memory, with the semantics of HAMi's resources.

HAMi (a device plugin that limits CUDA's allocations inside each container) reads ``nvidia.com/gpu`` (how many parts),
``gpumem`` (MiB), ``gpumem-percentage`` and ``gpucores`` (percent). Its rules, kept here:

* no memory asked for is all of it, and 101 percent is how "not asked for" is written;
* all of the memory, or 100 percent of the cores, needs a card that nobody else is on;
* a share without cores has no limit of cores, and is refused where all cores are sold;
* a card takes at most ten sharers, unless its split count says otherwise.

Memory is a limit, cores are a weight: a card's memory is never sold twice (no overselling).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from preemption.core.gpus.shapes import MILLI

SPLIT_COUNT: Final = 10
"""HAMi's default ``deviceSplitCount``."""

UNSET_PERCENT: Final = 101
"""How HAMi writes "no percentage was given"."""

MEBIBYTE: Final = 1 << 20


class Refusal(StrEnum):
    """Why a share does not go onto a card."""

    IN_USE = "needs_an_unused_card"
    """It wants all of the memory or all of the cores, and somebody is there."""
    EXCLUSIVE = "card_is_exclusive"
    """Somebody there has all of it."""
    SHARERS = "too_many_sharers"
    MEMORY = "lacks_memory"
    CORES = "lacks_cores"
    MEMORY_UNKNOWN = "memory_unknown"
    """How much memory the card has is not known, which is not zero, and no limit can be set."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one sharer has of one card. `cores` in percent; 0: no limit of cores."""

    memory_bytes: int
    cores: int = 0
    exclusive: bool = False

    def milli(self, usable_bytes: int) -> int:
        """Thousandths of the card: the larger of its parts of memory and cores, rounded up."""
        part = -(-self.memory_bytes * MILLI // usable_bytes) if usable_bytes else MILLI
        return MILLI if self.exclusive else min(MILLI, max(1, part, self.cores * MILLI // 100))


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, per card, as HAMi's resources write it; None: the resource is not there."""

    memory_mebibytes: int | None = None
    memory_percent: int | None = None
    cores: int | None = None

    def share(self, usable_bytes: int) -> Share:
        """The share of a card with so much memory. ValueError: a percentage beyond what there is."""
        for name, percent in (("memory", self.memory_percent), ("cores", self.cores)):
            if percent is not None and not 0 <= percent <= UNSET_PERCENT - (name == "cores"):
                raise ValueError(f"{name} is {percent} percent; write 1 to 100")
        percent = None if self.memory_percent in (None, UNSET_PERCENT, 0) else self.memory_percent
        if self.memory_mebibytes:
            wanted = self.memory_mebibytes * MEBIBYTE
        else:
            wanted = usable_bytes * (100 if percent is None else percent) // 100
        whole = not self.memory_mebibytes and percent in (None, 100)
        return Share(wanted, self.cores or 0, exclusive=whole or self.cores == 100)


@dataclass(slots=True)
class SharedCard:
    """One card and its sharers, by name."""

    usable_bytes: int
    split_count: int = SPLIT_COUNT
    sharers: dict[str, Share] | None = None

    @property
    def held(self) -> dict[str, Share]:
        """The sharers."""
        return self.sharers if self.sharers is not None else {}

    @property
    def free_bytes(self) -> int:
        """Memory that nobody holds."""
        return self.usable_bytes - sum(share.memory_bytes for share in self.held.values())

    @property
    def free_cores(self) -> int:
        """Percent of the cores that are not sold."""
        return 100 - sum(share.cores for share in self.held.values())

    def refusal(self, share: Share) -> Refusal | None:
        """Why `share` does not fit now; None: it does."""
        if not self.usable_bytes and not share.exclusive:
            return Refusal.MEMORY_UNKNOWN
        rules = (
            (share.exclusive and bool(self.held), Refusal.IN_USE),
            (any(one.exclusive for one in self.held.values()), Refusal.EXCLUSIVE),
            (len(self.held) >= self.split_count, Refusal.SHARERS),
            (share.memory_bytes > self.free_bytes, Refusal.MEMORY),
            (share.cores > self.free_cores or (not share.cores and self.free_cores <= 0), Refusal.CORES),
        )
        return next((refusal for broken, refusal in rules if broken), None)

    def take(self, name: str, share: Share) -> None:
        """`name` holds `share`. ValueError: it does not fit, or holds one already."""
        refusal = self.refusal(share)
        if name in self.held or refusal is not None:
            raise ValueError(f"{name} cannot take its share: {refusal or 'it has one'}")
        self.sharers = {**self.held, name: share}

    def give(self, name: str) -> None:
        """`name` holds nothing more; nothing happens if it did not."""
        self.sharers = {other: share for other, share in self.held.items() if other != name}
