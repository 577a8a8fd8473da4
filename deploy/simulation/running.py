"""One policy over one trace of requests: events in order of time, on a simulated clock.

A gateway (a queue and slots a model, and the live gateway's own meters), the autoscaler (`scaling`), the pool (`pool`).
Requests wait first come first served and are bound to a slot when there is one. Nothing is random but what the seed
draws, and that is the same for all policies: the n-th start of a model takes as long under each.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.core.model import Decision, Policy
from autoscaler.core.policy import ScalingPolicy
from deploy.simulation.pool import Group, Meterage, Pool, Replica
from deploy.simulation.requests import RequestTrace
from deploy.simulation.scaling import UID, Scaler
from deploy.simulation.setting import Setting
from deploy.simulation.working import Asked, Fixed, Sharing, Work
from events.types.requests import RequestWindow
from events.units import Instant
from preemption.core.view import Wish
from runtime.core.meter import NOBODY_WAITS, MeterKey, Meters, Waiting
from runtime.ports import Ending, Outcome

BEGINS: Final = 1_600_000_000.0
"""The simulated clock at the first arrival. A round number whose minutes begin at whole minutes."""

GATEWAY: Final = "simulated"
SOURCE: Final = "relume/gateway/simulated"
REFUSED: Final = float("inf")
"""Held so long: never answered."""

FLAP: Final = 300.0
"""Seconds within which more after less is a flap, as at the grain of minutes."""

TOLD_EACH: Final = 4096
"""Events between two words about progress."""


@dataclass(frozen=True, slots=True)
class Wished:
    """A wish that went on record."""

    at: float
    model: str
    replicas: int


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What came of it. `held`, `first`: seconds that each request waited for a slot, and for its first token; infinite:
    it was refused. `activations`: how often a model was asked for and had nothing ready."""

    held: array[float]
    first: array[float]
    cost: Meterage
    activations: int
    decisions: int
    recorded: int
    policy_failures: int
    wishes: tuple[Wished, ...]
    seconds: float


