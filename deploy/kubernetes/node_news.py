"""What whoever adds nodes says of stand-ins: the Events about them, asked for while they wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.resources import EVENTS, Json
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from events.names import ModelName
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

ASK_EVERY: Final = Seconds(15.0)
"""Cluster Autoscaler looks at pods every 10 s (its own default), and what it says changes seldom."""
MOST_ASKED: Final = 16
"""Models a round; others are asked about in a later one, when fewer wait."""
TOLD_MOST: Final = 300
"""Characters of what is told on."""
_OF_SCHEDULERS: Final = frozenset({"FailedScheduling", "Scheduled", "Preempted"})
_KARPENTER: Final = "karpenter"
"""Its own FailedScheduling says why it makes no node."""

Waiting = Callable[[], Iterable[tuple[ModelName, PodView]]]


class NodeNews:
    """`waiting` gives a stand-in of each model that has some; `heard` takes what was said about it."""

    def __init__(self, tools: Tools, waiting: Waiting, heard: Callable[[ModelName, str], None]) -> None:
        self._tools = tools
        self._waiting = waiting
        self._heard = heard

    async def run(self) -> None:
        """Ask until cancelled. An API server that is away, or says no, is asked again in the next round."""
        while True:
            try:
                for name, pod in list(self._waiting())[:MOST_ASKED]:
                    self._heard(name, newest_word(await self._events(pod)))
            except (ApiError, ApiUnavailable) as error:
                logger.debug("what is said of stand-ins cannot be read now: %s", error)
            await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + ASK_EVERY))

    async def _events(self, pod: PodView) -> Iterable[Json]:
        found = await self._tools.api.get(EVENTS.path(pod.namespace), {"fieldSelector": f"regarding.uid={pod.uid}"})
        items: Iterable[Json] = found["items"]
        return items


def newest_word(events: Iterable[Json]) -> str:
    """The newest that no scheduler said, with who said it; empty: nobody said anything."""
    told = [one for one in events if one.get("reason") not in _OF_SCHEDULERS or _who(one) == _KARPENTER]
    if not told:
        return ""
    newest = max(told, key=_when)
    return f"{_who(newest)} says {newest.get('reason', '')}: {newest.get('note', '')}"[:TOLD_MOST]


def _who(event: Json) -> str:
    return str(event.get("reportingController") or event.get("deprecatedSource", {}).get("component", "somebody"))


def _when(event: Json) -> str:
    """When it was last seen; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("deprecatedLastTimestamp") or event.get("eventTime") or "")
