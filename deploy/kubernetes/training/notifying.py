"""Carries a notice to the pods of one run: over HTTP to rank 0's SDK, and as an annotation, which the SDK reads through
the downward API (decision 78: how soon) and people with `kubectl describe`. Both may be told again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.training.shaping import ANNOTATION_NOTICE
from deploy.kubernetes.training.tools import PodTools
from deploy.local.training.notifying import POST_AGAIN, TAKEN, Address
from deploy.local.training.standing import Notices
from events.units import Instant

logger = logging.getLogger(__name__)


class PodNotifier(Notices):
    """The notices of one run. `address`: where its SDK listens, once known; `pods`: names of those that run."""

    def __init__(
        self, tools: PodTools, address: Callable[[], Address | None], pods: Callable[[], Iterable[str]], *,
        goes_on: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(goes_on=goes_on)
        self._tools = tools
        self._address = address
        self._pods = pods
        self._posted = ""
        self._noted: dict[str, str] = {}
        self._again_at = Instant(0.0)

    async def deliver(self, now: Instant) -> None:
        """Tell what has not been told."""
        notice = self._stands
        if notice is None or now < self._again_at:
            return
        wire, address = notice.encode(), self._address()
        if address is not None and self._posted != wire:
            if await self._tools.link.poster.post(address, wire) in TAKEN:
                self._posted = wire
            else:
                self._again_at = Instant(now + POST_AGAIN)
        for pod in self._pods():
            if self._noted.get(pod) != wire and not await self._note(pod, wire):
                self._again_at = Instant(now + POST_AGAIN)

    async def _note(self, pod: str, wire: str) -> bool:
        """Write it on a pod; whether that is done with."""
        try:
            await self._tools.lease.hold()
            body = {"metadata": {"annotations": {ANNOTATION_NOTICE: wire}}}
            await self._tools.api.merge(PODS.path(self._tools.namespace, pod), body)
        except ApiUnavailable:
            return False
        except ApiError as error:
            if error.status != 404:  # gone meanwhile
                logger.warning("the notice cannot be written on pod %s: %s", pod, error)
        self._noted[pod] = wire
        return True
