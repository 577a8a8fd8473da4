"""What a decision sees, remembers and says. Nothing here knows what a process or a GPU is.

All of it is frozen (to the type checker: `events.kinds.hot_value`) and travels as JSON (`autoscaler.codec`), so that a
decision can be taken again from its record. None means unknown, which is not zero.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

from autoscaler.core.capacity import Capacity, Evidence
from autoscaler.core.forecast.following import Following
from autoscaler.core.peers import PeerMemory, Sample
from autoscaler.core.policy import ScalingPolicy
from coldstart.core.tiers import StartTimes
from events.kinds import hot_value
from events.types.decisions import Tiers
from events.types.shared import Amount, At, Count
from events.units import Instant


class Reason(StrEnum):
    """Why a number is what it is. A decision lists its reasons in this order: demand, holds, descent, bounds."""

    __hash__ = str.__hash__  # an Enum's own is a function of Python, and each decision makes a set of reasons

    ACTIVATION = "Activation"
    """Somebody waits and no replica is ready."""
    BACKLOG = "Backlog"
    """What runs and waits now needs more replicas."""
    LOAD = "Load"
    """Demand, averaged over the panic window, needs more replicas."""
    REQUESTED = "Requested"
    """Somebody asked that the model be awake."""
    SIGNAL = "Signal"
    """A number from outside needs more replicas."""
    FORECAST = "Forecast"
    """So many are likely to be needed soon that holding them costs less than their cold starts."""
    SLO_BURN = "SloBurn"
    """Answers came later than promised, or were refused, more of them than the objective can bear."""
    SCHEDULED = "Scheduled"
    """A schedule wants at least so many now."""
    FAILING = "Failing"
    """More answers fail than the promised availability can bear. Nothing is added for it: more replicas of what is
    broken are as broken."""
    CAPACITY = "Capacity"
    """The tokens made now are more than so few replicas were learned to make as promised."""
    PANIC = "Panic"
    """Demand was twice what there was: nothing is taken away for one stable window."""
    STARTS_FAIL = "StartsFail"
    """The last start failed: no more are asked for until one succeeds."""
    HISTORY_UNREAD = "HistoryUnread"
    """Past demand has not been read back yet: nothing is taken away."""
    DEMAND_UNKNOWN = "DemandUnknown"
    """A gateway fell silent while it had requests, or part of the window was lost: nothing is taken away."""
    SIGNAL_STALE = "SignalStale"
    """A number from outside has run out, or was never told: nothing is taken away."""
    STEADY = "Steady"
    """Demand fits."""
    KEEP_ALIVE = "KeepAlive"
    """Nobody asks; what is idle lives on for the keep-alive."""
    DESCENT = "Descent"
    """Demand of the stable window needs fewer."""
    STEP_LIMIT = "StepLimit"
    """Fewer, but not more than half at once."""
    IDLE = "Idle"
    """Nobody has asked for the keep-alive."""
    DELETED = "Deleted"
    """The model is no longer declared."""
    AT_LEAST_MIN = "AtLeastMin"
    """`minReplicas` holds it up."""
    AT_MOST_MAX = "AtMostMax"
    """`maxReplicas` holds it down."""
    POLICY_UNKNOWN = "PolicyUnknown"
    """No policy has this name: the last wish stands."""
    POLICY_FAILED = "PolicyFailed"
    """The policy raised an error: the last wish stands."""
    POLICY_REPLACED = "PolicyReplaced"
    """The model's own policy failed again and again: relume decides in its place."""
    OWN_POLICY = "OwnPolicy"
    """The model's own policy said so."""
    RECOMMENDED = "Recommended"
    """Only recommended: the model's mode is `recommend`, so the last wish stands."""
    PAUSED = "Paused"
    """The model's mode is `paused`: the last wish stands."""


REASON_RANK = {reason: rank for rank, reason in enumerate(Reason)}
_ALONE = {reason: (reason,) for reason in Reason}
"""The tuple of one reason alone: what most decisions say."""


