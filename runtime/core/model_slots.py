"""One model as its slot authority knows it: what is declared, what runs, who waits, and when it will be ready."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstart.core.estimate import DrainRate, StartEstimate
from coldstart.core.hold import HoldBudget, HoldQueue
from coldstart.core.phases import ORDER, current
from coldstart.core.policy import ColdStartPolicy, HoldPolicy
from coldstart.core.whereabouts import Whereabouts
from events.names import ModelName
from events.types.replicas import Phase, ReplicasObserved, ReplicaState, ReplicaStatus
from events.units import Bytes, Instant, Seconds
from runtime.core.commands import Expect
from runtime.core.meter import MeterKey
from runtime.core.policy import Timeouts
from runtime.core.slots import ReplicaSlots, SlotPool, address_of, instance_of


@dataclass(frozen=True, slots=True)
class Declared:
    """What the authority needs of a model's declaration."""

    model: ModelName
    uid: str
    revision: int
    timeouts: Timeouts
    cold_start: ColdStartPolicy
    aliases: tuple[str, ...] = ()


class ModelState(StrEnum):
    """How a model stands, in one word (design §12)."""

    ZERO = "Zero"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    FAILED = "Failed"


@dataclass(slots=True)
class Activation:
    """A model that became ready while requests waited for it, until it was told how long the first of them took."""

    held: int
    """How many waited when it became ready."""
    lease: int | None = None
    """The first lease that was granted to one of them."""
    told: bool = False


_NOTHING_OBSERVED = ReplicasObserved(model="", uid="", replicas=())
_NO_HOLD = HoldPolicy(max_requests=0, max_bytes=Bytes(0), max_wait=Seconds(0.0))


