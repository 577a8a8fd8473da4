"""Follows the namespace's ResourceQuotas and LimitRanges, and tells the allocator what they leave: `relume.cards`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.quotas import limits_of
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import LIMIT_RANGES, RESOURCE_QUOTAS
from deploy.kubernetes.views import PodView
from events.clock import Clock
from events.log import EventLog, LogUnavailable
from events.types.limits import LimitsObserved
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

APART: Final = Seconds(0.2)
"""Between two looks: a burst of pods is one change. Chosen."""


class QuotaStates:
    """Those of one namespace. Where they may not be read there are none: then admission alone says no."""

    def __init__(self, api: KubeApi, log: EventLog, writer: EventWriter, clock: Clock, namespace: str) -> None:
        self.quotas = Reflector(api, RESOURCE_QUOTAS.path(namespace), self._changed)
        self.ranges = Reflector(api, LIMIT_RANGES.path(namespace), self._changed)
        self._log = log
        self._writer = writer
        self._clock = clock
        self._namespace = namespace
        self._told = LimitsObserved(space=namespace)
        self._wake = asyncio.Event()
        self._pods: Iterable[PodView] = ()
        self._is_ours: Callable[[PodView], bool] = lambda _: False
        self._claimed: Callable[[], int] = lambda: 0

    def holders(self, pods: Iterable[PodView], is_ours: Callable[[PodView], bool], claimed: Callable[[], int]) -> None:
        """Whose pods, and how many claimed cards, count in the allocator's own ledger."""
        self._pods, self._is_ours, self._claimed = pods, is_ours, claimed

    def said(self, state: LimitsObserved) -> None:
        """What the log says of the namespace."""
        if state.space == self._namespace:
            self._told = state

    def heard(self, pod: PodView) -> None:
        """A pod changed; a quota may be used otherwise now."""
        if pod.namespace == self._namespace and self.quotas.objects:
            self._wake.set()

    def look(self) -> None:
        """Whose pods are whose may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Publish what changes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.publish()
            except LogUnavailable as error:
                logger.warning("what quotas leave cannot be told now: %s", error)
                self._wake.set()
            await self._clock.sleep_until(Instant(self._clock.now() + APART))

    async def publish(self) -> None:
        """Tell what they leave, if it is not what was told last. Raises LogUnavailable."""
        ours = [pod for pod in self._pods if pod.namespace == self._namespace and self._is_ours(pod)]
        limits = limits_of(self.quotas.objects.values(), self.ranges.objects.values(), ours, self._claimed())
        state = LimitsObserved(space=self._namespace, limits=limits)
        if state != self._told:
            await self._log.append([self._writer.envelope(state)])
            self._told = state

    def _changed(self, key: str, item: object) -> None:
        del key, item
        self._wake.set()