def in_order(reasons: set[Reason]) -> tuple[Reason, ...]:
    """The reasons in the order of `Reason`."""
    if len(reasons) == 1:
        (only,) = reasons
        return _ALONE[only]
    return _in_order(frozenset(reasons))


@lru_cache(maxsize=256)
def _in_order(reasons: frozenset[Reason]) -> tuple[Reason, ...]:
    """Few sets of reasons occur, again and again; each has one tuple for all decisions."""
    return tuple(sorted(reasons, key=REASON_RANK.__getitem__))


@hot_value
class Replicas:
    """A model's replicas by state. Starting ones are capacity that is on its way; draining ones are not.

    `ready_in`, `all_ready_in`: expected seconds until the first and the last of those that start are ready.
    """

    ready: Count = 0
    starting: Count = 0
    draining: Count = 0
    ready_in: Amount | None = None
    all_ready_in: Amount | None = None


@hot_value
class LagSeen:
    """Of a consumer group's lag, besides its number: see `events.types.metrics.LagMeasured`.

    `per_replica`: records a second that one replica does, as it was learned. `wanted`: replicas before the cap `most`;
    `drained`: by time to drain, else by records a replica.
    """

    standing: Amount
    partitions: Count
    with_lag: Count
    unknown: Count = 0
    produced: Amount | None = None
    consumed: Amount | None = None
    per_replica: Amount | None = None
    wanted: Amount
    drained: bool = False
    most: Count | None = None


@hot_value
class SignalSeen:
    """A number from outside: what it was, how old, how many replicas it needs (None: it has run out, or never came).

    `error`: why it could not be measured the last time.
    """

    name: str
    need: Amount | None = None
    value: Amount | None = None
    target: Amount | None = None
    age: Amount | None = None
    error: str = ""
    lag: LagSeen | None = None


@hot_value
class Demand:
    """Who asks, summed over gateways.

    `running`, `waiting`: requests now, as the newest windows say. `stable`, `panic`: concurrency (running + waiting)
    averaged over time in the two windows. `oldest_waiting`: age in seconds. `last_active_at`: when something last ran,
    waited or arrived. `silent`: gateways that fell silent while they had requests; `age`: seconds since the stalest
    window of a gateway with requests; `coverage`: the part of the stable window for which there is data. `signal`:
    replicas that numbers from outside need, `signal_recent`: the most they needed in the stable window;
    `stale_signals`: how many of those numbers have run out, or were declared and never came. `seconds_per_request`: how
    long a request runs; of few that have ended (`finished`, fading) what was remembered counts as much as eight.
    `lately`: requests that arrived within the last `seconds_per_request`; None: not known.
    """

    running: Count = 0
    waiting: Count = 0
    stable: Amount | None = None
    panic: Amount | None = None
    oldest_waiting: Amount | None = None
    earliest_deadline: At | None = None
    last_active_at: At | None = None
    arrivals_per_second: Amount = 0.0
    seconds_per_request: Amount | None = None
    finished: Amount = 0.0
    lately: Amount | None = None
    silent: Count = 0
    age: Amount | None = None
    coverage: Amount = 1.0
    signal: Amount = 0.0
    signal_recent: Amount = 0.0
    stale_signals: Count = 0
    changes_at: At | None = None


