"""Leadership by a Lease: one process at a time acts on a namespace.

The clocks of machines are never compared: whoever watches the Lease takes it when it has not changed for its duration
by its own clock, and the holder writes to the cluster only while its own last renewal is younger than that, less a
margin. So two never write at the same time, unless a clock runs a fifth too fast. While the API server is away nobody
can renew and nobody can take: the holder pauses and goes on; only a Lease that shows another holder deposes it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.resources import LEASES, Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.times import micro_time
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

MARGIN: Final = 0.2
"""Share of the duration by which the holder stops earlier than others may take."""


class LeaseLost(Exception):
    """Another process has taken the Lease; this one must write nothing more."""


class Lease:
    """`acquire`, then `run` until the end, then `release`. `hold` before each write to the cluster."""

    def __init__(self, api: KubeApi, clock: Clock, settings: KubernetesSettings) -> None:
        self._api = api
        self._clock = clock
        self._settings = settings
        self._path = LEASES.path(settings.namespace, settings.lease)
        self._seen: tuple[str, Instant] = ("", Instant(0.0))
        self._renewed_at: Instant | None = None
        self._renewed = asyncio.Event()
        self._written: Json | None = None
        """As we wrote it last: renewing begins from there, without reading it."""
        self._lost = ""
        self._why = ""
        """Why it could not be taken or renewed the last time."""
        self.transitions = 0
        """How often the Lease has changed hands: larger for each later holder."""

    @property
    def held(self) -> bool:
        """Whether we may write to the cluster now."""
        if self._renewed_at is None or self._lost:
            return False
        return self._clock.now() < self._renewed_at + self._settings.lease_for * (1 - MARGIN)

    async def hold(self) -> None:
        """Return while the Lease is ours, at once or once it is renewed. Raises LeaseLost."""
        while not self.held:
            if self._lost:
                raise LeaseLost(f"{self._lost} has taken the lease {self._settings.lease}")
            self._renewed.clear()
            await self._renewed.wait()

    async def acquire(self) -> None:
        """Return once the Lease is ours; until then this process stands by."""
        told = None
        while not await self._try():
            if told != self._why:
                told = self._why
                logger.info("stands by for the lease %s: %s", self._settings.lease, self._why)
            await self._pause()

    async def run(self) -> None:
        """Renew until cancelled. Raises LeaseLost."""
        while True:
            await self._pause()
            await self._try()
            if self._lost:
                raise LeaseLost(f"{self._lost} has taken the lease {self._settings.lease}")

    async def release(self) -> None:
        """Let another take it at once; as far as the API server answers now."""
        if self._renewed_at is None or self._lost:
            return
        self._renewed_at = None
        try:
            found = await self._api.get(self._path)
            if found["spec"].get("holderIdentity") == self._settings.identity:
                await self._api.replace(self._path, {**found, "spec": {**found["spec"], "holderIdentity": ""}})
        except (ApiError, ApiUnavailable) as error:
            logger.info("the lease could not be given back, it runs out by itself: %s", error)

    async def _try(self) -> bool:
        """Take or renew it, if it can be; whether it is ours now."""
        began = self._clock.now()
        try:
            found = self._written or await self._read()
            if found is None:
                written = await self._api.create(LEASES.path(self._settings.namespace), self._wanted(None, began))
            elif self._is_free(found):
                written = await self._api.replace(self._path, self._wanted(found, began))
            else:
                return self._is_anothers(str(found["spec"].get("holderIdentity", "")))
        except (ApiError, ApiUnavailable) as error:
            if isinstance(error, ApiError) and self._written is not None:
                self._written = None  # somebody changed it: look who
                return await self._try()
            if isinstance(error, ApiUnavailable) or error.status != 409:  # another was faster
                self._why = str(error)
                logger.log(logging.DEBUG if isinstance(error, ApiUnavailable) else logging.WARNING, "%s", error)
            return False
        self._written = written
        self.transitions = int(written["spec"].get("leaseTransitions", 0))
        self._renewed_at = began  # what others count from is not earlier
        self._renewed.set()
        return True

    def _is_anothers(self, holder: str) -> bool:
        self._why = f"{holder} has it"
        if self._renewed_at is not None:
            self._lost = holder or "another"
            self._renewed.set()
        return False

    async def _read(self) -> Json | None:
        try:
            return await self._api.get(self._path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _is_free(self, found: Json) -> bool:
        """Ours, nobody's, or not renewed for its whole duration while we watched."""
        spec = found["spec"]
        holder = spec.get("holderIdentity", "")
        version, since = str(found["metadata"]["resourceVersion"]), self._clock.now()
        if self._seen[0] != version:
            self._seen = (version, since)
        if holder == self._settings.identity:
            return True
        if holder == "":  # given back, and not by us if we thought that we had it
            return self._renewed_at is None
        duration = float(spec.get("leaseDurationSeconds", self._settings.lease_for))
        return self._renewed_at is None and since >= self._seen[1] + duration

    def _wanted(self, found: Json | None, now: Instant) -> dict[str, Any]:
        spec: dict[str, Any] = {} if found is None else dict(found["spec"])
        if spec.get("holderIdentity") != self._settings.identity:
            spec["acquireTime"] = micro_time(now)
            spec["leaseTransitions"] = int(spec.get("leaseTransitions", 0)) + (found is not None)
        spec |= {"holderIdentity": self._settings.identity, "renewTime": micro_time(now),
                 "leaseDurationSeconds": round(self._settings.lease_for)}  # fmt: skip
        metadata = {"name": self._settings.lease, "namespace": self._settings.namespace}
        if found is not None:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        return {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _pause(self) -> None:
        await self._clock.sleep_until(Instant(self._clock.now() + Seconds(self._settings.renew_every)))
