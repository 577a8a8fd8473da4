"""Uses that the agent keeps for holders who cannot hold a lock of this node: pods.

Each lasts for an hour and is prolonged by who started the pod. They stand in small files beside the weights, so an
agent that starts anew holds the same as before. Who is not heard of any more holds nothing; what his engine has open
it keeps, since eviction only unlinks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from coldstart.cache import holding
from coldstart.cache.holding import Use
from coldstart.cache.layout import Layout, key, write_soon
from coldstart.core.cache.errors import CacheError
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

HELD_FOR: Final = Seconds(3600.0)
"""Who prolongs does so every few minutes, so this outlasts an API server and a relume that are away. Chosen."""
MOST: Final = 4096
"""Holders of one node: a node has a few hundred pods at most."""
LOOK_EVERY: Final = Seconds(60.0)


class TooManyHolders(CacheError):
    """More than a node can have pods."""

    remedy = "somebody asks under ever new names; holders that are not prolonged are forgotten after an hour"


@dataclass(slots=True)
class _Held:
    holder: str
    snapshot: str
    until: Instant
    use: Use


class Holders:
    """By holder. Used on the event loop; files are small and not waited for."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout = layout
        self._clock = clock
        self._held: dict[str, _Held] = {}

    @property
    def _folder(self) -> Path:
        return self._layout.root / "holders"

    def __len__(self) -> int:
        """Who holds something now."""
        return len(self._held)

    def restore(self) -> None:
        """Hold what was held when the agent ended. Call it before anything can be evicted."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._layout.make()
        for path in list(self._folder.glob("*.json")):
            said = _read(path)
            use = None
            if said is not None and said[2] > self._clock.now():
                use = holding.take_use(self._layout, said[1])
            if said is None or use is None:
                path.unlink(missing_ok=True)  # it ended, or its weights are gone
            else:
                self._held[said[0]] = _Held(*said, use)

    def take(self, holder: str, snapshot: str, use: Use) -> Instant:
        """`use` is the holder's from now on; until when. What he held before he does not hold any more.

        Raises TooManyHolders, and then the use is the caller's.
        """
        if holder not in self._held and len(self._held) >= MOST:
            raise TooManyHolders(f"{MOST} holders have weights of this node")
        before = self._held.pop(holder, None)
        self._held[holder] = _Held(holder, snapshot, self._prolonged(holder, snapshot), use)
        if before is not None:
            before.use.end()
        return self._held[holder].until

    def prolong(self, holder: str) -> Instant | None:
        """For another hour; None: he holds nothing."""
        held = self._held.get(holder)
        if held is None:
            return None
        held.until = self._prolonged(holder, held.snapshot)
        return held.until

    def end(self, holder: str) -> None:
        """He holds nothing any more. Harmless twice."""
        held = self._held.pop(holder, None)
        if held is not None:
            self._path(holder).unlink(missing_ok=True)
            held.use.end()

    def forget(self) -> None:
        """End those that nobody prolonged."""
        now = self._clock.now()
        for held in [one for one in self._held.values() if one.until <= now]:
            logger.info("nobody has prolonged the weights of %s for an hour; they are not held any more", held.holder)
            self.end(held.holder)

    async def run(self) -> None:
        """Forget whom nobody prolongs, until cancelled."""
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + LOOK_EVERY))
            self.forget()

    def close(self) -> None:
        """The agent ends: uses end with it, the files stay for the next one."""
        for held in self._held.values():
            held.use.end()
        self._held.clear()

    def _prolonged(self, holder: str, snapshot: str) -> Instant:
        until = Instant(self._clock.now() + HELD_FOR)
        write_soon(self._path(holder), orjson.dumps([holder, snapshot, until]))
        return until

    def _path(self, holder: str) -> Path:
        return self._folder / f"{key(holder)}.json"


def _read(path: Path) -> tuple[str, str, Instant] | None:
    """What a file says; None for one that a power cut left empty."""
    try:
        holder, snapshot, until = orjson.loads(path.read_bytes())
        return str(holder), str(snapshot), Instant(float(until))
    except (OSError, ValueError, TypeError):
        return None
