"""What the office tells the autoscaler: how much waits for each model, and what it takes to be done in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog
from events.names import Topic
from events.types.metrics import BacklogMeasured
from events.units import Instant, Seconds
from events.work import Place
from events.writer import EventWriter
from runtime.core.inference.backlog import Backlog, concurrency
from runtime.core.inference.clerk import Clerk
from runtime.inference.settings import InferenceSettings
from runtime.ports import Slots

EVERY: Final = Seconds(1.0)
AGAIN: Final = Seconds(10.0)
"""What has not changed is told so often: a measured backlog counts for a minute."""

SAME: Final = 0.1
"""A change by less than a tenth is none."""


class BacklogNews:
    """Tells `relume.backlog.measured` of each model that has errands, and a last zero."""

    def __init__(self, log: EventLog, slots: Slots, clock: Clock, settings: InferenceSettings) -> None:
        self._log = log
        self._slots = slots
        self._clock = clock
        self._settings = settings
        self._writer = EventWriter(f"relume/inference/{settings.gateway}", clock)
        self._told: dict[str, tuple[float, Instant]] = {}

    def tell(self, clerk: Clerk, behind: Mapping[Place, int]) -> None:
        """What waits now. `behind`: records not read yet; they are taken to be for the models of those that were."""
        now = self._clock.now()
        unread = sum(count for (topic, _), count in behind.items() if topic == Topic.INFERENCE_REQUESTS)
        found = clerk.backlogs()
        known = sum(backlog.items for backlog, _ in found)
        needs: dict[str, BacklogMeasured] = {}
        for backlog, running in found:
            route = self._slots.route(backlog.model)
            if route is None:
                continue
            share = unread * backlog.items // known if known else 0
            measured = self._measured(route.model, replace(backlog, items=backlog.items + share), running)
            other = needs.get(route.model)  # under an alias
            needs[route.model] = measured if other is None else _together(other, measured)
        for model in set(self._told) - set(needs):
            del self._told[model]
            self._offer(BacklogMeasured(model=model, source=self._source, items=0, concurrency=0))
        for model, measured in needs.items():
            need = measured.concurrency or 0.0
            before, at = self._told.get(model, (-1.0, now))
            if abs(need - before) > SAME * before or now - at >= AGAIN:
                self._told[model] = (need, now)
                self._offer(measured)

    @property
    def _source(self) -> str:
        return f"inference/{self._settings.gateway}"

    def _measured(self, model: str, backlog: Backlog, running: int) -> BacklogMeasured:
        need = running + concurrency(backlog, self._settings.policy, self._clock.now())
        return BacklogMeasured(
            model=model, source=self._source, items=backlog.items, oldest_at=backlog.oldest_since, concurrency=need
        )

    def _offer(self, measured: BacklogMeasured) -> None:
        event: AnyEnvelope = self._writer.envelope(measured)
        self._log.offer(event)  # one that is not taken is told again in a second


def _together(one: BacklogMeasured, other: BacklogMeasured) -> BacklogMeasured:
    return replace(one, items=one.items + other.items, concurrency=(one.concurrency or 0) + (other.concurrency or 0))
