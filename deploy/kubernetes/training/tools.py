"""What all runs of training on Kubernetes share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, pause
from deploy.kubernetes.judging import Limits
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.occupied import Left
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.training.link import TrainerLink
from deploy.kubernetes.training.shaping import Look
from deploy.local.training.starting import Counts
from events.clock import Clock

logger = logging.getLogger(__name__)

EVICTION: Final = "policy/v1"


@dataclass(frozen=True, slots=True)
class PodTools:
    """See above. `record` returns once a job's state of now stands in the log; `news` may be lost. `look` says how the
    members of a revision look: ValueError says why they cannot. `emptied` returns once nobody is left on the GPUs of
    pods that have ended, as far as anybody can tell."""

    clock: Clock
    api: KubeApi
    lease: Lease
    namespace: str
    limits: Limits
    pods: PodStore
    link: TrainerLink
    node_ready: Callable[[str], bool]
    look: Callable[[str, str, int], Look]
    record: Callable[[str], Awaitable[None]]
    news: Callable[[object], None]
    counts: Counts
    emptied: Callable[[Sequence[Left]], Awaitable[None]]

    async def evict(self, name: str, uid: str, grace: int, *, dry: bool = False) -> None:
        """Ask for a pod's end, as far as its budgets allow; `dry`: only whether they do. Raises ApiError,
        ApiUnavailable."""
        options: dict[str, Any] = {"gracePeriodSeconds": grace, "preconditions": {"uid": uid}}
        body = {
            "apiVersion": EVICTION, "kind": "Eviction", "metadata": {"name": name, "namespace": self.namespace},
            "deleteOptions": options,
        }  # fmt: skip
        asked = {"dryRun": "All"} if dry else None
        await self.api.create(PODS.path(self.namespace, name, "eviction"), body, asked)

    async def delete(self, name: str, uid: str) -> None:
        """Delete a pod with its own grace, until the API server has taken it."""
        tries = 0
        while True:
            await self.lease.hold()
            try:
                await self.api.delete(PODS.path(self.namespace, name), uid=uid)
            except (ApiUnavailable, ApiError) as error:
                logger.debug("pod %s cannot be deleted now: %s", name, error)
                await pause(tries, error.after if isinstance(error, ApiUnavailable) else None)
                tries += 1
            else:
                return
