"""The numbers that relume measures itself for a model: the lag of a consumer group, a query of a metrics server."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from autoscaler.core import lag as lags
from autoscaler.core import query as queries
from autoscaler.core.lag import LagWatch
from autoscaler.core.policy import LagPolicy, QueryPolicy, SignalPolicy
from autoscaler.ports import LagReader, QueryReader
from events.types.metrics import LagMeasured, QueryMeasured
from events.units import Seconds

Measured = LagMeasured | QueryMeasured


class Gauge(Protocol):
    """One number of one model."""

    @property
    def every(self) -> Seconds:
        """How often it is measured."""

    @property
    def place(self) -> Hashable:
        """Whom it asks: only a few are asked at once there."""

    async def measure(self) -> Measured:
        """Measure it now. Raises Unmeasured."""

    def failed(self, why: str) -> Measured:
        """What is told when it could not be measured."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Who looks."""

    lags: LagReader
    queries: QueryReader

    def gauge(self, model: str, signal: SignalPolicy) -> Gauge | None:
        """What measures this signal; None: others tell it."""
        if signal.lag is not None:
            return LagGauge(model, signal.name, signal.lag, self.lags)
        if signal.query is not None:
            return QueryGauge(model, signal.name, signal.query, self.queries)
        return None

    def close(self) -> None:
        """Give up what is under way."""
        self.lags.close()
        self.queries.close()


class LagGauge:
    """The lag of a consumer group; it remembers the look before, for rates."""

    def __init__(self, model: str, name: str, policy: LagPolicy, reader: LagReader) -> None:
        self._model, self._name, self._policy, self._reader = model, name, policy, reader
        self._watch = LagWatch()

    @property
    def every(self) -> Seconds:
        return self._policy.every

    @property
    def place(self) -> Hashable:
        return ("kafka", self._policy.servers, self._policy.cluster)

    async def measure(self) -> Measured:
        look = await self._reader.look(self._policy)
        return self._watch.measure(self._model, self._name, self._policy, look)

    def failed(self, why: str) -> Measured:
        return LagMeasured(model=self._model, name=self._name, error=why, valid_for=lags.valid_for(self._policy))


class QueryGauge:
    """A query of a metrics server."""

    def __init__(self, model: str, name: str, policy: QueryPolicy, reader: QueryReader) -> None:
        self._model, self._name, self._policy, self._reader = model, name, policy, reader

    @property
    def every(self) -> Seconds:
        return self._policy.every

    @property
    def place(self) -> Hashable:
        return ("prometheus", self._policy.server)

    async def measure(self) -> Measured:
        return queries.judge(self._model, self._name, self._policy, await self._reader.ask(self._policy))

    def failed(self, why: str) -> Measured:
        return QueryMeasured(model=self._model, name=self._name, error=why, valid_for=queries.valid_for(self._policy))
