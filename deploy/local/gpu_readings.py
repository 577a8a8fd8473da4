"""What the GPUs of this node say of themselves, asked of nvidia-smi now and then: for metrics, and for nothing else.

The scheduler and the ledger count cards; only the driver knows who has how much memory of one. Where there is no
nvidia-smi, or no driver, nothing is told.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.inventory import InventoryFailed, ask_nvidia
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

QUERY: Final = ("--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu", "--format=csv,noheader,nounits")
ASK_EVERY: Final = Seconds(15.0)
"""As often as Prometheus looks by the chart's own interval; one answer takes some ten milliseconds of a core."""
NONE_EVERY: Final = Seconds(600.0)
"""Where there was none: a driver may be installed later."""

Ask = Callable[[Sequence[str]], Coroutine[Any, Any, str]]


@dataclass(frozen=True, slots=True)
class GpuSeen:
    """One GPU. None: it does not say (unified memory says no memory, MIG no utilization)."""

    id: str
    product: str
    memory_bytes: int | None
    used_bytes: int | None
    busy: float | None
    """Share of the last second or so in which something ran, 0 to 1."""


def parse(text: str) -> tuple[GpuSeen, ...]:
    """The GPUs in the answer to `QUERY`."""
    return tuple(
        GpuSeen(row[1].strip(), row[2].strip(), _bytes(row[3]), _bytes(row[4]), _share(row[5]))
        for row in csv.reader(text.splitlines(), skipinitialspace=True)
        if len(row) == 6 and row[1].startswith("GPU-")
    )


class GpuReadings:
    """`seen` is what was told last. Used on the event loop."""

    def __init__(self, clock: Clock, ask: Ask = ask_nvidia) -> None:
        self._clock = clock
        self._ask = ask
        self.seen: tuple[GpuSeen, ...] = ()

    async def run(self) -> None:
        """Ask until cancelled."""
        told = ""
        while True:
            try:
                self.seen, told = parse(await self._ask(QUERY)), ""
            except InventoryFailed as error:
                self.seen = ()
                if str(error) != told:
                    logger.warning("the GPUs of this node tell nothing now: %s", error)
                told = str(error)
            every = ASK_EVERY if self.seen or told else NONE_EVERY
            await self._clock.sleep_until(Instant(self._clock.now() + every))


def _bytes(mebibytes: str) -> int | None:
    text = mebibytes.strip()
    return int(text) << 20 if text.isdigit() else None


def _share(percent: str) -> float | None:
    text = percent.strip()
    return int(text) / 100 if text.isdigit() else None
