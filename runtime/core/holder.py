"""A gateway's own requests when several gateways share the models: it holds them, and gets slots from authorities.

The same bounds, deadlines, refusals and meters as with one gateway; only the slots come from elsewhere. What it holds
and what runs is counted here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstart.core.hold import HoldBudget
from events.names import ModelName, ReplicaName
from events.types.replicas import ReplicaState, ReplicaStatus
from events.units import Instant, Seconds
from runtime.core import admission, ledger
from runtime.core.authority import QUARANTINE, Authority
from runtime.core.commands import Command, Grant, Refuse, SendWindow, Suspect, TellColdStart
from runtime.core.frames import Ask, Granted
from runtime.core.ledger import LeaseEnded, Live, Ticket
from runtime.core.meter import MeterKey
from runtime.core.model_slots import ModelSlots
from runtime.core.policy import Cancels
from runtime.core.slots import ReplicaSlots, SlotPool
from runtime.ports import Ending, Lease, Outcome, Progress, Refusal, TicketRequest


class NoSlots(SlotPool):
    """The slots of a model whose authority is elsewhere: none, whatever runs."""

    __slots__ = ()

    def replace(self, replicas: object) -> None:
        """Whatever runs is leased by another."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A live lease of one of our requests, by the name that all gateways know it by."""

    name: str
    model: ModelName
    replica: str
    life: str
    granted_at: Instant


