"""What replicas that serve need, wherever they run: their metrics read, suspicions checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from deploy.local.declared import Declared, Reason
from deploy.local.prober import HttpProber
from deploy.local.readings import read_metrics
from deploy.local.settings import LocalSettings
from deploy.local.starting import Prepared
from events.clock import Clock
from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import ReplicaState
from events.units import Instant, Seconds
from runtime.desk.busy import parse_running

SERVING: Final = (ReplicaState.READY, ReplicaState.DRAINING)
CHECKS: Final = 2
APART: Final = Seconds(0.3)
"""Between two checks of a suspect. A refused connection fails a check at once: by then a crash has been told as what it
is, with its exit code, and a full backlog has been taken up."""


class Served(Protocol):
    """A replica, as far as it is looked at."""

    name: ReplicaName
    declared: Declared
    grant: ReplicaGrant
    state: ReplicaState | None

    @property
    def prepared_start(self) -> Prepared | None:
        """How its engine is addressed; None before that is known."""

    def fail(self, reason: Reason, message: str) -> None:
        """End it."""


class Looking:
    """Looks at all replicas. `replicas` gives those that exist now; `news` takes events that may be lost."""

    def __init__(
        self, clock: Clock, settings: LocalSettings, prober: HttpProber, replicas: Callable[[], Sequence[Served]],
        news: Callable[[object], None],
    ) -> None:  # fmt: skip
        self._clock = clock
        self._settings = settings
        self._prober = prober
        self._serving = replicas
        self._news = news
        self._checking: set[ReplicaName] = set()

    async def read_all_metrics(self) -> None:
        """Read the metrics of serving replicas, until cancelled."""
        while True:
            began = self._clock.now()
            readers = [self._read_metrics(one) for one in self._serving() if one.state in SERVING]
            await asyncio.gather(*readers)
            await self._clock.sleep_until(Instant(began + self._settings.metrics_every))

    async def _read_metrics(self, replica: Served) -> None:
        prepared = replica.prepared_start
        if prepared is None or not prepared.abilities.metrics_path:
            return
        bound = Seconds(self._settings.metrics_every * 0.75)
        wanted = prepared.wanted
        text = await self._prober.text(wanted.host, wanted.port, prepared.abilities.metrics_path, bound)
        if text is not None and replica.state in SERVING:
            self._news(read_metrics(text, replica.declared.model, replica.name, replica.grant.revision))

    async def check_suspect(self, replica: Served, reason: str) -> None:
        """Probe a suspected replica; replace it when it does not answer. One check a replica at a time.

        It must answer its health check and, unless all its slots are busy or it does not tell how many are, then also
        a one-token request: some engines are healthy and generate nothing any more.
        """
        prepared = replica.prepared_start
        if prepared is None or replica.state not in SERVING or replica.name in self._checking:
            return
        self._checking.add(replica.name)
        try:
            wrong = await self._wrong_with(prepared)
        finally:
            self._checking.discard(replica.name)
        if wrong:
            replica.fail(Reason.UNRESPONSIVE, f"suspected ({reason}), and {wrong}")

    async def _wrong_with(self, prepared: Prepared) -> str:
        """Why a replica must be replaced, or empty."""
        settings, wanted, probe = self._settings, prepared.wanted, prepared.probe
        bound = settings.suspect_bound
        for number in range(CHECKS):
            if number:
                await self._pause(APART)
            if await self._prober.check(wanted.host, wanted.port, probe.health_path, bound):
                break
        else:
            return f"no answer to {CHECKS} health checks of {bound:g} s"
        path = prepared.abilities.busy_path
        said = await self._prober.text(wanted.host, wanted.port, path, bound) if path else None
        running = None if said is None else parse_running(said)
        if running is None or running >= wanted.slots:
            return ""
        try:
            async with asyncio.timeout(settings.suspect_token_bound):
                return await self._prober.warm_up(wanted.host, wanted.port, probe)
        except TimeoutError:
            return f"no answer to a one-token request within {settings.suspect_token_bound:g} s"

    async def _pause(self, seconds: Seconds) -> None:
        await self._clock.sleep_until(Instant(self._clock.now() + seconds))
