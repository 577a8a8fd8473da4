"""A simulated pool of GPUs and the replicas on it. A state machine: wishes and instants in, what was observed out.

What it leaves out of the real allocator and adapter: nodes, placement, priority of training. Wishes are granted by
priority, then by marginal gain, then by name. A replica that is only kept and idle goes to a model of equal or higher
priority for which requests wait, by the allocator's own rule (`preemption.core.kept`); no other is taken.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deploy.simulation.nodes import Nodes
from deploy.simulation.scaling import UID
from deploy.simulation.setting import PHASES, Setting
from events.types.replicas import PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from preemption.core.view import AllocatorPolicy, Wish

LEAST_HOLD: Final = AllocatorPolicy().least_hold

BACK_OFF_MOST: Final = 60.0
"""Pauses after failed starts double from a second to this."""


@dataclass(slots=True, eq=False)
class Replica:
    """One running copy. `phases`: of its start, known once it is ready; of one that will fail, none. `running`:
    requests; `idle_since` while it is ready and runs none. `node`: where it is, if nodes are told apart."""

    name: str
    state: ReplicaState
    created_at: float
    phases: tuple[PhaseSpan, ...]
    running: int = 0
    ready_at: float | None = None
    idle_since: float = 0.0
    node: int | None = None


@dataclass(slots=True, eq=False)
class Group:
    """All replicas of one model. `free`: slots of ready replicas that nobody uses."""

    model: str
    priority: int
    replicas: list[Replica]
    wished: int = 0
    wish: int = 0
    """What is wished, less what was given to others since it was only kept."""
    kept: int = 0
    """So many of `wish` are only kept."""
    given: int = 0
    held_until: float = 0.0
    """When one that is held may go, as a timer was set."""
    waits: bool = False
    gain: float = 0.0
    free: int = 0
    born: int = 0
    failures: int = 0
    retry_at: float | None = None
    ready: int = 0

    @property
    def serving(self) -> int:
        """Those that are, or will be, ready."""
        return sum(one.state is not ReplicaState.DRAINING for one in self.replicas)

    @property
    def order(self) -> tuple[int, bool, float, str]:
        """Its place among those that want more; less is earlier."""
        return -self.priority, 0 < self.kept >= self.wish - self.serving, -self.gain, self.model


@dataclass(slots=True)
class Meterage:
    """What all replicas cost so far. `gpu_seconds` from start to stop, of which `idle` while ready without requests."""

    starts: int = 0
    failed: int = 0
    gpu_seconds: float = 0.0
    idle_seconds: float = 0.0


class Pool:
    """Give it wishes and what begins and ends on replicas; call `due` at `next_at`. `changed` hears of each model whose
    replicas changed."""

    def __init__(self, setting: Setting, changed: Callable[[Group, float], None]) -> None:
        self._setting = setting
        self._changed = changed
        self._timers: list[tuple[float, int, Group, Replica | None]] = []
        self._count = 0
        self._nodes = Nodes(setting)
        self._hungry: dict[str, Group] = {}
        self._groups: dict[str, Group] = {}
        self.cost = Meterage()

    def next_at(self) -> float | None:
        """When something ends by itself."""
        return self._timers[0][0] if self._timers else None

    def due(self, now: float) -> None:
        """Starts that end, and pauses after failed ones."""
        while self._timers and self._timers[0][0] <= now:
            _, _, group, replica = heapq.heappop(self._timers)
            if replica is None:
                if group.retry_at is not None and group.retry_at <= now:
                    group.retry_at = None
                    self._settle(group, now)
            elif replica in group.replicas and replica.state is ReplicaState.STARTING:
                self._started(group, replica, now)
        self._seek_kept(now)

    def wish(self, group: Group, wish: Wish, now: float) -> None:
        """The newest wish."""
        self._groups[group.model] = group
        group.given = min(group.given, wish.kept)
        group.wished, group.wish, group.kept = wish.replicas, wish.replicas - group.given, wish.kept - group.given
        group.gain, group.waits = wish.marginal_gain, wish.waits
        self._settle(group, now)
        self._seek_kept(now)

    def take(self, group: Group, now: float) -> Replica:
        """A slot of the least loaded ready replica; there must be one."""
        best = None
        for one in group.replicas:
            if one.state is ReplicaState.READY and (best is None or one.running < best.running):
                best = one
                if not one.running:
                    break
        assert best is not None, "a slot was taken where none is free"
        if not best.running:
            self._idled(best, now)
        best.running += 1
        group.free -= 1
        return best

    def give(self, group: Group, replica: Replica, now: float) -> None:
        """A request on it is done."""
        replica.running -= 1
        if replica.state is ReplicaState.READY:
            group.free += 1
            replica.idle_since = now
        elif not replica.running:
            self._stop(group, replica, now)
            self._changed(group, now)
            self._settle_hungry(now)

    def end(self, groups: list[Group], now: float) -> None:
        """The simulation ends: what is there is accounted for."""
        for group in groups:
            for replica in list(group.replicas):
                self._stop(group, replica, now)

    def observed(self, group: Group) -> ReplicasObserved:
        """As the adapter would publish it."""
        return ReplicasObserved(
            model=group.model,
            uid=UID,
            replicas=tuple(
                ReplicaStatus(
                    replica=one.name, uid=UID, revision=1, state=one.state, phases=_seen(one),
                    slots=self._setting.slots, created_at=one.created_at, ready_at=one.ready_at,
                )
                for one in group.replicas
            ),
            failures=group.failures,
            retry_at=group.retry_at,
        )  # fmt: skip

    # -- inside

    def _settle(self, group: Group, now: float) -> None:
        """Bring a model's replicas to its wish, as far as there is room."""
        have = group.serving
        changed = False
        while have > group.wish:
            self._lower(group, now)
            have, changed = have - 1, True
        changed = self._raise(group, now) or changed
        if changed:
            self._changed(group, now)
        if group.serving < group.wish:
            self._hungry[group.model] = group
        else:
            self._hungry.pop(group.model, None)
        if changed and self._hungry:
            self._settle_hungry(now)

    def _settle_hungry(self, now: float) -> None:
        """What became free goes to who wants it most."""
        if not self._hungry or not self._room():
            return
        for group in sorted(self._hungry.values(), key=lambda one: one.order):
            if self._raise(group, now):
                self._changed(group, now)
            if group.serving >= group.wish:
                self._hungry.pop(group.model, None)
            if not self._room():
                return

    def _seek_kept(self, now: float) -> None:
        """Stop idle replicas that are only kept, one for each that requests wait for."""
        if not self._hungry:
            return
        for group in sorted(self._hungry.values(), key=lambda one: one.order):
            while group.waits and group.retry_at is None and group.wish - group.kept > group.serving:
                found = self._spare(group, now)
                if found is None:
                    break
                keeper, replica = found
                keeper.given, keeper.wish, keeper.kept = keeper.given + 1, keeper.wish - 1, keeper.kept - 1
                keeper.ready, keeper.free = keeper.ready - 1, keeper.free - self._setting.slots
                self._stop(keeper, replica, now)
                self._changed(keeper, now)
                self._settle(group, now)

    def _spare(self, wanted: Group, now: float) -> tuple[Group, Replica] | None:
        """An idle replica of another model that may go for this one; the last in order gives first."""
        keepers = [one for one in self._groups.values() if one.kept > 0 and one.priority <= wanted.priority]
        for keeper in sorted(keepers, key=lambda one: one.order, reverse=True):
            for replica in keeper.replicas if keeper is not wanted else ():
                if replica.state is not ReplicaState.READY or replica.running or replica.ready_at is None:
                    continue
                until = replica.ready_at + max(LEAST_HOLD, replica.ready_at - replica.created_at)
                if until <= now:
                    return keeper, replica
                if until != keeper.held_until:
                    keeper.held_until = until
                    self._later(until, keeper, None)
        return None

    def _raise(self, group: Group, now: float) -> bool:
        """A draining one goes on; else one is started."""
        changed = False
        while group.serving < group.wish:
            drains = next((one for one in group.replicas if one.state is ReplicaState.DRAINING), None)
            if drains is not None:
                drains.state = ReplicaState.READY
                group.ready += 1
                group.free += self._setting.slots - drains.running
            elif group.retry_at is not None or not self._room():
                break
            else:
                self._start(group, now)
            changed = True
        return changed

    def _lower(self, group: Group, now: float) -> None:
        """The youngest that starts goes first, then the ready one with the fewest requests; it drains."""
        starting = [one for one in group.replicas if one.state is ReplicaState.STARTING]
        if starting:
            self._stop(group, starting[-1], now)
            return
        ready = (one for one in group.replicas if one.state is ReplicaState.READY)
        least = min(ready, key=lambda one: one.running)
        group.ready -= 1
        group.free -= self._setting.slots - least.running
        if least.running:
            least.state = ReplicaState.DRAINING
        else:
            self._stop(group, least, now)

    def _room(self) -> bool:
        return self._nodes.room

    def _start(self, group: Group, now: float) -> None:
        group.born += 1
        starting = self._setting.starting
        draws = random.Random(f"{self._setting.seed}/{group.model}/{group.born}")  # noqa: S311 - a simulation
        takes = starting.seconds * (draws.lognormvariate(0.0, starting.spread) if starting.spread else 1.0)
        fails = draws.random() < starting.fails
        spans, begin = [], now
        for phase, part in PHASES:
            spans.append(PhaseSpan(phase=phase, started_at=begin, ended_at=begin + takes * part))
            begin += takes * part
        name = f"{group.model}-{group.born}"
        replica = Replica(name, ReplicaState.STARTING, now, () if fails else tuple(spans), node=self._nodes.take())
        group.replicas.append(replica)
        self.cost.starts += 1
        self._later(now + takes, group, replica)

    def _started(self, group: Group, replica: Replica, now: float) -> None:
        if not replica.phases:
            self.cost.failed += 1
            self._stop(group, replica, now)
            group.failures += 1
            group.retry_at = now + min(BACK_OFF_MOST, 2.0 ** (group.failures - 1))
            self._later(group.retry_at, group, None)
        else:
            replica.state, replica.ready_at, replica.idle_since = ReplicaState.READY, now, now
            group.failures, group.ready = 0, group.ready + 1
            group.free += self._setting.slots
        self._changed(group, now)
        self._settle_hungry(now)

    def _stop(self, group: Group, replica: Replica, now: float) -> None:
        group.replicas.remove(replica)
        each = self._setting.gpus_each
        self._nodes.give(replica.node)
        self.cost.gpu_seconds += (now - replica.created_at) * each
        if not replica.running and replica.ready_at is not None:
            self._idled(replica, now)

    def _idled(self, replica: Replica, now: float) -> None:
        """It was idle until now."""
        self.cost.idle_seconds += (now - replica.idle_since) * self._setting.gpus_each

    def _later(self, at: float, group: Group, replica: Replica | None) -> None:
        self._count += 1
        heapq.heappush(self._timers, (at, self._count, group, replica))


def _seen(replica: Replica) -> tuple[PhaseSpan, ...]:
    """The phases that an observer knows: of one that starts only that it has begun."""
    if replica.state is ReplicaState.STARTING:
        return (PhaseSpan(phase=PHASES[0][0], started_at=replica.created_at),)
    return replica.phases
