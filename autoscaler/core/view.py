"""Everything that is known of one model, folded from events: what `snapshot` shows to the decision.

Everything that carries another uid than the declaration is void. The newest window that comes before its declaration
waits for it: topics have no order between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from autoscaler.core.burning import Burning
from autoscaler.core.capacity import bearable, latencies
from autoscaler.core.engines import VALID, Engines, followed
from autoscaler.core.floors import NO_FLOOR, Floors, start_within
from autoscaler.core.gateways import World
from autoscaler.core.model import Decision, Demand, Memory, Reason, Replicas, Snapshot
from autoscaler.core.policy import Objective, ScalingPolicy, by_pool
from autoscaler.core.serving import Serving
from autoscaler.core.signals import NO_SIGNALS, Needed, Reading, Signals
from autoscaler.core.tiering import measured
from autoscaler.core.windows import Windows
from coldstart.core.estimate import StartEstimate
from coldstart.core.tiers import StartTimes
from events.kinds import carrier
from events.types.decisions import Tiers
from events.types.metrics import LagMeasured, QueryMeasured, ReplicaMetrics
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.requests import RequestWindow
from events.types.shared import Sketch
from events.units import Instant, Seconds

LOOK_AT_GROWTH = 1.5
"""A need that could not be met (bounds, failing starts) is looked at again at once when it has grown by half, as the
gateways' edges do; smaller changes wait for the tick."""


TIERS_EVERY = Seconds(600.0)
"""How likely it is that a model is asked within the hour changes slowly: it is told anew so often at most."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What the schedules want: `replicas` at least, until `changes_at` (None: for good)."""

    replicas: int = 0
    changes_at: Instant | None = None


NOT_SCHEDULED = Scheduled()


@dataclass(frozen=True, slots=True)
class Declared:
    """What the autoscaler needs of a declaration. `schedule` says what its schedules want at an instant; None: it has
    none. `own`: the policy without what the pool says; None: it is `policy`."""

    uid: str
    revision: int
    policy: ScalingPolicy
    deleted: bool = False
    schedule: Callable[[Instant], Scheduled] | None = None
    own: ScalingPolicy | None = None

    def priced(self, cost: Seconds | None) -> Declared:
        """The same where the pool says that a cold start is worth so many GPU-seconds."""
        own = self.own or self.policy
        return replace(self, policy=by_pool(own, cost), own=own)


@carrier
class Wish:
    """The last wish on record. `use`: see `Decision.use`. `tiers`: what else was told to be worth keeping.
    `unmeasured`: numbers from outside that were not known, and why is on record."""

    uid: str
    revision: int
    replicas: int
    reasons: tuple[Reason, ...]
    policy: ScalingPolicy | None
    recorded_at: Instant
    recommended: int | None = None
    use: tuple[int, bool] = (0, False)
    tiers: Tiers | None = None
    unmeasured: tuple[str, ...] = ()


@carrier
class _Observed:
    """A model's replicas, counted, at one instant. `first_ready_at`, `last_ready_at`: expected, of those that start."""

    uid: str = ""
    ready: int = 0
    starting: int = 0
    draining: int = 0
    first_ready_at: Instant | None = None
    last_ready_at: Instant | None = None
    failures: int = 0
    retry_at: Instant | None = None


NOTHING = _Observed()
NO_REPLICAS = Replicas()
NO_MEMORY = Memory()
KNOWN_ZERO = Demand(stable=0.0, panic=0.0)
UNKNOWN = Demand()


