"""The slot authority of one process: who gets which slot, and in which order.

A state machine without a clock: its methods take what happened and now, and return commands, in order. It never sells a
slot twice, never loses a request that waits, and gives each exactly one answer: a lease or a refusal, unless it left.
Slots go to whoever waits at the moment they are free (late binding); nobody overtakes: while somebody waits for a
model, none of its slots is free.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from coldstart.core.hold import Held, HoldBudget
from events.names import ModelName
from events.types.caches import CacheObserved
from events.types.replicas import ReplicasObserved, ReplicaState
from events.units import Instant, Seconds
from runtime.core import admission, ledger
from runtime.core.aliases import Names
from runtime.core.commands import Command, Drained, Grant, Refuse, SendWindow, Suspect, TellColdStart
from runtime.core.ledger import LeaseEnded, Live, ModelStatus, Poll, Ticket
from runtime.core.meter import NOBODY_WAITS, Meter, MeterKey, Meters, Waiting
from runtime.core.model_slots import Declared, ModelSlots
from runtime.core.slots import ReplicaSlots
from runtime.ports import Ending, Lease, Outcome, Progress, Refusal, TicketRequest

QUARANTINE = Seconds(1.0)
"""A replica that refused a connection gets no lease for so long, or until it is observed again: time for a probe."""


_NOT_HELD: Final = Seconds(0.0)
_FINISHED: Final = Ending.FINISHED
_DRAINING: Final = ReplicaState.DRAINING


class Authority:
    """Slots, tickets and leases of all models that this gateway is the slot authority of."""

    def __init__(self, gateway: str, budget: HoldBudget) -> None:
        self._budget = budget
        self._models: dict[str, ModelSlots] = {}
        self._names = Names()
        self._tickets: dict[str, Ticket] = {}
        self._live: dict[int, Live] = {}
        self._last_lease = 0
        self._meters = Meters(gateway)
        self._alarms: list[tuple[float, str]] = []
        """When to look at which model; only the entry that is its `alarm_at` counts."""
        self._asked: dict[tuple[str, str], tuple[ModelSlots, ReplicaSlots]] = {}
        """Replicas with settling slots whose engine counts."""
        self._closed = False

    # What the states say

    def declare(self, declared: Declared, now: Instant) -> list[Command]:
        """A model is declared, anew or otherwise. Another uid is another model: who waited for the old is refused."""
        out: list[Command] = []
        model = self._known(declared.model)
        before = model.declared
        waiting: Meter | None = None
        if before is not None and before.uid != declared.uid:
            self._refuse_all(model, model.queue.clear(), admission.deleted_model(model.name), now, out)
        elif before is not None and before.revision != declared.revision and model.queue:
            waiting = self._meters.get(model.key, now)
        self._names.learn(declared)
        model.declare(declared)
        if waiting is not None:
            waiting.move_waiting(self._meters.get(model.key, now), now)
        self._serve(model, now, out)
        self._edge(model, now, out)
        return out

    def delete(self, name: ModelName, now: Instant) -> list[Command]:
        """A model is not declared any more: who waits is refused; who runs goes on."""
        out: list[Command] = []
        model = self._models.get(name)
        if model is None or model.declared is None:
            return out
        self._refuse_all(model, model.queue.clear(), admission.deleted_model(name), now, out)
        self._names.forget(name)
        model.declare(None)
        self._drop_if_over(model)
        return out

    def hear(self, cache: CacheObserved, at: Instant) -> None:
        """What a node's agent told of weights at `at`. Of models that are not declared (yet) nothing is kept: it is
        told again each minute."""
        for one in cache.models:
            model = self._models.get(one.model)
            if model is not None:
                model.weights.hear(cache, one, at)

    def observe(self, observed: ReplicasObserved, now: Instant) -> list[Command]:
        """What runs of a model. Slots of replicas that are gone are no more; free ones go to whoever waits."""
        out: list[Command] = []
        model = self._known(ModelName(observed.model))
        failures_before = model.failures
        for gone in model.observe(observed):
            self._asked.pop((model.name, gone.name), None)
        self._serve(model, now, out)
        hopeless = admission.hopeless(model, failures_before, now)
        if hopeless is not None and model.queue:
            self._refuse_all(model, model.queue.expire(hopeless), admission.told_hopeless(model, now), now, out)
        for replica in model.replicas.values():
            self._tell_drained(model, replica, out)
        out += model.expected()
        self._arm(model)
        self._drop_if_over(model)
        return out

    # What requests do

    def asleep(self, name: str) -> bool:
        """Whether requests wait for a model of which no replica exists, starting or not."""
        model = self._models.get(name)
        return model is not None and bool(model.queue) and not model.observed.replicas

    def resolve(self, name: str) -> Declared | None:
        """The declaration behind a name or an alias."""
        return self._names.resolve(name)

    def take(self, wanted: TicketRequest, now: Instant) -> list[Command]:
        """A request wants a slot: a Grant, a Refuse, or neither: then it waits.

        Raises ValueError when a request of this name waits already.
        """
        out: list[Command] = []
        model = self._models.get(wanted.model)
        if model is None or model.declared is None:
            return [Refuse(wanted.request, admission.unknown_model(wanted.model))]
        meter = self._meters.get(model.key, now)
        if not wanted.attempt:
            meter.arrive(now)
        replica = None if model.queue or self._closed else model.pool.least_loaded()
        if replica is not None:
            self._grant(Ticket(wanted, model, now, model.wakes), replica, now, out)
        else:
            refusal = admission.shutting_down() if self._closed else self._hold(model, wanted, meter, now)
            if refusal is not None:
                meter.refuse(now)
                out.append(Refuse(wanted.request, refusal))
        if meter.edge:
            out.append(SendWindow(meter.window(now, self._waiting(model.key), edge=True)))
        return out

    def take_at_once(self, wanted: TicketRequest, now: Instant) -> Lease | None:
        """A lease, where a slot is free, nobody waits and there is nothing to tell; None: `take` decides.

        `take` for what nearly every request meets: no ticket, no commands, one visit to the meter (12 µs less).
        """
        model = self._models.get(wanted.model)
        if model is None or self._closed or wanted.attempt or len(model.queue):
            return None
        declared, key = model.declared, model.key
        replica = model.pool.least_loaded()
        if declared is None or replica is None or replica.status.revision != key.revision:
            return None
        meter = self._meters.settled(key)
        if meter is None:
            return None
        self._last_lease = lease_id = self._last_lease + 1
        host, port = replica.address
        lease = Lease(
            lease_id,
            wanted.request,
            model.name,
            replica.name,
            key.revision,
            host,
            port,
            replica.cancels,
            _NOT_HELD,
            False,
        )
        replica.lease(lease_id, now)
        model.pool.changed(replica)
        model.running += 1
        meter.start_at_once(now)
        self._live[lease_id] = Live(lease, wanted, model, declared, replica, now, meter, None)
        return lease

    def leave(self, request: str, now: Instant) -> list[Command]:
        """The client of a waiting request is gone; nothing happens when it does not wait (any more)."""
        ticket = self._tickets.pop(request, None)
        if ticket is not None and ticket.model.declared is not None:
            ticket.model.queue.cancel(request)
            meter = self._meters.get(ticket.model.key, now)
            meter.unwait(now)
            meter.abandon(now)
        return []

    def give_back(self, lease: int, outcome: Outcome, now: Instant) -> list[Command]:
        """A lease ends. Its slot is free, or settles first if the engine may not be done. Raises LeaseEnded."""
        live = self._live.pop(lease, None)
        if live is None:
            raise LeaseEnded(f"lease {lease} is not live: it was given back already, or never granted")
        out: list[Command] = []
        model, replica = live.model, live.replica
        model.running -= 1
        live.meter.finish(now, live.wanted.arrived_at, outcome)
        if outcome.engine_done:
            replica.release(lease)
        else:
            replica.settle(lease, ledger.settling(live, outcome, now))
        if not replica.gone:
            if outcome.ending is _FINISHED and outcome.engine_done:
                model.pool.changed(replica)
                if replica.status.state is _DRAINING:
                    self._tell_drained(model, replica, out)
            else:
                self._after(live, outcome, now, out)
        if live.activation is not None and (finished := ledger.cold_start(live, live.activation, outcome)) is not None:
            out.append(TellColdStart(finished))
        if len(model.queue):
            self._serve(model, now, out)
        elif model.declared is None:
            self._drop_if_over(model)
        return out

    def progress(self, request: str, now: Instant) -> Progress | None:
        """How a waiting request stands; None when it does not wait."""
        ticket = self._tickets.get(request)
        if ticket is None:
            return None
        model = ticket.model
        ahead = model.queue.ahead(request)
        if not model.ready:
            return Progress(model.phase().value, ahead, model.ready_in(now))
        rate = model.drain_rate.rate(now)
        return Progress(model.phase().value, ahead, Seconds((ahead + 1) / rate) if rate else None)

    # What the engines say, and the passing of time

    def polls(self) -> tuple[Poll, ...]:
        """Whom to ask for its running count, again and again, until it is not here any more."""
        return tuple(
            Poll(model.name, replica.name, *replica.address, replica.status.busy_path)
            for model, replica in self._asked.values()
        )

    def engine_running(self, poll: Poll, count: int, asked_at: Instant, now: Instant) -> list[Command]:
        """An engine that was asked at `asked_at` runs `count` requests."""
        out: list[Command] = []
        asked = self._asked.get((poll.model, poll.replica))
        if asked is None or asked[1].address != (poll.host, poll.port):
            return out
        model, replica = asked
        if replica.settled_by_count(count, asked_at):
            self._settled(model, replica, now, out)
        return out

    def due(self) -> Instant | None:
        """When `advance` must be called next; None: not before something happens."""
        alarm = Instant(self._alarms[0][0]) if self._alarms else None
        tick = self._meters.tick_at
        if alarm is None or tick is None:
            return alarm if tick is None else tick
        return min(alarm, tick)

    def advance(self, now: Instant) -> list[Command]:
        """Time has passed: deadlines, quarantines, settling slots, windows. Costs nothing for models without any."""
        out: list[Command] = []
        ringing: list[ModelSlots] = []
        while self._alarms and self._alarms[0][0] <= now:
            at, name = heapq.heappop(self._alarms)
            model = self._models.get(name)
            if model is not None and model.alarm_at == at:
                model.alarm_at = None
                ringing.append(model)
        for model in ringing:
            self._look(model, now, out)
            self._arm(model)
        if self._meters.tick_at is not None and self._meters.tick_at <= now:
            out.extend(SendWindow(window) for window in self._meters.tick(now, self._waiting))
        return out

    def shutdown(self, now: Instant) -> list[Command]:
        """Refuse all that wait and all that come; leases go on and are given back as ever."""
        out: list[Command] = []
        self._closed = True
        for model in self._models.values():
            if model.declared is not None:  # else it drains after its deletion, which has refused all that waited
                self._refuse_all(model, model.queue.clear(), admission.shutting_down(), now, out)
        return out

    def statuses(self) -> Iterator[ModelStatus]:
        """How each declared model stands, by name."""
        for name in sorted(self._models):
            model = self._models[name]
            if model.declared is not None:
                aliases = model.declared.aliases
                yield ModelStatus(model.name, model.state(), len(model.queue), model.running, model.ready, aliases)

    @property
    def live_leases(self) -> int:
        """Leases that were not given back yet."""
        return len(self._live)

    # The parts

    def _known(self, name: ModelName) -> ModelSlots:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = ModelSlots(name, self._budget)
        return model

    def _hold(self, model: ModelSlots, wanted: TicketRequest, meter: Meter, now: Instant) -> Refusal | None:
        """Let a request wait, or say why it may not."""
        deadline = Instant(min(wanted.deadline, wanted.arrived_at + model.queue.policy.max_wait))
        if not model.ready and deadline > now:
            refusal = admission.impossible(model, deadline, now)
            if refusal is not None:
                return refusal
        held = Held(wanted.request, wanted.caller, wanted.arrived_at, deadline, wanted.body_bytes)
        why = model.queue.push(held, now, returning=wanted.attempt > 0)
        if why is not None:
            return admission.cannot_hold(model, held, why, now)
        self._tickets[wanted.request] = Ticket(wanted, model, now, model.wakes)
        meter.wait(now)
        if model.alarm_at is None or deadline < model.alarm_at:
            self._arm(model)
        return None

    def _serve(self, model: ModelSlots, now: Instant, out: list[Command]) -> None:
        """Give free slots to whoever waits."""
        if not model.queue or model.declared is None:
            return
        meter = self._meters.get(model.key, now)
        while (replica := model.pool.least_loaded()) is not None and (held := model.queue.pop()) is not None:
            ticket = self._tickets.pop(held.request)
            meter.unwait(now)
            model.drain_rate.add(now)
            self._grant(ticket, replica, now, out)

    def _grant(self, ticket: Ticket, replica: ReplicaSlots, now: Instant, out: list[Command]) -> None:
        model, wanted = ticket.model, ticket.wanted
        assert model.declared is not None
        self._last_lease = lease_id = self._last_lease + 1
        cold = model.wakes > ticket.wakes
        held = max(0.0, now - ticket.since)
        host, port = replica.address
        revision = replica.status.revision
        lease = Lease(
            id=lease_id,
            request=wanted.request,
            model=model.name,
            replica=replica.name,
            revision=revision,
            host=host,
            port=port,
            cancels=replica.cancels,
            held_seconds=Seconds(held),
            cold=cold,
        )
        activation = model.activation if cold else None
        if activation is not None and activation.lease is None:
            activation.lease = lease_id
        replica.lease(lease_id, now)
        model.pool.changed(replica)
        model.running += 1
        key = model.key if revision == model.key.revision else MeterKey(model.name, model.key.uid, revision)
        meter = self._meters.get(key, now)
        meter.start(now, held)
        self._live[lease_id] = Live(lease, wanted, model, model.declared, replica, now, meter, activation)
        out.append(Grant(lease))

    def _refuse_all(
        self, model: ModelSlots, gone: Iterable[Held], refusal: Refusal, now: Instant, out: list[Command]
    ) -> None:
        assert model.declared is not None
        for held in gone:
            del self._tickets[held.request]
            meter = self._meters.get(model.key, now)
            meter.unwait(now)
            meter.refuse(now)
            out.append(Refuse(held.request, refusal))

    def _after(self, live: Live, outcome: Outcome, now: Instant, out: list[Command]) -> None:
        """A lease on a replica that is still there has ended."""
        model, replica = live.model, live.replica
        if outcome.ending is Ending.UNREACHABLE or outcome.ending is Ending.TIMED_OUT:
            if replica.quarantined_until is None:
                out.append(Suspect(model.name, replica.name, ledger.suspicion(live, outcome, now)))
            if outcome.ending is Ending.UNREACHABLE:
                replica.quarantined_until = Instant(now + QUARANTINE)
                model.refresh()
                self._arm(model)
        if not outcome.engine_done:
            if replica.status.busy_path:
                self._asked[model.name, replica.name] = (model, replica)
            self._arm(model)
        model.pool.changed(replica)
        self._tell_drained(model, replica, out)

    def _look(self, model: ModelSlots, now: Instant, out: list[Command]) -> None:
        """What has become due for a model."""
        for held in model.queue.expire(now):
            self._refuse_all(model, (held,), admission.too_late(model, now - held.arrived_at), now, out)
        for replica in list(model.replicas.values()):
            done, overdue = replica.settled_by_time(now)
            if overdue:
                out.append(Suspect(model.name, replica.name, "it runs a request whose lease has long ended"))
            if done:
                self._settled(model, replica, now, out)
        model.end_quarantines(now)
        self._serve(model, now, out)

    def _settled(self, model: ModelSlots, replica: ReplicaSlots, now: Instant, out: list[Command]) -> None:
        if not replica.settling:
            self._asked.pop((model.name, replica.name), None)
        model.pool.changed(replica)
        self._serve(model, now, out)

    def _tell_drained(self, model: ModelSlots, replica: ReplicaSlots, out: list[Command]) -> None:
        if replica.draining and not replica.leases and not replica.drained:
            replica.drained = True
            out.append(Drained(model.name, replica.name))

    def _edge(self, model: ModelSlots, now: Instant, out: list[Command]) -> None:
        """Tell at once of first activity, of the first that waits, of a backlog that has grown by half."""
        if model.key in self._meters and (meter := self._meters.get(model.key, now)).edge:
            out.append(SendWindow(meter.window(now, self._waiting(model.key), edge=True)))

    def _waiting(self, key: MeterKey) -> Waiting:
        model = self._models.get(key.model)
        if model is None or not model.queue:
            return NOBODY_WAITS
        return Waiting(model.queue.oldest_arrival(), model.queue.next_deadline())

    def _arm(self, model: ModelSlots) -> None:
        """See to it that the model is looked at when something of it becomes due."""
        due = model.next_due()
        if due is None or (model.alarm_at is not None and due >= model.alarm_at):
            return
        model.alarm_at = due
        heapq.heappush(self._alarms, (due, model.name))
        if len(self._alarms) > 2 * len(self._models) + 64:  # mostly replaced ones: each model needs one
            self._alarms = [(it.alarm_at, it.name) for it in self._models.values() if it.alarm_at is not None]
            heapq.heapify(self._alarms)

    def _drop_if_over(self, model: ModelSlots) -> None:
        if model.over:
            self._models.pop(model.name, None)