class Holder(Authority):
    """The requests of this gateway. See `Authority`; here nothing is leased but what an authority has granted."""

    def __init__(self, gateway: str, budget: HoldBudget) -> None:
        super().__init__(gateway, budget)
        self._held: dict[int, HeldLease] = {}
        self._ahead: dict[str, int] = {}
        """Of requests that wait in an authority's queue: how many were ahead when it told."""

    def _known(self, name: ModelName) -> ModelSlots:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = ModelSlots(name, self._budget)
            model.pool = NoSlots()
        return model

    # What requests do

    def take(self, wanted: TicketRequest, now: Instant) -> list[Command]:
        """A request wants a slot: a Refuse, or nothing: then it waits, and its authority is to be asked.

        While replicas are ready nobody is told that it waits: it will have a slot in a moment, or `waits` is told.
        """
        out: list[Command] = []
        model = self._models.get(wanted.model)
        if model is None or model.declared is None:
            return [Refuse(wanted.request, admission.unknown_model(wanted.model))]
        meter = self._meters.get(model.key, now)
        if not wanted.attempt:
            meter.arrive(now)
        refusal = admission.shutting_down() if self._closed else self._hold(model, wanted, meter, now)
        if refusal is not None:
            meter.refuse(now)
            out.append(Refuse(wanted.request, refusal))
        if meter.edge and not model.ready:
            out.append(SendWindow(meter.window(now, self._waiting(model.key), edge=True)))
        return out

    def give_back(self, lease: int, outcome: Outcome, now: Instant) -> list[Command]:
        """See `Authority.give_back`; the slot is the authority's business, see `left_behind`."""
        live = self._live.pop(lease, None)
        if live is None:
            raise LeaseEnded(f"lease {lease} is not live: it was given back already, or never granted")
        self._held.pop(lease, None)
        out: list[Command] = []
        model, replica = live.model, live.replica
        model.running -= 1
        replica.leases.pop(lease, None)
        live.meter.finish(now, live.wanted.arrived_at, outcome)
        suspicious = outcome.ending is Ending.UNREACHABLE or outcome.ending is Ending.TIMED_OUT
        if suspicious and not replica.gone and replica.quarantined_until is None:
            replica.quarantined_until = Instant(now + QUARANTINE)  # told once, not once a request
            self._arm(model)
            out.append(Suspect(model.name, replica.name, ledger.suspicion(live, outcome, now)))
        if live.activation is not None and (finished := ledger.cold_start(live, live.activation, outcome)) is not None:
            out.append(TellColdStart(finished))
        if model.declared is None:
            self._drop_if_over(model)
        return out

    def left_behind(self, lease: int, outcome: Outcome, now: Instant) -> float | None:
        """For how long the engine may be at the request of a live lease that ends now; None: it is done."""
        live = self._live.get(lease)
        if live is None or outcome.engine_done:
            return None
        return ledger.settling(live, outcome, now).until - now

    def progress(self, request: str, now: Instant) -> Progress | None:
        """See `Authority.progress`; those of other gateways count too, as far as their authority has told."""
        told = super().progress(request, now)
        if told is None or (ahead := self._ahead.get(request, 0)) <= told.ahead:
            return told
        return Progress(told.phase, ahead, told.eta)

    # What authorities say

    def granted(self, told: Granted, now: Instant) -> list[Command] | None:
        """A slot for a request that waits; None: it does not wait any more, so the slot is to be given back."""
        ticket = self._tickets.pop(told.request, None)
        if ticket is None:
            return None
        out: list[Command] = []
        model = ticket.model
        model.queue.cancel(told.request)
        self._ahead.pop(told.request, None)
        meter = self._meters.get(model.key, now)
        meter.unwait(now)
        model.drain_rate.add(now)
        out.append(Grant(self._begin(ticket, told, now)))
        self._edge(model, now, out)
        return out

    def waits(self, request: str, ahead: int, now: Instant) -> list[Command]:
        """No slot is free for a request: it stands in its authority's queue."""
        out: list[Command] = []
        ticket = self._tickets.get(request)
        if ticket is not None:
            self._ahead[request] = ahead
            if len(self._ahead) > 2 * len(self._tickets) + 64:  # mostly of requests that wait no more
                self._ahead = {name: count for name, count in self._ahead.items() if name in self._tickets}
            self._edge(ticket.model, now, out)
        return out

    def refused(self, request: str, refusal: Refusal, now: Instant) -> list[Command]:
        """An authority will not give a request a slot."""
        ticket = self._tickets.get(request)
        if ticket is None:
            return []
        out: list[Command] = []
        held = ticket.model.queue.cancel(request)
        if held is not None:
            self._refuse_all(ticket.model, (held,), refusal, now, out)
        return out

    # What it holds

    def waiting(self, request: str) -> bool:
        """Whether a request waits."""
        return request in self._tickets

    def asks(self, now: Instant) -> list[Ask]:
        """All that wait, in the order of their arrival."""
        tickets = sorted(self._tickets.values(), key=lambda ticket: ticket.wanted.arrived_at)
        return [ask(ticket.wanted, now) for ticket in tickets]

    def again(self, request: str, now: Instant) -> Ask | None:
        """The ticket of a request that waits, for another try: it goes to the head of its caller's."""
        ticket = self._tickets.get(request)
        if ticket is None:
            return None
        return ask(ticket.wanted.again(ticket.wanted.attempt + 1), now)

    def held(self, lease: int) -> HeldLease | None:
        """A live lease."""
        return self._held.get(lease)

    def all_held(self) -> list[HeldLease]:
        """All live leases."""
        return list(self._held.values())

    def _begin(self, ticket: Ticket, told: Granted, now: Instant) -> Lease:
        model, wanted = ticket.model, ticket.wanted
        assert model.declared is not None
        replica = model.replicas.get(told.replica)
        if replica is None or replica.life != told.life:
            replica = _unseen(told, model.declared.uid)  # the authority has read further in the log than we
        self._last_lease = lease_id = self._last_lease + 1
        cold = model.wakes > ticket.wakes
        held = max(0.0, now - ticket.since)
        lease = Lease(
            id=lease_id,
            request=wanted.request,
            model=model.name,
            replica=replica.name,
            revision=told.revision,
            host=told.host,
            port=told.port,
            cancels=replica.cancels,
            held_seconds=Seconds(held),
            cold=cold,
        )
        activation = model.activation if cold else None
        if activation is not None and activation.lease is None:
            activation.lease = lease_id
        replica.leases[lease_id] = now
        model.running += 1
        key = model.key if told.revision == model.key.revision else MeterKey(model.name, model.key.uid, told.revision)
        meter = self._meters.get(key, now)
        meter.start(now, held)
        self._live[lease_id] = Live(lease, wanted, model, model.declared, replica, now, meter, activation)
        self._held[lease_id] = HeldLease(told.name, model.name, told.replica, told.life, now)
        return lease

    def _tell_drained(self, model: ModelSlots, replica: ReplicaSlots, out: list[Command]) -> None:
        """The authority tells, who sees all leases."""


def ask(wanted: TicketRequest, now: Instant) -> Ask:
    """The ticket of a request, for its authority."""
    return Ask(
        request=wanted.request,
        model=wanted.model,
        caller=wanted.caller,
        held=max(0.0, now - wanted.arrived_at),
        left=wanted.deadline - now,
        body_bytes=wanted.body_bytes,
        stream=wanted.stream,
        attempt=wanted.attempt,
    )


def _unseen(told: Granted, uid: str) -> ReplicaSlots:
    """A replica that was not observed here yet, as far as the grant tells of it."""
    status = ReplicaStatus(
        replica=ReplicaName(told.replica),
        uid=uid,
        revision=told.revision,
        state=ReplicaState.READY,
        address=f"{told.host}:{told.port}",
        cancels=Cancels(told.cancels).value if told.cancels in tuple(Cancels) else Cancels.NEVER.value,
    )
    return ReplicaSlots(status, (told.host, told.port))
