"""The devices that drivers publish, and who has claimed them: followed where the API server serves them to us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from deploy.kubernetes.api import ApiError, KubeApi, insist
from deploy.kubernetes.devices import (
    CLAIMS,
    GROUP,
    SLICES,
    VERSION,
    Device,
    Place,
    cards_of,
    devices_in,
    newest,
    requested_by,
    taken_by,
)  # fmt: skip
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import Json
from deploy.kubernetes.views import LABEL_MANAGED, MANAGED_BY
from events.clock import Clock
from events.types.replicas import Card
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

LOOK_AGAIN: Final = Seconds(60.0)
"""Between two looks whether devices that were not served, or not for us, are now."""


class DeviceStates:
    """`changed` hears the name of a node of which something changed. Used on one event loop."""

    def __init__(self, api: KubeApi, clock: Clock, namespace: str, changed: Callable[[str], None]) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._changed = changed
        self._slices = Reflector(api, SLICES.path(), self._slice_changed)
        self._claims = Reflector(api, CLAIMS.path(), self._claim_changed)
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._taken: dict[str, set[Place]] = {}
        self.settled = asyncio.Event()
        """Set once both have been listed, or are known not to be served, or not for us."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while not await insist(self._served):
            self.settled.set()
            await self._clock.sleep_until(Instant(self._clock.now() + LOOK_AGAIN))
        async with asyncio.TaskGroup() as following:
            following.create_task(self._slices.run())
            following.create_task(self._claims.run())
            await self._slices.settled.wait()
            await self._claims.settled.wait()
            self.settled.set()

    async def _served(self) -> bool:
        """Raises ApiUnavailable."""
        try:
            await self._api.get(f"/apis/{GROUP}/{VERSION}")
            for kind in (SLICES, CLAIMS):
                await self._api.get(kind.path(), {"limit": "1"})
        except ApiError as error:
            logger.debug("devices are not followed: %s", error)
            return False
        return True

    def of(self, node: str) -> tuple[Card, ...] | None:
        """The cards of a node that are free for replicas, with those that replicas have. None: that is not known."""
        if not (self._slices.synced.is_set() and self._claims.synced.is_set()):
            return None
        found = newest(one for devices in self._devices.values() for one in devices if one.node == node)
        taken = {place for places in self._taken.values() for place in places}
        return cards_of(found, taken)

    def named(self, pool: str, device: str) -> str | None:
        """The UUID of a device; None: it is not known, or no whole card."""
        found = newest(one for devices in self._devices.values() for one in devices if one.pool == pool)
        return next((one.uuid for one in found if one.name == device), None)

    def claimed(self) -> int:
        """How many cards our own claims ask for."""
        return sum(requested_by(claim) for claim in self._claims.objects.values() if self._is_ours(claim))

    def _slice_changed(self, key: str, found: Json | None) -> None:
        before = self._devices.pop(key, ())
        now = () if found is None else devices_in(found)
        if now:
            self._devices[key] = now
        for node in {one.node for one in (*before, *now)}:
            self._changed(node)

    def _claim_changed(self, key: str, found: Json | None) -> None:
        before = self._taken.pop(key, set())
        now = set() if found is None or self._is_ours(found) else taken_by(found)
        if now:
            self._taken[key] = now
        for node in {one.node for devices in self._devices.values() for one in devices
                     if (one.pool, one.name) in before | now}:  # fmt: skip
            self._changed(node)

    def _is_ours(self, claim: Json) -> bool:
        metadata = claim["metadata"]
        return bool(
            metadata["namespace"] == self._namespace and metadata.get("labels", {}).get(LABEL_MANAGED) == MANAGED_BY
        )
