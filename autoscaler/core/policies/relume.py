"""relume's policy, first complete form: wake on an edge, size on a level, descend by averages, in steps.

The wish is absolute (demand ÷ target), so what is starting already is never asked for a second time, however long it
takes. It rises in one step and at once: by what runs and waits now, by the average of the panic window, by what others
ask for. It falls only when everything that speaks for more is known and silent: not in panic, not on unread history or
missing data, not before a stable window has passed since the last move, not by more than half at once. Each replica
lives for the keep-alive after it was needed last (those beyond the first for `keepExtra`, where that is shorter), the
last one after anybody asked; or, where a cold start has a price, to the end of the minute from which on the forecast no
longer finds it worth holding. A forecast only adds. Nothing here caps the wish by what is free: that is for the
allocator.
"""

from __future__ import annotations

from autoscaler.core.burn import urgency
from autoscaler.core.forecast.following import Following, begins_at, follow
from autoscaler.core.model import Decision, Memory, Reason, Snapshot, in_order
from autoscaler.core.peers import Sample, keep_most
from autoscaler.core.policies.sizing import EPSILON, UP_TOLERANCE, Sizing, up
from autoscaler.core.policy import ScalingPolicy, extra_kept_for
from autoscaler.core.tiering import newest, rungs_of, starts_at, told, warm_now
from autoscaler.core.windows import REMEMBERED, STABLE_CELLS
from coldstart.core.tiers import StartTimes
from events.units import Instant

DOWN_BAND = 0.10
"""One replica less is enough only if it leaves this part of its target free: the hysteresis against N ↔ N+1. HPA's
tolerance, as a part of one replica."""

PANIC_RATIO = 2
"""Panic: demand needs this many times the replicas there are. Knative's `panic-threshold-percentage` 200."""

STEP = 2
"""A descent leaves at least 1/STEP of the replicas. Knative's `max-scale-down-rate` 2.0, but for each stable window
instead of each two seconds."""

REGRET = 2.0
"""A rise within so many pauses after a descent regrets it. With `PATIENCE_MOST`: the exponential damping of route flaps
(RFC 2439) in its simplest form. It is asked only where the keep-alive does not damp."""

PATIENCE_MOST = 4
"""The pause between descents doubles at most so often: 16 stable windows."""

KEPT_MOST = 32
"""Steps of what was needed within the keep-alive that are remembered; more are merged into the higher one."""

GATHER = 0.05
"""Seconds after a rise before the next: a burst is measured for so long and then answered in one step. Half of the
100 ms within which design §1 wants it measured; a start takes many times as long."""

LOOK_AGAIN = 5.0
"""Seconds until a model that has requests is looked at again when it hears nothing: longer than the silence after which
its demand is unknown."""