class Simulation:
    """See the module. `policies`: of each model of the trace; `own`: policies beside those that have a name. `span`:
    of the whole trace, if this is a part."""

    def __init__(  # noqa: PLR0913 - what is simulated, and who is told
        self, trace: RequestTrace, policies: Mapping[str, ScalingPolicy], setting: Setting,
        own: Mapping[str, Policy] | None = None, progress: Callable[[int], None] | None = None, *,
        span: float | None = None,
    ) -> None:  # fmt: skip
        self._trace, self._setting, self._progress = trace, setting, progress
        self._span = trace.span if span is None else span
        self._pool = Pool(setting, self._observed)
        self._scaler = Scaler(Instant(BEGINS), self._wished, own or {})
        self._meters = Meters(GATEWAY)
        priorities = dict(setting.priorities)
        self._groups = [Group(name, priorities.get(name, 100), []) for name in trace.names]
        self._by_name = {group.model: group for group in self._groups}
        self._numbers = {name: at for at, name in enumerate(trace.names)}
        self._keys = [MeterKey(name, UID, 1) for name in trace.names]
        self._queued: set[int] = set()
        self._waiting: list[deque[int]] = [deque() for _ in trace.names]
        work = Sharing if setting.sharing else Fixed
        self._work: Work = work(setting, BEGINS, self._answers)
        self._arrived = (trace.arrived + BEGINS).tolist()
        self._model = trace.model.tolist()
        self._held = array("d", bytes(8 * len(trace)))
        self._first = array("d", [REFUSED]) * len(trace)
        self._woken = [False] * len(trace.names)
        self._wishes: list[Wished] = []
        self._activations = 0
        for name in trace.names:
            self._scaler.declare(name, policies[name], Instant(BEGINS))

    def run(self) -> Run:
        """To the end: the last arrival, and what settles after it."""
        ends = BEGINS + self._span + self._setting.settles
        arrived, count, following, events = self._arrived, len(self._arrived), 0, 0
        work, pool, meters, scaler = self._work, self._pool, self._meters, self._scaler
        scaler.work(Instant(BEGINS))
        while True:
            now = arrived[following] if following < count else float("inf")
            done_at = work.next_at()
            for at in (done_at, pool.next_at(), meters.tick_at, scaler.next_at()):
                if at is not None and at < now:
                    now = at
            if now > ends:
                break
            events += 1
            if done_at <= now:
                for request, replica in work.due(now):
                    self._finish(request, replica, now)
            pool.due(now)
            while following < count and arrived[following] <= now:
                self._arrive(following, now)
                following += 1
            if meters.tick_at is not None and meters.tick_at <= now:
                self._tick(now)
            scaler.work(Instant(now))
            if self._progress is not None and not events % TOLD_EACH:
                self._progress(following)
        return self._ended(ends)

    # -- the gateway

    def _arrive(self, request: int, now: float) -> None:
        model = self._model[request]
        group = self._groups[model]
        meter = self._meters.get(self._keys[model], Instant(now))
        if group.free > 0 and not self._waiting[model]:
            meter.start_at_once(Instant(now))
            self._serve(request, group, now)
        else:
            if not group.ready and not self._woken[model]:
                self._activations += 1
                self._woken[model] = True
            meter.arrive(Instant(now))
            meter.wait(Instant(now))
            self._waiting[model].append(request)
            self._queued.add(model)
        if meter.edge:
            self._tell(meter.window(Instant(now), self._waits(self._keys[model]), edge=True), now)

    def _serve(self, request: int, group: Group, now: float) -> None:
        """On a replica, from now to its end."""
        replica, trace = self._pool.take(group, now), self._trace
        tokens = (int(trace.tokens_in[request]), int(trace.tokens_out[request]))
        self._held[request] = now - self._arrived[request]
        self._work.begin(Asked(request, tokens, float(trace.seconds[request])), replica, now)

    def _answers(self, request: int, at: float) -> None:
        """Its first token comes then."""
        self._first[request] = at - self._arrived[request]

    def _finish(self, request: int, replica: Replica, now: float) -> None:
        model = self._model[request]
        group, key = self._groups[model], self._keys[model]
        outcome = Outcome(
            Ending.FINISHED, status=200, first_byte_at=Instant(self._arrived[request] + self._first[request]),
            tokens_in=int(self._trace.tokens_in[request]), tokens_out=int(self._trace.tokens_out[request]),
        )  # fmt: skip
        self._meters.get(key, Instant(now)).finish(Instant(now), Instant(self._arrived[request]), outcome)
        self._pool.give(group, replica, now)
        self._dispatch(model, now)

    def _dispatch(self, model: int, now: float) -> None:
        """Who waits first gets what is free."""
        queue, group = self._waiting[model], self._groups[model]
        if not queue:
            return
        self._expire(model, now)
        while queue and group.free > 0:
            request = queue.popleft()
            meter = self._meters.get(self._keys[model], Instant(now))
            meter.unwait(Instant(now))
            meter.start(Instant(now), now - self._arrived[request])
            self._serve(request, group, now)
        if not queue:
            self._queued.discard(model)

    def _expire(self, model: int, now: float) -> None:
        """Who has waited for too long is told so: at the next window at the latest."""
        queue = self._waiting[model]
        while queue and now - self._arrived[queue[0]] >= self._setting.max_wait:
            request = queue.popleft()
            self._held[request] = REFUSED
            meter = self._meters.get(self._keys[model], Instant(now))
            meter.unwait(Instant(now))
            meter.refuse(Instant(now))
        if not queue:
            self._queued.discard(model)

    def _tick(self, now: float) -> None:
        for model in tuple(self._queued):
            self._expire(model, now)
        for window in self._meters.tick(Instant(now), self._waits):
            self._tell(window, now)

    def _waits(self, key: MeterKey) -> Waiting:
        queue = self._waiting[self._numbers[key.model]]
        if not queue:
            return NOBODY_WAITS
        oldest = Instant(self._arrived[queue[0]])
        return Waiting(oldest, Instant(oldest + self._setting.max_wait))

    def _tell(self, window: RequestWindow, now: float) -> None:
        if not self._setting.silent(now - BEGINS):
            self._scaler.take(window, window.model, SOURCE, Instant(now))

    # -- the cluster

    def _wished(self, model: str, decision: Decision, _: ScalingPolicy, now: Instant) -> None:
        group = self._by_name[model]
        if not self._wishes or decision.replicas != group.wished:
            self._wishes.append(Wished(now - BEGINS, model, decision.replicas))
        wish = Wish(UID, decision.replicas, decision.marginal_gain, decision.kept, decision.waits)
        self._pool.wish(group, wish, now)

    def _observed(self, group: Group, now: float) -> None:
        self._scaler.take(self._pool.observed(group), group.model, "relume/cluster/simulated", Instant(now))
        model = self._numbers[group.model]
        if group.ready:
            self._woken[model] = False
        self._dispatch(model, now)

    def _ended(self, ends: float) -> Run:
        for queue in self._waiting:
            for request in queue:
                self._held[request] = REFUSED
        self._pool.end(self._groups, ends)
        return Run(
            self._held, self._first, self._pool.cost, self._activations, self._scaler.decided, self._scaler.recorded,
            self._scaler.policy_failures, tuple(self._wishes), ends - BEGINS,
        )  # fmt: skip


def flaps(wishes: tuple[Wished, ...]) -> int:
    """How often a model was given more within `FLAP` seconds after it was given less."""
    found, standing, lowered = 0, dict[str, int](), dict[str, float]()
    for wish in wishes:
        before = standing.get(wish.model, 0)
        if wish.replicas > before and wish.at - lowered.get(wish.model, -FLAP) < FLAP:
            found += 1
        elif wish.replicas < before:
            lowered[wish.model] = wish.at
        standing[wish.model] = wish.replicas
    return found
