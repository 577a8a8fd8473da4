"""What the demo sees: levels sampled from the admin API, and the phases of starts as events tell them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from deploy.demo.chart import Sample
from events.clock import Clock
from events.units import Instant

SAMPLE_PERIOD = 0.25
"""Seconds between two samples: four a second are enough to see a start of less than one."""
MAX_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A replica went on, at `at` seconds from the beginning."""

    at: float
    replica: str
    state: str
    phase: str


class Watch:
    """Samples one model until stopped. `began` is the zero of all times."""

    def __init__(self, session: aiohttp.ClientSession, admin_url: str, model: str, clock: Clock) -> None:
        self._session = session
        self._admin = admin_url
        self._model = model
        self._clock = clock
        self.began = clock.now()
        self.samples: list[Sample] = []
        self.changes: list[PhaseChange] = []
        self.on_change: Callable[[PhaseChange], None] | None = None

    async def status(self) -> dict[str, Any]:
        """The model's status as the admin API gives it."""
        async with self._session.get(f"{self._admin}/v1alpha1/models/{self._model}") as response:
            response.raise_for_status()
            item: dict[str, Any] = await response.json()
            status: dict[str, Any] = item["status"]
            return status

    async def sample_for_ever(self) -> None:
        """Take a sample each `SAMPLE_PERIOD` until cancelled."""
        while len(self.samples) < MAX_SAMPLES:
            status = await self.status()
            self.samples.append(
                Sample(
                    at=self._clock.now() - self.began,
                    running=status["runningRequests"] or 0,
                    held=status["heldRequests"] or 0,
                    ready=status["readyReplicas"],
                    starting=status["startingReplicas"],
                )
            )
            await self._clock.sleep_until(Instant(self._clock.now() + SAMPLE_PERIOD))

    async def follow_phases(self) -> None:
        """Note each phase change of the model's replicas until cancelled."""
        parameters = {"topic": "relume.phases", "follow": "true", "from": "now"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(f"{self._admin}/v1alpha1/events", params=parameters, timeout=timeout) as response:
            async for line in response.content:
                self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        data = event.get("data", {})
        if not str(event.get("type", "")).startswith("relume.replica.phase_changed") or data["model"] != self._model:
            return
        at = self._clock.now() - self.began
        change = PhaseChange(at=at, replica=data["replica"], state=data["state"], phase=data.get("phase") or "")
        self.changes.append(change)
        if self.on_change is not None:
            self.on_change(change)

    async def until(self, wanted: Callable[[dict[str, Any]], bool], deadline: float) -> bool:
        """Wait until the status is as wanted; False when `deadline` seconds passed first."""
        end = self._clock.now() + deadline
        while not wanted(await self.status()):
            if self._clock.now() >= end:
                return False
            await asyncio.sleep(SAMPLE_PERIOD)
        return True
