"""The autoscaler's slice of a model's policy: plain numbers, resolved from the spec once."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Final

from autoscaler.core.peers import Options, RelumeOptions
from events.kinds import value
from events.units import Seconds

KEEP_ALIVE: Final = Seconds(300.0)
"""How long idle replicas live when nobody says."""

COST_MOST: Final = Seconds(604_800.0)
"""A week: beyond it a model that was ever needed is as good as always held; `minReplicas` says that better."""


@value
class LagPolicy:
    """Which consumer group's lag is measured, where, how often, and how many replicas it needs.

    `topic` empty: all topics that the group has committed in; `partitions` empty: all of them. `servers` and `cluster`
    both empty: the brokers of the event log. `target`: records a replica. `drain_within`: the lag is to be worked off
    in so long, once the rate of a replica is known; None: never asked. `from_earliest`: a group without a committed
    offset begins with the oldest record, else with the newest; `no_offset_is_zero`: then it has no lag at all.
    `exclude_after`: lag of a partition whose committed offset has stood still for so long does not size; None: it does.
    """

    group: str
    topic: str
    partitions: tuple[int, ...]
    servers: tuple[str, ...]
    cluster: str
    every: Seconds
    target: float
    drain_within: Seconds | None
    from_earliest: bool
    no_offset_is_zero: bool
    allow_idle_consumers: bool
    limit_to_partitions_with_lag: bool
    even_distribution: bool
    exclude_after: Seconds | None


class Series(StrEnum):
    """What is made of several time series that one query gives."""

    ONE = "one"
    """There must be one."""
    SUM = "sum"
    MAX = "max"


@value
class QueryPolicy:
    """A query of a metrics server: what is asked, where, how often.

    `server`: the name of one of --prometheus-servers, or its URL; empty: that of --prometheus. `empty_is_zero`: an
    answer without a series is 0; else it is unknown.
    """

    query: str
    server: str
    every: Seconds
    series: Series
    empty_is_zero: bool


class EngineNumber(StrEnum):
    """What engines tell of themselves."""

    RUNNING = "running"
    """Requests that run in them."""
    WAITING = "waiting"
    """Requests that wait in them."""
    KV_CACHE_USE = "kvCacheUse"
    """How full the cache of keys and values is: 1 is full. Added up, of two that are half full it is 1."""


@value
class SignalPolicy:
    """A number from outside that the model follows.

    `target`: the part of it that one replica takes; None: what the number's sender says. `activation`: a number that is
    not above it needs nothing. `lag`, `query`: it is the lag of a consumer group, or what a metrics server says; we
    measure it ourselves. `engine`: it is what the model's engines tell, added up.
    """

    name: str
    target: float | None = None
    activation: float = 0.0
    lag: LagPolicy | None = None
    query: QueryPolicy | None = None
    engine: EngineNumber | None = None


class Mode(StrEnum):
    """Whether decisions are acted on."""

    AUTO = "auto"
    """What is decided is wished."""
    RECOMMEND = "recommend"
    """What would be decided is recorded; the wish stays as it is."""
    PAUSED = "paused"
    """Nothing is decided; the wish stays as it is."""


@value
class SchedulePolicy:
    """At least `min_replicas` for `duration` from each time that `cron` names in `timezone` (an IANA name)."""

    cron: str
    timezone: str
    min_replicas: int
    duration: Seconds


class Promised(StrEnum):
    """What an objective is about."""

    FIRST = "first"
    """The time to the first token."""
    TOTAL = "total"
    """The time to the whole answer."""
    AVAILABILITY = "availability"
    """That there is an answer, and no error of ours."""


@value
class Objective:
    """This part of all answers comes within so many seconds of the request; of availability: comes, without an
    error."""

    part: float
    within: Seconds = Seconds(0.0)
    of: Promised = Promised.FIRST


@value
class ScalingPolicy:
    """How a model's replicas follow its demand. `target`: wanted concurrency a replica; `slots`: the most it bears.
    `cold_start_cost`: what a cold start is worth, in seconds of one idle replica; None: `keep_alive` counts. `options`:
    of the policy `name`, where it has some; None: its defaults. `wait_most`: how long a request may wait for a slot and
    still be answered as promised; None: nothing is promised. `objectives`: what is promised. `learns`: the user gave no
    target, so it is what was learned that a replica bears (`autoscaler.core.capacity`), `target` at most. `gpus`: what
    a replica takes, in GPUs (`coldstart.core.tiers.gpus_of`). `pool_cost`: what a cold start is worth in GPU-seconds by
    the pool, where `cold_start_cost` follows from it. `sleeps`: the declaration lets its replicas sleep.
    """

    name: str
    min_replicas: int
    max_replicas: int
    target: float
    slots: int
    keep_alive: Seconds
    stable_window: Seconds
    panic_window: Seconds
    priority: int
    signals: tuple[SignalPolicy, ...] = ()
    cold_start_cost: Seconds | None = None
    options: Options | None = None
    wait_most: Seconds | None = None
    objectives: tuple[Objective, ...] = ()
    mode: Mode = Mode.AUTO
    schedules: tuple[SchedulePolicy, ...] = ()
    learns: bool = False
    gpus: float = 1.0
    pool_cost: Seconds | None = None
    sleeps: bool = False


def extra_kept_for(policy: ScalingPolicy) -> Seconds:
    """How long what was needed beyond the first replica stays. Knative and KEDA part this from the last replica's time
    too (the stable window from `lastReplicaRetention`, stabilisation from `cooldown`)."""
    options = policy.options
    if not isinstance(options, RelumeOptions) or options.keep_extra is None:
        return policy.keep_alive
    return min(options.keep_extra, policy.keep_alive)


def by_pool(policy: ScalingPolicy, cost: Seconds | None) -> ScalingPolicy:
    """The policy where the pool says what a cold start is worth, in GPU-seconds. What a model says itself comes first:
    its own price, a keep-alive other than the default, or how long replicas beyond the first are kept."""
    silent = policy.cold_start_cost is None and policy.keep_alive == KEEP_ALIVE and policy.options is None
    if cost is None or not silent or policy.name != "relume":
        return policy
    return replace(policy, cold_start_cost=Seconds(min(COST_MOST, cost / policy.gpus)), pool_cost=cost)
