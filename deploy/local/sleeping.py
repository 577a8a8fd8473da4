"""Replicas that sleep: how an engine is put to sleep and woken, and the host memory that they may keep together.

The memory is set aside: the node tells the allocator that much less (`LocalSettings.sleep_memory`), so nobody else was
promised what sleepers hold. Who has slept longest ends when another needs the room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from deploy.local.usage import measure_trees
from events.clock import Clock
from events.units import Bytes, Instant, Seconds, format_quantity
from runtime.core.golden import Said, is_same, said
from runtime.ports import Call, LaunchRequest, Probe, Sleep

LOOK_EVERY: Final = Seconds(0.02)
"""Between two looks whether an engine sleeps: it was told to, and mostly does when it has answered."""


@dataclass(frozen=True, slots=True)
class _Berth:
    bytes: int
    leave: Callable[[str], None]


class Berths:
    """Host memory for replicas that sleep. `capacity`: bytes; 0: none may."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._taken: dict[str, _Berth] = {}  # who has slept longest comes first
        self.wakes = 0
        self.failed_wakes = 0

    @property
    def used(self) -> int:
        """Bytes that sleepers keep."""
        return sum(berth.bytes for berth in self._taken.values())

    def enter(self, name: str, bytes_: int, leave: Callable[[str], None]) -> bool:
        """Sleep with so much memory; others end for it, whoever has slept longest first. False: too large even so.

        `leave` is called, with the reason, when it must end for another. Entered again it keeps its turn.
        """
        if bytes_ > self.capacity:
            return False
        self._taken[name] = _Berth(bytes_, leave)
        for other in list(self._taken):
            if self.used <= self.capacity:
                break
            if other != name:
                room = format_quantity(Bytes(self.capacity))
                self._taken.pop(other).leave(f"another replica needs its room in the {room} for sleepers")
        return True

    def leave(self, name: str) -> None:
        """It sleeps no more. Harmless twice."""
        self._taken.pop(name, None)


class Teller(Protocol):
    """Speaks with an engine (a part of the prober)."""

    async def tell(self, host: str, port: int, call: Call, bound: Seconds) -> str:
        """POST it, once; why it was not done, or empty."""

    async def read(self, host: str, port: int, path: str, bound: Seconds) -> object | None:
        """The parsed JSON answer of `path`."""

    async def warm_up(self, host: str, port: int, probe: Probe, hear: Callable[[bytes], None] | None = None) -> str:
        """The one-token request; why it will never be answered, or empty."""


class Bed:
    """One engine's falling asleep and waking. Each step has `bound` seconds; each method returns what went wrong."""

    def __init__(self, teller: Teller, clock: Clock, wanted: LaunchRequest, bound: Seconds) -> None:
        self._teller = teller
        self._clock = clock
        self._host, self._port = wanted.host, wanted.port
        self._bound = bound

    async def sleep(self, way: Sleep) -> str:
        """Put it to sleep."""
        return await self._order(way.sleep) or await self._until(way, asleep=True)

    async def wake(self, way: Sleep) -> str:
        """Wake it."""
        return await self._order(way.wake) or await self._until(way, asleep=False)

    async def compare(self, probe: Probe, golden: Said) -> str:
        """Ask for one token, as at its start: it must say the same."""
        heard: list[bytes] = []
        try:
            async with asyncio.timeout(self._bound):
                wrong = await self._teller.warm_up(self._host, self._port, probe, heard.append)
        except TimeoutError:
            return f"the one-token request was not answered within {self._bound:g} s"
        if wrong:
            return wrong
        return "" if is_same(golden, said(heard[0])) else "its first token is another than before it slept"

    async def _order(self, calls: tuple[Call, ...]) -> str:
        for call in calls:
            wrong = await self._teller.tell(self._host, self._port, call, self._bound)
            if wrong:
                return wrong
        return ""

    async def _until(self, way: Sleep, *, asleep: bool) -> str:
        """It may have answered before it has done what it was told."""
        if not way.asleep_path:
            return ""
        until = Instant(self._clock.now() + self._bound)
        while True:
            answer = await self._teller.read(self._host, self._port, way.asleep_path, self._bound)
            if isinstance(answer, dict) and answer.get("is_sleeping") is asleep:
                return ""
            if self._clock.now() >= until:
                return f"GET {way.asleep_path} did not say is_sleeping {str(asleep).lower()} within {self._bound:g} s"
            await self._clock.sleep_until(Instant(self._clock.now() + LOOK_EVERY))


def memory_of(shim_pid: int) -> int:
    """Bytes that the processes below a shim hold now. Blocking."""
    use = measure_trees([shim_pid]).get(shim_pid)
    return 0 if use is None else use.memory_bytes


def size_of(path: str) -> int:
    """Bytes of a file, or of all files in a folder; 0 where there is nothing. Blocking."""
    try:
        whole = Path(path)
        files = [one for one in whole.rglob("*") if one.is_file()] if whole.is_dir() else [whole]
        return sum(one.stat().st_size for one in files) if path else 0
    except OSError:
        return 0