class _Case:
    """One decision in the making: what is seen, worked out once, and what will be remembered."""

    __slots__ = (
        "base", "capacity", "current", "demand", "floor", "floor_open", "floor_until", "for_level", "forecast",
        "idle_at", "kept", "last_busy_at", "level", "lowered_at", "now", "panic_floor", "panic_until", "patience",
        "policy", "quiet", "raised_at", "sizing", "snapshot", "starts", "starts_at", "worth",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> None:
        demand, memory, replicas = snapshot.demand, snapshot.memory, snapshot.replicas
        self.snapshot, self.policy, self.now, self.demand = snapshot, policy, now, demand
        self.level = demand.running + demand.waiting
        self.sizing = Sizing(snapshot, policy)
        self.for_level = self.sizing.at_hand
        self.capacity = replicas.ready + replicas.starting
        self.current = self.capacity if snapshot.wished is None else snapshot.wished
        self.raised_at = _past(memory.raised_at, now)
        self.lowered_at, self.patience = _past(memory.lowered_at, now), memory.patience
        self.panic_until, self.panic_floor = memory.panic_until, memory.panic_floor
        if self.panic_until is not None and not now < self.panic_until <= now + policy.stable_window:
            self.panic_until, self.panic_floor = None, 0
        self.kept = memory.kept
        self.floor = 0
        self.floor_until: float | None = None
        self.floor_open = False
        if memory.floor_until is not None or snapshot.floor_until is not None:
            self._floors()
        self.quiet = not (self.level or demand.silent or self.floor or demand.signal or demand.stale_signals)
        self.last_busy_at = now if demand.signal else _past(_later(demand.last_active_at, memory.last_busy_at), now)
        since = snapshot.followed_since if self.last_busy_at is None else self.last_busy_at
        self.idle_at = now if since is None else since + policy.keep_alive
        self.base = max(policy.min_replicas, self.floor, up(demand.signal, EPSILON))
        self.forecast: Following | None = None
        self.worth = 0
        self.starts_at: float | None = None
        self.starts: StartTimes | None = None
        if policy.cold_start_cost is not None:
            self._foresee(since)

    def _foresee(self, since: float | None) -> None:
        """What is worth holding, in place of the keep-alive. What was needed in this grain stays to its end.

        Of a model that nobody has asked for yet nothing is held, though the forecast does not rule it out: it may have
        been declared for tomorrow.
        """
        needed = max(self.for_level, up(self.demand.signal, EPSILON))
        self.forecast = follow(self.snapshot.memory.forecast, needed, self.last_busy_at, self.now)
        self.starts = newest(self.snapshot.starts, self.snapshot.memory.starts)
        rungs = rungs_of(self.policy, self.starts)
        if self.last_busy_at is not None and rungs is not None:
            start = self.snapshot.start_seconds
            self.worth = min(warm_now(self.forecast, rungs, start, self.now), self.policy.max_replicas)
            self.starts_at = starts_at(self.forecast, start)
        self.base = max(self.base, self.worth)
        busy = since is not None and since >= begins_at(self.forecast)
        self.idle_at = Instant(self.forecast.ends_at) if busy else self.now
        self.quiet = self.quiet and not self.worth

    def _floors(self) -> None:
        """What activations ask for now; after a restart, from memory.

        What memory has open ends as the view's does: once ready, or once a start failed, the keep-alive is left of it.
        """
        snapshot, memory, now = self.snapshot, self.snapshot.memory, self.now
        until, opened = memory.floor_until, memory.floor_open
        if until is not None and opened and now < until:
            ready = snapshot.replicas.ready >= min(memory.floor, self.policy.max_replicas)
            if ready or snapshot.failures:
                until, opened = now + self.policy.keep_alive, False
        if until is not None and now < until:
            self.floor, self.floor_until, self.floor_open = memory.floor, until, opened
        if snapshot.floor_until is None or now >= snapshot.floor_until or snapshot.floor < self.floor:
            return
        # An activation that was read back has the keep-alive from its own time: what memory has open outlives it.
        if snapshot.floor > self.floor or snapshot.floor_open or not self.floor_open:
            self.floor, self.floor_until = snapshot.floor, snapshot.floor_until
            self.floor_open = snapshot.floor_open


def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """How many replicas the model should have. (Ten thousand models are decided in turn: what is needed twice is worked
    out once, and common cases come first.)"""
    case = _Case(snapshot, policy, now)
    asked, why = _asked(case)
    _panic(case, asked)
    if _keeps(policy):
        tells = snapshot.replicas.ready and (case.sizing.known or not snapshot.demand.waiting)
        _keep(case, _for_bursts(case) if tells else 0)
    most = max(asked, case.base, case.panic_floor)
    if most > case.current:
        if most > case.base and _gathers(case):
            if case.base <= case.current:
                return _done(case, case.current, _reasons_to_rise(case, why), (case.raised_at or now) + GATHER)
            most = case.base  # what does not hang on the burst need not wait for it
        return _rise(case, most, why if most == asked else _other_reason(case, most))
    if case.quiet and (case.current <= policy.min_replicas or _idle(case)):
        return _rest(case)
    held = _held(case) if case.current > case.base else None
    if held is not None:
        return _done(case, case.current, {held}, now + LOOK_AGAIN)
    return _fall(case)


def _asked(case: _Case) -> tuple[int, Reason]:
    """Replicas that demand needs now: by its level, and by the panic window's average where there are replicas."""
    if not case.level:
        return 0, Reason.LOAD
    level = case.for_level
    if case.demand.panic is not None and case.current:
        average = _average(case, case.policy.target)
        if average > level:
            return average, Reason.LOAD
    return level, Reason.BACKLOG if case.demand.waiting else Reason.LOAD


def _average(case: _Case, target: float) -> int:
    """What averages need: what lasts for the panic window needs its share, what lasts for the stable window all of it,
    so many requests a replica. (Without a promise the share is one, and the stable window asks for nothing that the
    panic window does not.)"""
    average = up(case.sizing.lately, UP_TOLERANCE)
    if not case.sizing.parted or case.demand.stable is None:
        return average
    return max(average, up(case.sizing.lasting * case.policy.target / target, UP_TOLERANCE))


def _for_bursts(case: _Case) -> int:
    """What would serve again what comes now, with all slots in use: what is to stay free of them is asked for while it
    is, and not kept."""
    if not case.level:
        return 0
    return max(case.for_level, _average(case, case.policy.slots) if case.demand.panic is not None else 0)


def _keeps(policy: ScalingPolicy) -> bool:
    """Whether what was needed stays for the keep-alive. With a price of a cold start the forecast says what stays."""
    return policy.cold_start_cost is None and extra_kept_for(policy) > policy.stable_window


def _keep(case: _Case, asked: int) -> None:
    """Remember what was needed within the keep-alive: each replica lives so long after it was needed last.

    (What HPA calls stabilisation, over the time that the user gave for the last replica anyway. What gathered before
    anything was ready, or before it was known how long a request takes, tells of the start and not of the load: it is
    not kept.)
    """
    since = case.now - extra_kept_for(case.policy)
    if not asked and not case.kept:
        return
    kept = tuple(one for one in case.kept if one.at <= case.now)
    case.kept = (
        keep_most(kept, Sample(at=case.now, amount=float(asked)), since, KEPT_MOST)
        if asked
        else tuple(one for one in kept if one.at > since)
    )


def _panic(case: _Case, asked: int) -> None:
    """Enter or prolong panic when demand is far above what is ready or starting."""
    if asked >= PANIC_RATIO * (case.capacity or 1):
        case.panic_until = Instant(case.now + case.policy.stable_window)
        case.panic_floor = max(case.panic_floor, min(asked, case.policy.max_replicas))


def _other_reason(case: _Case, most: int) -> Reason:
    """Why the wish must rise though demand alone does not ask for it."""
    if most == case.policy.min_replicas:
        return Reason.AT_LEAST_MIN
    if most == case.floor:
        return Reason.REQUESTED
    if most == case.worth:
        return Reason.FORECAST
    return Reason.SIGNAL if most == case.base else Reason.PANIC


def _rise(case: _Case, most: int, why: Reason) -> Decision:
    """More, in one step; held back only by the bound and by starts that fail."""
    reasons = _reasons_to_rise(case, why)
    replicas = min(most, case.policy.max_replicas)
    if replicas < most:
        reasons.add(Reason.AT_MOST_MAX)
    at_least = max(case.current, 1)
    if case.snapshot.failures and replicas > at_least:
        replicas = at_least
        reasons.add(Reason.STARTS_FAIL)
    if replicas > case.current:
        first = case.lowered_at is not None and (case.raised_at is None or case.raised_at <= case.lowered_at)
        if case.current and first and case.lowered_at is not None:  # a descent is regretted once, not by each step up
            regretted = case.now - case.lowered_at <= REGRET * _pause(case)
            case.patience = min(PATIENCE_MOST, case.patience + 1) if regretted else max(0, case.patience - 1)
        case.raised_at = case.now
    return _done(case, replicas, reasons, case.now + LOOK_AGAIN)


def _reasons_to_rise(case: _Case, why: Reason) -> set[Reason]:
    reasons = {why}
    if case.level and not case.snapshot.replicas.ready:
        reasons.add(Reason.ACTIVATION)
    if case.panic_until is not None:
        reasons.add(Reason.PANIC)
    return reasons


def _gathers(case: _Case) -> bool:
    """Whether the last rise was only now: the burst that caused it is still being measured."""
    return case.current > 0 and case.raised_at is not None and case.now < case.raised_at + GATHER


def _idle(case: _Case) -> bool:
    """Whether nobody is known to have asked for the keep-alive: unknown is no proof."""
    return case.now >= case.idle_at and case.snapshot.history_read


def _rest(case: _Case) -> Decision:
    """Nobody asks: what must be there stays."""
    least = case.policy.min_replicas
    case.panic_until, case.panic_floor, case.patience = None, 0, 0
    if _idle(case):  # else a schedule or an objective holds it for now: what bursts needed stays known
        case.kept = ()
    reasons = {Reason.IDLE, Reason.AT_LEAST_MIN} if least else {Reason.IDLE}
    return _done(case, least, reasons, None)


def _held(case: _Case) -> Reason | None:
    """What forbids taking anything away."""
    if not case.snapshot.history_read:
        return Reason.HISTORY_UNREAD
    if case.demand.stable is None:
        return Reason.DEMAND_UNKNOWN
    return Reason.SIGNAL_STALE if case.demand.stale_signals else None


def _fall(case: _Case) -> Decision:
    """Fewer, if the stable window leaves room, in steps; else as many."""
    now, current = case.now, case.current
    if case.snapshot.wished is None:
        case.raised_at = now  # what is there without a wish begins to count now
    if case.panic_until is not None and current > case.base:
        return _done(case, current, {Reason.PANIC}, case.panic_until)
    fit = _fit(case)
    stable = case.demand.stable or 0.0
    calm = {_calm(case, stable)}
    if fit >= current:
        # Averages fall by themselves once the windows have ended, and no event will tell.
        waits = case.quiet and (current > max(1, case.base) or stable > EPSILON)
        again = _fallen(case) if waits else None
        if case.kept and current > 1 and fit == int(case.kept[0].amount):
            again = case.kept[0].at + extra_kept_for(case.policy)
        return _done(case, current, calm, again)
    moved_at = _later(case.raised_at, case.lowered_at)
    if moved_at is not None and now < moved_at + _pause(case):
        return _done(case, current, calm, moved_at + _pause(case))
    replicas = max(fit, current - max(1, current // STEP))
    case.lowered_at = now
    reasons = {Reason.DESCENT} if replicas == fit else {Reason.DESCENT, Reason.STEP_LIMIT}
    return _done(case, replicas, reasons, now + _pause(case) if replicas > fit else now + LOOK_AGAIN)


def _fallen(case: _Case) -> float:
    """When the averages of a quiet model have fallen. Of its last replica nothing changes before all of them have: so
    it is looked at once, and not a dozen times."""
    soon = case.now + max(1.0, case.policy.stable_window / 12)
    if case.current > max(1, case.base) or case.last_busy_at is None:
        return soon
    return max(soon, case.last_busy_at + case.policy.stable_window * (1.0 + 1.0 / STABLE_CELLS))


def _fit(case: _Case) -> int:
    """Fewest replicas that demand leaves room for; the last one stays until nobody has asked for the keep-alive."""
    average = max(case.sizing.lasting, case.sizing.lately)
    signal = up(case.demand.signal_recent, EPSILON)
    kept = int(case.kept[0].amount) if case.kept else 0
    return max(1, case.base, signal, kept, case.for_level, _occupied(case), up(average + DOWN_BAND, EPSILON))


def _occupied(case: _Case) -> int:
    """While others wait, none goes whose slots are in use: working a backlog off slowly is no reason to have fewer."""
    return up(case.demand.running / case.policy.slots, EPSILON) if case.demand.waiting else 0


def _only_kept(case: _Case, replicas: int) -> int:
    """How many of them only live on: nothing has needed them for a stable window. Unknown is not idle.

    Where it is not remembered when what was needed, none as long as the window has seen any request.
    """
    demand, policy = case.demand, case.policy
    if demand.stable is None or demand.silent or demand.stale_signals or not case.snapshot.history_read:
        return 0
    if _keeps(policy):
        since = case.now - policy.stable_window
        needed = int(max((one.amount for one in case.kept if one.at > since), default=0.0))
        needed = max(needed, int(demand.stable > EPSILON))  # what woke it is not remembered as its load
    else:
        needed = replicas if demand.stable > EPSILON else 0
    signal = up(max(demand.signal, demand.signal_recent), EPSILON)
    needed = max(needed, case.for_level, _occupied(case))
    return max(0, replicas - max(policy.min_replicas, case.floor, signal, needed))


def _calm(case: _Case, stable: float) -> Reason:
    """Why nothing changes while nothing presses."""
    if case.floor and case.current == case.floor:
        return Reason.REQUESTED
    if case.worth and case.current <= case.worth and not case.level:
        return Reason.FORECAST
    if case.demand.signal_recent and case.current <= max(case.base, up(case.demand.signal_recent, EPSILON)):
        return Reason.SIGNAL
    if case.demand.stale_signals and not case.level:
        return Reason.SIGNAL_STALE
    kept = case.current > 1 and bool(case.kept) and case.kept[0].at < case.now
    return Reason.KEEP_ALIVE if kept or (case.quiet and stable <= EPSILON) else Reason.STEADY


def _pause(case: _Case) -> float:
    """Seconds between two moves before the second may be a descent."""
    return case.policy.stable_window * (1 << case.patience if not _keeps(case.policy) else 1)


def _past(instant: float | None, now: Instant) -> float | None:
    """A remembered instant, at the latest now: the wall clock may have been set back between two processes."""
    return now if instant is not None and instant > now else instant


def _later(one: float | None, other: float | None) -> float | None:
    """The later of two instants that may be unknown."""
    if one is None:
        return other
    return one if other is None or one >= other else other


def _done(case: _Case, replicas: int, reasons: set[Reason], again: float | None) -> Decision:
    """The decision, with what it remembers, what one replica more is worth, and when to look again."""
    memory = Memory(
        panic_until=case.panic_until, panic_floor=case.panic_floor, last_busy_at=case.last_busy_at,
        raised_at=case.raised_at, lowered_at=case.lowered_at, patience=case.patience,
        floor=case.floor, floor_until=case.floor_until, floor_open=case.floor_open, forecast=case.forecast,
        kept=case.kept if case.level or replicas else (), starts=case.starts, seconds=_seconds(case),
    )  # fmt: skip
    tiers = None
    if case.forecast is not None and case.last_busy_at is not None:
        tiers = told(case.forecast, case.policy, case.starts, replicas)
    return Decision(
        replicas=replicas,
        reasons=in_order(reasons),
        memory=memory,
        again_at=_again(case, replicas, again),
        marginal_gain=_gain(case),
        deadline=case.demand.earliest_deadline if case.demand.waiting else None,
        kept=_only_kept(case, replicas) if replicas > case.for_level else 0,
        tiers=tiers,
    )


def _seconds(case: _Case) -> float | None:
    """How long a request runs, to be remembered: as before, until enough have ended to know better."""
    was = case.snapshot.memory.seconds
    return case.demand.seconds_per_request if was is None or case.demand.finished >= REMEMBERED else was


def _again(case: _Case, replicas: int, again: float | None) -> float | None:
    """The next instant at which something changes by time alone."""
    soonest, now = again, case.now
    if case.level:
        rests_at: float | None = now + LOOK_AGAIN
    else:
        rests_at = case.idle_at if case.quiet and replicas > case.policy.min_replicas else None
    grain_ends_at = None if case.forecast is None else case.forecast.ends_at
    for time in (rests_at, case.floor_until, case.demand.changes_at, case.starts_at, grain_ends_at):
        if time is not None and time > now and (soonest is None or soonest <= now or time < soonest):
            soonest = time
    return None if soonest is None or soonest <= now else soonest


def _gain(case: _Case) -> float:
    """Requests that one replica more would take and no other does, divided by the replicas there would then be.

    The division is the proportional fairness of Kelly (1998): the first replica of a model weighs more than the tenth
    of another. While a promise burns its requests weigh more (`urgency`).
    """
    target = case.policy.target
    unserved = case.level - case.capacity * target
    return urgency(case.snapshot) * min(target, unserved) / (1 + case.capacity) if unserved > 0.0 else 0.0