class ModelView:
    """Folds the events of one model. Times are append times of the log."""

    __slots__ = (
        "_ahead",
        "_burning",
        "_engines",
        "_estimate",
        "_floors",
        "_latencies",
        "_observed",
        "_serving",
        "_signals",
        "_sleeper_bytes",
        "_start_seconds",
        "_starts",
        "_unmeasured",
        "_windows",
        "cause",
        "decided_at",
        "declared",
        "dirty",
        "enough",
        "last",
        "memory",
        "model",
        "recording",
        "unsure",
        "wish",
    )  # fmt: skip

    def __init__(self, model: str) -> None:
        self.model = model
        self.declared: Declared | None = None
        self.wish: Wish | None = None
        self.memory = NO_MEMORY
        self.last: Decision | None = None
        self.cause: str | None = None
        """Id of the event that made the next decision urgent."""
        self.decided_at = Instant(0.0)
        self.recording = self.dirty = False
        """Whether a decision is on its way into the log, and whether something has happened since."""
        self.unsure = False
        """Whether a decision may stand in the log that the log did not confirm: then the next one is recorded, whatever
        it says."""
        self.enough = 0.0
        """Requests that the last decision is good for: more of them, and a new decision is urgent."""
        self._windows: Windows | None = None
        self._signals: Signals | None = None
        self._unmeasured: tuple[str, ...] = ()
        self._floors: Floors | None = None
        self._burning: Burning | None = None
        self._serving: Serving | None = None
        self._engines: Engines | None = None
        self._latencies: tuple[Objective, ...] = ()
        """Of what is declared."""
        self._observed = NOTHING
        self._estimate: StartEstimate | None = None
        self._start_seconds: Seconds | None = None
        self._starts: StartTimes | None = None
        """By the estimate, once somebody needs them: only where a cold start has a price."""
        self._sleeper_bytes: int | None = None
        self._ahead: tuple[str, RequestWindow, Instant] | None = None

    def declare(self, declared: Declared, at: Instant, world: World) -> None:
        """A declaration; another uid is another model of the same name."""
        was, self.declared = self.declared, declared
        self.enough = 0.0
        self._latencies = latencies(declared.policy)
        if not followed(declared.policy):
            self._engines = None
        elif self._engines is None or (was is not None and was.uid != declared.uid):
            self._engines = Engines()
        if was is not None and was.uid != declared.uid:
            self._windows = self._signals = self._floors = self._estimate = self._start_seconds = None
            self._burning = self._serving = self._starts = self._sleeper_bytes = None
            self.wish, self.memory = None, NO_MEMORY
        if self._windows is not None:
            self._windows.resize(declared.policy.stable_window, declared.policy.panic_window, at)
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self.window(*ahead, world)

    def window(self, source: str, window: RequestWindow, at: Instant, world: World) -> bool:
        """A gateway's window. True: the last decision is not good for what it tells."""
        declared = self.declared
        if declared is None or window.uid != declared.uid:
            self._ahead = (source, replace(window, held=Sketch(), first_byte=Sketch(), total=Sketch()), at)
            return False
        self._demand(declared).window(source, window, at, world)
        if declared.policy.objectives:
            if self._burning is None or self._burning.objectives != declared.policy.objectives:
                self._burning = Burning(declared.policy.objectives)
            self._burning.window(source, window, at)
        if declared.policy.learns:
            self._serve(declared, source, window, at)
        return self.pressed

    def metrics(self, told: ReplicaMetrics, at: Instant) -> bool | None:
        """What an engine says of itself. True as for `signal`; None: the model follows no such number."""
        if self._serving is not None:
            self._serving.metrics(told, at)
        if self._engines is None or self.declared is None:
            return None
        self._engines.take(told, at)
        self._signals = self._signals or Signals()
        policy, ready = self.declared.policy, self._observed.ready
        needs = 0.0
        for signal in followed(policy) if ready else ():
            assert signal.engine is not None
            total = self._engines.total(signal.engine, ready)
            needs = max(needs, self._signals.told(signal, total, VALID, at, policy))
        return self._asks(needs)

    def request(self, request: str, at: Instant, *, arrived: bool) -> bool:
        """A foreign gateway's request arrived or finished. True as for `window`."""
        if self.declared is None:
            return False
        windows = self._demand(self.declared)
        if arrived:
            windows.arrived(request, at)
        else:
            windows.finished(request, at)
        return self.pressed

    def activate(self, replicas: int, until: Instant | None, at: Instant) -> bool:
        """Somebody asks for replicas: until then (None: until they are ready, and the keep-alive after). True: more
        than the last wish."""
        declared = self.declared
        if declared is None:
            return False
        self._floors = self._floors or Floors()
        if until is None:
            latest = max(start_within(self._start_seconds), declared.policy.keep_alive)
            self._floors.open(replicas, Instant(at + latest), at, self._seen(declared).failures)
            self._settle(declared, self._floors, at)
        else:
            self._floors.ask(replicas, until, at)
        return self.wish is None or replicas > self.wish.replicas

    def signal(self, name: str, reading: Reading, at: Instant) -> bool:
        """A number from outside. True: it needs more than the last wish."""
        if self.declared is None:
            return False
        self._signals = self._signals or Signals()
        return self._asks(self._signals.measured(name, reading, at, self.declared.policy))

    def lag(self, measured: LagMeasured, at: Instant) -> bool:
        """The lag of a consumer group. True as for `signal`."""
        if self.declared is None:
            return False
        self._signals = self._signals or Signals()
        return self._asks(self._signals.lag(measured, at, self.declared.policy, self._observed.ready))

    def query(self, measured: QueryMeasured, at: Instant) -> bool:
        """What a metrics server said. True as for `signal`."""
        if self.declared is None:
            return False
        self._signals = self._signals or Signals()
        return self._asks(self._signals.query(measured, at, self.declared.policy))

    def observe(self, observed: ReplicasObserved, at: Instant) -> None:
        """The model's replicas, whole."""
        by_state = dict.fromkeys(ReplicaState, 0)
        starting: list[ReplicaStatus] = []
        for status in observed.replicas:
            by_state[status.state] += 1
            if status.state is ReplicaState.STARTING:
                starting.append(status)
            elif status.state is ReplicaState.SLEEPING:
                self._sleeper_bytes = status.resources.memory_bytes
        if self._estimate is not None or by_state[ReplicaState.READY]:
            self._estimate = self._estimate or StartEstimate()
            self._estimate.fold(observed)
            self._start_seconds = self._estimate.eta(at)
            self._starts = None
        starting.sort(key=lambda status: status.created_at or at)
        self._observed = _Observed(
            uid=observed.uid,
            ready=by_state[ReplicaState.READY],
            starting=len(starting),
            draining=by_state[ReplicaState.DRAINING] + by_state[ReplicaState.STOPPING],
            first_ready_at=self._ready_at(starting[0], at) if starting else None,
            last_ready_at=self._ready_at(starting[-1], at) if starting else None,
            failures=observed.failures,
            retry_at=None if observed.retry_at is None else Instant(observed.retry_at),
        )
        self.enough = 0.0
        if self._floors is not None and self.declared is not None:
            self._settle(self.declared, self._floors, at)

    def adopt(self, wish: Wish, memory: Memory) -> None:
        """The wish that stands in the log, from before this process."""
        self.wish, self.memory = wish, memory

    def inherit(self, other: ModelView) -> None:
        """Take the demand that another view of the same model has folded, since it knows more of the past."""
        self._windows, self._signals, self._floors = other._windows, other._signals, other._floors
        self._burning, self._serving = other._burning, other._serving
        if self._floors is not None and self.declared is not None and self.wish is not None:
            self._floors.settle_until(self.wish.recorded_at, self.declared.policy.keep_alive)

    @property
    def pressed(self) -> bool:
        """Whether more runs and waits than the last decision is good for."""
        return self._windows is not None and self._windows.level > self.enough

    def snapshot(self, now: Instant, world: World) -> Snapshot | None:
        """All that a decision sees; None before the model is declared."""
        declared, wish = self.declared, self.wish
        if declared is None:
            return None
        known = wish is not None and wish.uid == declared.uid
        observed = self._observed if self._observed.uid == declared.uid else NOTHING  # `_seen`, without a call
        floor = NO_FLOOR if self._floors is None else self._floors.now(now)
        signals = self._needed(declared, now)
        self._unmeasured = signals.unmeasured
        scheduled = NOT_SCHEDULED if declared.schedule is None else declared.schedule(now)
        rates = self._burning.measure(now) if self._burning is not None and declared.policy.objectives else None
        return Snapshot(
            model=self.model, uid=declared.uid, revision=declared.revision, taken_at=now,
            wished=wish.replicas if wish is not None and known else None,
            replicas=_counted(observed, now),
            demand=self._measured(declared, now, world, signals),
            memory=self.memory if known else NO_MEMORY,
            floor=floor.replicas, floor_until=floor.until, floor_open=floor.opened, signals=signals.seen,
            start_seconds=self._start_seconds,
            failures=observed.failures, retry_at=observed.retry_at,
            history_read=world.followed_since is not None, followed_since=world.followed_since,
            deleted=declared.deleted,
            scheduled=scheduled.replicas, schedule_changes_at=scheduled.changes_at,
            burn=None if rates is None else rates.mendable, failing=None if rates is None else rates.failing,
            served=self._serving.measure(now) if self._serving is not None and declared.policy.learns else None,
            starts=None if declared.policy.cold_start_cost is None else self._start_times(),
        )  # fmt: skip

    def record_at(self, decision: Decision, now: Instant, every: Seconds) -> Instant | None:
        """When to record a decision: now; or later, as only its reasons, what the replicas are for, or which numbers
        are unknown by a known cause differ and they were told less than `every` ago; or never (None), as it says
        nothing that the wish on record does not.

        That replicas are needed which were only kept is told at once: until then they may be given to others.
        """
        declared, wish = self.declared, self.wish
        assert declared is not None
        if wish is None or not self.stands or self.unsure:
            known = wish is not None and wish.uid == declared.uid
            return None if declared.deleted and not known else now
        if wish.replicas != decision.replicas or wish.recommended != decision.memory.recommended:
            return now
        if decision.kept < wish.use[0] or _asleep(wish.tiers) != _asleep(decision.tiers):
            return now
        if (wish.reasons, wish.use, wish.unmeasured) != (decision.reasons, decision.use, self._unmeasured):
            return max(now, Instant(wish.recorded_at + every))
        return None if wish.tiers == decision.tiers else max(now, Instant(wish.recorded_at + TIERS_EVERY))

    @property
    def stands(self) -> bool:
        """Whether the wish on record is of this declaration."""
        declared, wish = self.declared, self.wish
        if declared is None or wish is None:
            return False
        return (wish.uid, wish.revision, wish.policy) == (declared.uid, declared.revision, declared.policy)

    def is_of(self, uid: str) -> bool:
        """Whether the declaration still has this uid."""
        return self.declared is not None and self.declared.uid == uid

    def recorded(self, decision: Decision, declared: Declared, at: Instant) -> None:
        """The decision, taken for this declaration, stands in the log: it is the wish from now on."""
        self.unsure = False
        self.wish = Wish(
            declared.uid, declared.revision, decision.replicas, decision.reasons, declared.policy, at,
            decision.memory.recommended, decision.use, decision.tiers, self._unmeasured,
        )  # fmt: skip

    def decided(self, decision: Decision, at: Instant) -> None:
        """The decision stands, recorded or not: remember what it remembers."""
        assert self.declared is not None
        self.memory, self.last, self.decided_at = decision.memory, decision, at
        level = self._windows.level if self._windows is not None else 0
        met = decision.replicas * bearable(self.declared.policy, decision.memory.capacity).target
        self.enough = met if level <= met else level * LOOK_AT_GROWTH

    def _demand(self, declared: Declared) -> Windows:
        if self._windows is None:
            self._windows = Windows(declared.policy.stable_window, declared.policy.panic_window)
        return self._windows

    def _serve(self, declared: Declared, source: str, window: RequestWindow, at: Instant) -> None:
        if self._serving is None or self._serving.objectives != self._latencies:
            self._serving = Serving(self._latencies)
        if window.revision == declared.revision:
            self._serving.window(source, window, self._seen(declared).ready, at)

    def _seen(self, declared: Declared) -> _Observed:
        """The replicas, if they are of this declaration."""
        return self._observed if self._observed.uid == declared.uid else NOTHING

    def _settle(self, declared: Declared, floors: Floors, at: Instant) -> None:
        """Tell what is asked for what is there: as many as there may be are as good as all."""
        seen = self._seen(declared)
        ready = inf if seen.ready >= declared.policy.max_replicas else seen.ready
        floors.settle(ready, seen.failures, at, declared.policy.keep_alive)

    def _asks(self, replicas: float) -> bool:
        wish, declared = self.wish, self.declared
        asked = 0 if wish is None else wish.replicas
        return declared is not None and asked < declared.policy.max_replicas and replicas > asked

    def _needed(self, declared: Declared, now: Instant) -> Needed:
        if self._signals is None:
            if not declared.policy.signals:
                return NO_SIGNALS
            self._signals = Signals()
        policy = declared.policy
        if self._engines is not None and not self._observed.ready:  # nobody is there to tell: nothing is waited for
            for signal in followed(policy):
                self._signals.forget(signal.name)
            policy = replace(policy, signals=tuple([one for one in policy.signals if one.engine is None]))
        needed = self._signals.needed(now, policy)
        if not self._signals and not declared.policy.signals:
            self._signals = None
        return needed

    def _measured(self, declared: Declared, now: Instant, world: World, signals: Needed) -> Demand:
        if self._windows is None:
            if signals is NO_SIGNALS:
                return KNOWN_ZERO if world.followed_since is not None else UNKNOWN
            self._demand(declared)
        assert self._windows is not None
        return self._windows.measure(now, world, signals, self.memory.seconds)

    def _start_times(self) -> StartTimes | None:
        if self._starts is None and self._estimate is not None:
            self._starts = measured(self._estimate, self._sleeper_bytes)
        return self._starts

    def _ready_at(self, status: ReplicaStatus, at: Instant) -> Instant | None:
        """When a starting replica is expected to be ready; None before a start of this model was seen to its end."""
        left = self._estimate.eta(at, status.phases) if self._estimate is not None else None
        return None if left is None else Instant(at + left)


def _asleep(tiers: Tiers | None) -> int | None:
    return None if tiers is None else tiers.asleep


def _counted(observed: _Observed, now: Instant) -> Replicas:
    if observed is NOTHING:
        return NO_REPLICAS
    first, last = observed.first_ready_at, observed.last_ready_at
    return Replicas(
        ready=observed.ready,
        starting=observed.starting,
        draining=observed.draining,
        ready_in=None if first is None else max(0.0, first - now),
        all_ready_in=None if last is None else max(0.0, last - now),
    )
