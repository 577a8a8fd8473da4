"""What replicas on this machine need besides starts and stops: a look at their memory and progress.

Memory limits are kept by looking each second (four times as often above 80 % of a limit): a burst between two looks may
pass its limit for that long. Who needs the kernel to keep them runs relume in a cgroup of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from deploy.local.looking import Looking
from deploy.local.prober import HttpProber
from deploy.local.replica import Replica
from deploy.local.settings import LocalSettings
from deploy.local.usage import TreeUse, measure_trees
from events.clock import Clock
from events.units import Seconds

NEAR: Final = 0.8


class Care(Looking):
    """Looks after all replicas of this machine."""

    def __init__(
        self, clock: Clock, settings: LocalSettings, prober: HttpProber, replicas: Callable[[], Sequence[Replica]],
        news: Callable[[object], None],
    ) -> None:  # fmt: skip
        super().__init__(clock, settings, prober, replicas, news)
        self._replicas = replicas

    async def watch(self) -> None:
        """Look at what the processes use, until cancelled."""
        while True:
            shims = {one: one.process.shim_pid if one.process else None for one in self._replicas()}
            pids = [pid for pid in shims.values() if pid is not None]
            uses = await asyncio.to_thread(measure_trees, pids) if pids else {}
            near = False
            for replica, pid in shims.items():
                use = uses.get(pid) if pid is not None else None  # None: it has no process (yet)
                replica.watch(use)
                near |= use is not None and _is_near(replica, use)
            await self._pause(Seconds(self._settings.watch_every / 4 if near else self._settings.watch_every))


def _is_near(replica: Replica, use: TreeUse) -> bool:
    limit = replica.grant.resources.memory_bytes
    return limit > 0 and use.memory_bytes > NEAR * limit
