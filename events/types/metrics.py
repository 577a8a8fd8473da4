"""`relume.metrics`: numbers from outside the gateway. Written by the adapter and anyone; followed by the autoscaler."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt

from events.kinds import event
from events.names import Topic
from events.types.shared import Amount, At, Count


@event("relume.replica.metrics", Topic.METRICS)
class ReplicaMetrics:
    """What an engine says of itself. None: it does not say."""

    model: str
    replica: str
    revision: Count
    running: Amount | None = None
    waiting: Amount | None = None
    kv_cache_use: Amount | None = None
    tokens_in_total: Amount | None = None
    tokens_out_total: Amount | None = None


@event("relume.backlog.measured", Topic.METRICS)
class BacklogMeasured:
    """Work that waits in a queue outside: items, and how many a second have been drained lately (None: not known).

    `concurrency`: how many requests must run at once so that it is done in time (None: as many as there are items).
    """

    model: str
    source: str
    items: Amount
    drain_rate: Amount | None = None
    oldest_at: At | None = None
    concurrency: Amount | None = None


@event("relume.signal.measured", Topic.METRICS)
class SignalMeasured:
    """Any external number: the model needs value ÷ target replicas, until the value is `valid_for` seconds old."""

    model: str
    name: str
    value: Amount
    target: Annotated[float, Gt(0)] = 1.0
    valid_for: Annotated[float, Gt(0)] = 60.0


@event("relume.query.measured", Topic.METRICS)
class QueryMeasured:
    """What a query of a metrics server gave, until it is `valid_for` seconds old; its numbers are `delay` seconds late.

    `name`: the signal of the model's declaration. `value` None: not known, and `error` says why: an empty answer, NaN,
    a server that does not answer. `series`: how many time series the query gave.
    """

    model: str
    name: str
    value: Amount | None = None
    delay: Amount = 0.0
    series: Count = 0
    error: str = ""
    valid_for: Annotated[float, Gt(0)] = 60.0


@event("relume.lag.measured", Topic.METRICS)
class LagMeasured:
    """How far a consumer group is behind, in records; until it is `valid_for` seconds old.

    `name`: the signal of the model's declaration. `lag`: records to be done, None when they could not be counted
    (`error` says why). `standing`: all records not committed, with those of partitions that stand still. `partitions`:
    of the topic (or topics); `with_lag`: those that have some; `unknown`: those that nothing was told of. `produced`,
    `consumed`: records a second since the measurement before (None: there was none).
    """

    model: str
    name: str
    lag: Amount | None = None
    standing: Amount = 0.0
    partitions: Count = 0
    with_lag: Count = 0
    unknown: Count = 0
    produced: Amount | None = None
    consumed: Amount | None = None
    error: str = ""
    valid_for: Annotated[float, Gt(0)] = 60.0