@hot_value
class Memory:
    """What the last decision remembered.

    `panic_until`, `panic_floor`: the wish is at least `panic_floor` until then. `last_busy_at`: when somebody last
    asked. `raised_at`, `lowered_at`: when demand last moved the wish up or down. `patience`: how often in a row a
    descent was regretted; each time doubles the pause before the next. `floor`, `floor_until`: what an activation
    asked for; `floor_open`: it has not been ready yet, and this is only its latest end. `forecast`: of a model with a
    cold-start cost, when it was needed and what that taught. `kept`: what was needed within the keep-alive, falling,
    each with when it last was. `peer`: what another policy than relume remembers. `recommended`: what the policy would
    have in the mode `recommend`, where the wish stands. `burn_floor`, `burn_until`: replicas that a burning objective
    asked for. `capacity`: what was learned that one replica bears. `starts`: of a model with a cold-start cost, the
    start times that were measured last. `seconds`: how long a request last ran on average.
    """

    panic_until: At | None = None
    panic_floor: Count = 0
    last_busy_at: At | None = None
    raised_at: At | None = None
    lowered_at: At | None = None
    patience: Count = 0
    floor: Count = 0
    floor_until: At | None = None
    floor_open: bool = False
    forecast: Following | None = None
    kept: tuple[Sample, ...] = ()
    peer: PeerMemory | None = None
    recommended: Count | None = None
    burn_floor: Count = 0
    burn_until: At | None = None
    capacity: Capacity | None = None
    starts: StartTimes | None = None
    seconds: Amount | None = None


@hot_value
class Burn:
    """How fast the error budget of an objective is used up: 1.0 is exactly as fast as it may be. The pairs of windows
    are those of Google's SRE workbook, chapter 5; None: too few answers in the window."""

    fast: Amount | None = None
    fast_now: Amount | None = None
    slow: Amount | None = None
    slow_now: Amount | None = None


@hot_value
class Snapshot:
    """All that a decision about one model sees.

    `wished`: the last wish, None when there is none on record. `floor`: replicas that activations ask for until
    `floor_until`; `floor_open`: they have not been ready since, and this is only the latest end. `signals`: the numbers
    from outside, one by one (`demand` has what they say together). `start_seconds`: how long a start is expected to
    take. `failures`, `retry_at`: failed starts since the last success, and when the next is tried. `history_read`: past
    windows have been read back; what is known begins at `followed_since`. `scheduled`: the least that a schedule wants
    now; `schedule_changes_at`: when that changes. `burn`: how fast an objective is used up by what is late or refused;
    `failing`: how fast the promised availability is, by errors; None without one. `served`: what a replica carried
    lately. `starts`: measured start times, of a model with a cold-start cost.
    """

    model: str
    uid: str
    revision: Count
    taken_at: At
    wished: Count | None
    replicas: Replicas
    demand: Demand
    memory: Memory
    floor: Count = 0
    floor_until: At | None = None
    floor_open: bool = False
    signals: tuple[SignalSeen, ...] = ()
    start_seconds: Amount | None = None
    failures: Count = 0
    retry_at: At | None = None
    history_read: bool = False
    followed_since: At | None = None
    deleted: bool = False
    scheduled: Count = 0
    schedule_changes_at: At | None = None
    burn: Burn | None = None
    failing: Burn | None = None
    served: Evidence | None = None
    starts: StartTimes | None = None


@hot_value
class Decision:
    """What should be. `again_at`: when to look again though nothing has happened (None: no need).

    `marginal_gain` orders wishes of equal priority. `deadline`: after it the first of the held requests is in vain.
    `kept`: so many of `replicas` only live on: nothing has needed them for a stable window (0: all may be needed).
    `waits`: requests wait, and fewer replicas are ready than are wished. `tiers`: what else is worth keeping.
    """

    replicas: Count
    reasons: tuple[Reason, ...]
    memory: Memory
    again_at: At | None = None
    marginal_gain: Amount = 0.0
    deadline: At | None = None
    kept: Count = 0
    waits: bool = False
    tiers: Tiers | None = None

    @property
    def use(self) -> tuple[Count, bool]:
        """What the replicas are wished for: see `kept` and `waits`."""
        return self.kept, self.waits


Policy = Callable[[Snapshot, ScalingPolicy, Instant], Decision]
"""How a policy decides: a pure function. It may give any number; `autoscaler.core.decide` holds it to the bounds."""