class ModelSlots:
    """Slots, queue and start estimate of one model. `declared` None: not declared (yet, or any more)."""

    __slots__ = (
        "_ready_at", "activation", "alarm_at", "declared", "drain_rate", "estimate", "key", "name", "observed",
        "pool", "queue", "ready", "replicas", "running", "wakes", "weights",
    )  # fmt: skip

    def __init__(self, name: ModelName, budget: HoldBudget) -> None:
        self.name = name
        self.declared: Declared | None = None
        self.key = MeterKey(name, "", 0)
        """Of the meter of the declared revision."""
        self.observed = _NOTHING_OBSERVED
        self.replicas: dict[str, ReplicaSlots] = {}
        """Replicas that may have leases: the ready and the draining ones, of any uid and revision."""
        self.pool = SlotPool()
        self.queue = HoldQueue(_NO_HOLD, budget)
        self.estimate = StartEstimate()
        self.drain_rate = DrainRate()
        self.weights = Whereabouts()
        self.ready = 0
        """Ready replicas of the model as it is declared, of any revision."""
        self.wakes = 0
        """How often it went from none ready to some: who has waited through one waited for a cold start."""
        self.activation: Activation | None = None
        self.running = 0
        """Live leases, also on replicas that are gone."""
        self.alarm_at: Instant | None = None
        """The earliest instant at which the authority will look at this model by itself."""
        self._ready_at: tuple[Instant, Instant | None] | None = None
        """When `ready_by` was worked out last, and its answer."""

    def declare(self, declared: Declared | None) -> None:
        """Take over a declaration, or its absence. Another uid is another model: what was learned is forgotten."""
        if declared is None or self.declared is None or self.declared.uid != declared.uid:
            self.estimate = StartEstimate()
            self.drain_rate = DrainRate()
            self.weights = Whereabouts()
            self.activation = None
        self.declared = declared
        self.key = MeterKey(self.name, "", 0) if declared is None else _key(declared)
        self.queue.policy = _NO_HOLD if declared is None else declared.cold_start.hold
        self._learn()
        self.refresh()

    def observe(self, observed: ReplicasObserved) -> tuple[ReplicaSlots, ...]:
        """Take over what is. Returns the replicas that are gone: their slots are no more.

        Ends every quarantine: whoever observes has looked (it was told of the suspicion).
        """
        self.observed = observed
        before = self.replicas
        self.replicas = {}
        for status in observed.replicas:
            address = address_of(status)
            if status.state not in (ReplicaState.READY, ReplicaState.DRAINING) or address is None:
                continue
            known = before.get(status.replica)
            if known is None or known.instance != instance_of(status):
                known = ReplicaSlots(status, address)
            known.status = status
            known.quarantined_until = None
            known.drained = known.drained and known.draining
            self.replicas[status.replica] = known
        gone = tuple(old for name, old in before.items() if self.replicas.get(name) is not old)
        for old in gone:
            old.gone = True
        self._learn()
        self.refresh()
        return gone

    def end_quarantines(self, now: Instant) -> None:
        """Lease again whom nobody distrusts any more."""
        over = [it for it in self.replicas.values() if it.quarantined_until is not None and it.quarantined_until <= now]
        for replica in over:
            replica.quarantined_until = None
        if over:
            self.refresh()

    def refresh(self) -> None:
        """Choose anew whom to lease: the ready replicas of the newest revision that has any, but no quarantined one."""
        serving = [
            replica
            for replica in self.replicas.values()
            if replica.status.state is ReplicaState.READY and self._is_ours(replica.status.uid)
        ]
        if serving and not self.ready:
            self.wakes += 1
            self.activation = Activation(held=len(self.queue)) if self.queue else None
        self.ready = len(serving)
        self._ready_at = None
        newest = max((replica.status.revision for replica in serving), default=0)
        self.pool.replace(
            replica for replica in serving if replica.status.revision == newest and replica.quarantined_until is None
        )

    @property
    def failures(self) -> int:
        """Failed starts since the last success."""
        return self.observed.failures if self._is_ours(self.observed.uid) else 0

    @property
    def retry_at(self) -> Instant | None:
        """When the next start is tried after a failed one; None: nothing failed, or a start is on its way."""
        if not self.failures or self.observed.retry_at is None or self.starting():
            return None
        return Instant(self.observed.retry_at)

    @property
    def no_node_until(self) -> Instant | None:
        """Until when nobody calls for a node again, after none came; None: there is room, or there is no need."""
        stand_ins = self.observed.stand_ins if self._is_ours(self.observed.uid) else None
        if stand_ins is None or stand_ins.paused_until is None or self.ready or self.starting():
            return None
        return Instant(stand_ins.paused_until)

    def starting(self) -> list[ReplicaStatus]:
        """The replicas that are on their way."""
        return [
            status
            for status in self.observed.replicas
            if status.state is ReplicaState.STARTING and self._is_ours(status.uid)
        ]

    def expected(self) -> list[Expect]:
        """The replicas that listen and are not ready yet, each with its part of the requests that wait.

        One slot of each stays out: an engine that bears S requests at once bears S connections, and whoever probes it
        has one of them.
        """
        left = len(self.queue)
        found: list[Expect] = []
        if not left:
            return found
        for status in self.starting():
            address = address_of(status)
            most = min(left, status.slots - 1)
            if address is not None and most > 0 and status.revision == self.key.revision:
                found.append(Expect(*address, most))
                left -= most
        return found

    def ready_in(self, now: Instant, *, surely: bool = False) -> Seconds | None:
        """Seconds until a replica is ready, as likely as not, or `surely`; None: nobody can say.

        The quickest of those on their way; without one a whole start, after the back-off.
        """
        eta = self.estimate.eta_at_most if surely else self.estimate.eta
        on_their_way = [
            left for status in self.starting() if (left := eta(now, status.phases, status.weights)) is not None
        ]
        if on_their_way:
            return min(on_their_way)
        whole = self._whole_start(now, surely)
        if whole is None:
            return None
        back_off = 0.0 if self.retry_at is None else max(0.0, self.retry_at - now)
        return Seconds(back_off + whole)

    def _whole_start(self, now: Instant, surely: bool) -> Seconds | None:
        """Of a start that begins now: a wake where one sleeps. (Whether its place is free is not known here; nor is how
        long a first wake takes: then it is the cold start's time.)"""
        rank = 0.9 if surely else 0.5
        cold = self.estimate.whole(self.weights.to_fetch(self.key.revision, now), rank)
        sleeps = any(s.state is ReplicaState.SLEEPING and self._is_ours(s.uid) for s in self.observed.replicas)
        wake = self.estimate.wake(rank) if sleeps else None
        return cold if wake is None else wake

    def ready_by(self, now: Instant) -> Instant | None:
        """The instant at which a replica is ready, as likely as not; None: nobody can say. Answers are kept 100 ms.

        (A thousand requests that come at once are not worth a thousand estimates.)
        """
        kept = self._ready_at
        if kept is None or not kept[0] <= now < kept[0] + 0.1:
            left = self.ready_in(now)
            kept = self._ready_at = (now, None if left is None else Instant(now + left))
        return kept[1]

    def phase(self) -> Phase:
        """How far the replica is that has come furthest; `hold` when none is on its way."""
        reached = [span.phase for status in self.starting() if (span := current(status.phases)) is not None]
        reached += [status.phase for status in self.starting() if status.phase is not None]
        return max(reached, key=ORDER.index, default=Phase.HOLD)

    def state(self) -> ModelState:
        """The model in one word."""
        states = {status.state for status in self.observed.replicas} - {ReplicaState.SLEEPING}
        if self.ready:
            return ModelState.READY
        if self.starting():
            return ModelState.STARTING
        if self.failures or ReplicaState.FAILED in states:
            return ModelState.FAILED
        if states:
            return ModelState.DRAINING
        return ModelState.ZERO

    def next_due(self) -> Instant | None:
        """The earliest deadline, end of quarantine, or end of settling."""
        instants = [due for replica in self.replicas.values() if (due := replica.next_due()) is not None]
        deadline = self.queue.next_deadline()
        if deadline is not None:
            instants.append(deadline)
        return min(instants, default=None)

    @property
    def over(self) -> bool:
        """Whether nothing is left of a model that is not declared."""
        observed = self.observed
        return self.declared is None and not (observed.replicas or observed.failures or self.running)

    def _is_ours(self, uid: str) -> bool:
        return self.declared is not None and self.declared.uid == uid

    def _learn(self) -> None:
        if self._is_ours(self.observed.uid):
            self.estimate.fold(self.observed)


def _key(declared: Declared) -> MeterKey:
    return MeterKey(declared.model, declared.uid, declared.revision)
