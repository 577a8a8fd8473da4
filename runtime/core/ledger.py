"""Tickets and live leases, and what follows when a lease ends: does its slot settle, is its replica suspect, is a cold
start over."""

from __future__ import annotations

from dataclasses import dataclass

from coldstart.core import budget
from events.names import ModelName, ReplicaName
from events.types.phases import ColdStartFinished
from events.units import Instant, Seconds
from runtime.core.meter import Meter
from runtime.core.model_slots import Activation, Declared, ModelSlots, ModelState
from runtime.core.policy import Cancels
from runtime.core.records import Record
from runtime.core.slots import SETTLE_TIME, ReplicaSlots, Settling
from runtime.ports import Ending, Lease, Outcome, TicketRequest

ON_TIME = Seconds(0.001)
"""A lease that ends this much before its total budget has used it up: timers of two clocks differ by less."""


class LeaseEnded(ValueError):
    """A lease was given back that is not live: given back twice, or never granted. The caller's bug."""


class Ticket(Record):
    """A request that waits since `since`; `wakes`: how often its model had woken by then."""

    FIELDS = ("wanted", "model", "since", "wakes")
    __slots__ = FIELDS

    def __init__(
        self,
        wanted: TicketRequest,
        model: ModelSlots,
        since: Instant,
        wakes: int,
    ) -> None:
        self.wanted = wanted
        self.model = model
        self.since = since
        self.wakes = wakes


class Live(Record):
    """A live lease and what it was granted for. `activation`: the cold start that its request waited for."""

    FIELDS = ("lease", "wanted", "model", "declared", "replica", "granted_at", "meter", "activation")
    __slots__ = FIELDS

    def __init__(
        self,
        lease: Lease,
        wanted: TicketRequest,
        model: ModelSlots,
        declared: Declared,
        replica: ReplicaSlots,
        granted_at: Instant,
        meter: Meter,
        activation: Activation | None,
    ) -> None:
        self.lease = lease
        self.wanted = wanted
        self.model = model
        self.declared = declared
        self.replica = replica
        self.granted_at = granted_at
        self.meter = meter
        self.activation = activation


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """How a model stands with this gateway: its state, requests that wait and run, ready replicas."""

    model: ModelName
    state: ModelState
    held: int
    running: int
    ready: int
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Poll:
    """A replica whose running count would settle a slot."""

    model: ModelName
    replica: ReplicaName
    host: str
    port: int
    path: str


def overdue(live: Live, outcome: Outcome, now: Instant) -> bool:
    """Whether the request used up its total budget: the replica should have been done."""
    return outcome.ending is Ending.TIMED_OUT and now - live.granted_at >= live.declared.timeouts.total - ON_TIME


def settling(live: Live, outcome: Outcome, now: Instant) -> Settling:
    """How long the slot stays busy when the engine may still be at the request.

    An engine that counts clears it by its count; `until` is when the replica is suspect instead. One that cannot be
    asked is done soon if it cancels, else by the end of the request's total budget; if it has missed that one too,
    after another.
    """
    total = live.declared.timeouts.total
    counts = bool(live.replica.status.busy_path)
    cancels = live.replica.cancels
    cancelled = cancels is Cancels.ALWAYS or (cancels is Cancels.STREAMS and live.wanted.stream)
    if overdue(live, outcome, now):
        until = now + total
    elif cancelled and not counts:
        until = now + SETTLE_TIME
    else:
        until = max(live.granted_at + total, now + SETTLE_TIME)
    return Settling(since=now, until=Instant(until), counts=counts, patience=total)


def suspicion(live: Live, outcome: Outcome, now: Instant) -> str:
    """Why the replica should be probed after a request that could not reach it or timed out."""
    if outcome.ending is Ending.UNREACHABLE:
        return "it could not be reached, or broke off before the first byte"
    return "a request used up its total time" if overdue(live, outcome, now) else "it fell silent on a request"


def cold_start(live: Live, activation: Activation, outcome: Outcome) -> ColdStartFinished | None:
    """Told once an activation: of its first lease, or, when that one saw no byte, of the next that ends with one."""
    if activation.told or activation.lease not in (None, live.lease.id):
        return None
    if outcome.first_byte_at is None:
        activation.lease = None
        return None
    activation.told = True
    status, promised = live.replica.status, live.declared.cold_start.sla
    quickest = live.model.estimate.quickest(status.phases)
    ready_at = Instant(live.granted_at if status.ready_at is None else status.ready_at)
    parts = budget.parts_of(status.phases, live.wanted.arrived_at, ready_at, outcome.first_byte_at)
    for_bytes = Seconds(0.0) if status.weights is None else status.weights.least_seconds
    floor = budget.least(for_bytes, quickest, parts.get(budget.ANSWER, Seconds(0.0)))
    judged = budget.judge(promised, floor, parts, quickest)
    return ColdStartFinished(
        model=live.model.name,
        request=live.wanted.request,
        replica=live.lease.replica,
        arrived_at=live.wanted.arrived_at,
        first_byte_at=outcome.first_byte_at,
        sla_seconds=promised,
        held_requests=activation.held,
        phases=dict(parts),
        tier="" if status.weights is None else status.weights.tier,
        weights_bytes=None if status.weights is None else status.weights.bytes,
        least_seconds=judged.least,
        verdict=judged.verdict.value,
        missed_by=judged.by,
    )
