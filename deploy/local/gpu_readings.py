"""What the GPUs of this node say of themselves: read from the driver's library (NVML), or else asked of nvidia-smi.

The scheduler and the ledger count cards; only the driver knows who has how much memory of one, and whether it is well.
Where there is neither, or no driver, nothing is told. What a GPU does not say is not known, which is not zero.
"""

from __future__ import annotations

import asyncio
import csv
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from deploy.local.inventory import InventoryFailed, ask_nvidia
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

QUERY: Final = (
    "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu,driver_version",
    "--format=csv,noheader,nounits",
)  # fmt: skip
ASK_EVERY: Final = Seconds(15.0)
"""nvidia-smi: as often as Prometheus looks by the chart's own interval; one answer takes some ten milliseconds of a
core."""
READ_EVERY: Final = Seconds(2.0)
"""NVML: a reading is some calls into the driver a card, and starts nothing. How soon a card is seen to be empty."""
NONE_EVERY: Final = Seconds(600.0)
"""Where there was none: a driver may be installed later."""
EMPTY_BELOW: Final = 64 << 20
"""Bytes in use, without what the driver reserves for itself, up to which nobody is on a card. Chosen: less than what a
program's context of CUDA takes, and more than what drivers keep on an idle card."""
EXACT_DRIVER: Final = 510
"""Since this driver memory in use is told without what the driver reserves (nvmlDeviceGetMemoryInfo_v2)."""

Ask = Callable[[Sequence[str]], Coroutine[Any, Any, str]]


@dataclass(frozen=True, slots=True)
class GpuSeen:
    """One GPU, or one MIG instance (then `parent` is its card). None: it does not say (unified memory says no memory,
    MIG no utilization)."""

    id: str
    product: str
    memory_bytes: int | None
    used_bytes: int | None
    busy: float | None
    """Share of the last second or so in which something ran, 0 to 1."""
    empty: bool | None = None
    """Whether nobody is on it, by the memory in use and the processes that are seen."""
    pids: tuple[int, ...] = ()
    """Processes that are seen on it. A container sees those of its own process namespace only."""
    sick: str = ""
    """What is wrong with it, in words; empty: nothing that is known."""
    parent: str = ""
    split: bool = False
    """Whether it is a card whose MIG instances are used instead."""


def is_empty(used: int | None, pids: Sequence[int]) -> bool | None:
    """Whether nobody is on a card. Processes in namespaces of their own are not seen, so memory decides."""
    if pids:
        return False
    return None if used is None else used <= EMPTY_BELOW


def parse(text: str) -> tuple[GpuSeen, ...]:
    """The GPUs in the answer to `QUERY`."""
    return tuple(
        _seen(row) for row in csv.reader(text.splitlines(), skipinitialspace=True)
        if len(row) == 7 and row[1].startswith("GPU-")
    )  # fmt: skip


def _seen(row: Sequence[str]) -> GpuSeen:
    used, major = _bytes(row[4]), row[6].strip().split(".")[0]
    exact = major.isdigit() and int(major) >= EXACT_DRIVER
    return GpuSeen(
        row[1].strip(), row[2].strip(), _bytes(row[3]), used, _share(row[5]), is_empty(used if exact else None, ())
    )  # fmt: skip


class Driver(Protocol):
    """Reads GPUs."""

    async def read(self) -> tuple[GpuSeen, ...] | None:
        """All of them; None: the library is not there, or there is no driver. Raises InventoryFailed."""

    async def close(self) -> None:
        """Let the driver go."""


class NoDriver:
    """Where the library's Python half is not installed."""

    async def read(self) -> tuple[GpuSeen, ...] | None:
        """See `Driver`."""
        return None

    async def close(self) -> None:
        """See `Driver`."""


class GpuReadings:
    """`seen` is what was told last; `known`: whether there are any, as far as the last
    answer goes. `told` is called after each reading. Used
    on the event loop."""

    def __init__(self, clock: Clock, driver: Driver, ask: Ask = ask_nvidia) -> None:
        self._clock = clock
        self._driver = driver
        self._ask = ask
        self.seen: tuple[GpuSeen, ...] = ()
        self.known = False
        self.told: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.failed = ""
        """Why the last reading told nothing; empty: it told what there is, or that there is nothing."""
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                every = await self.look()
                await self._clock.sleep_until(Instant(self._clock.now() + every))
        finally:
            await self._driver.close()

    async def look(self) -> Seconds:
        """Read now; how long that holds."""
        async with self._turn:
            every = await self._read()
            if self.told is not None:
                await self.told()
            return every

    async def _read(self) -> Seconds:
        try:
            found = await self._driver.read()
            every = ASK_EVERY if found is None else READ_EVERY
            self.seen = parse(await self._ask(QUERY)) if found is None else found
        except InventoryFailed as error:
            self.seen = ()
            if str(error) != self.failed:
                logger.warning("the GPUs of this node tell nothing now: %s", error)
            self.failed = str(error)
            return ASK_EVERY
        self.failed = ""
        self.known = bool(self.seen)
        return every if self.seen else NONE_EVERY


def _bytes(mebibytes: str) -> int | None:
    text = mebibytes.strip()
    return int(text) << 20 if text.isdigit() else None


def _share(percent: str) -> float | None:
    text = percent.strip()
    return int(text) / 100 if text.isdigit() else None
