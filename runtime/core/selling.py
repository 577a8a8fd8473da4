"""How the slots of shared models are sold: one queue of all gateways' tickets, in the order of their requests' arrival.

Whether a model may be sold at all is not known here: `runtime.core.shared_authority` says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping

from coldstart.core.hold import HoldRefusal
from events.units import Instant
from runtime.core import admission
from runtime.core.commands import Drained, Suspect
from runtime.core.engine_counts import EngineCounts
from runtime.core.followers import Followers
from runtime.core.frames import FromAuthority, Refused, Waits
from runtime.core.members import Member
from runtime.core.said import Said, Tell
from runtime.core.shared_model import SharedModel, Sold, Waiting
from runtime.core.slots import ReplicaSlots
from runtime.ports import RefusalCode


class Selling:
    """Tickets become leases. What is to be said and done is added to `out`.

    `may_sell` judges a model anew where something has changed, and may itself line it up and serve it.
    """

    def __init__(
        self, me: Member, followers: Followers, may_sell: Callable[[SharedModel, Instant], bool], out: list[Said],
        most_tickets: int,
    ) -> None:  # fmt: skip
        self._me = me
        self._followers = followers
        self._may_sell = may_sell
        self._out = out
        self._most_tickets = most_tickets
        self._last = 0
        self._alarms: list[tuple[float, str]] = []
        self.counts = EngineCounts(me)
        self.granted = 0
        """Slots that were sold."""

    # Tickets

    def ask(self, model: SharedModel, key: str, ticket: Waiting, now: Instant) -> None:
        """A request wants a slot: it gets one at once, or is told how many wait before it."""
        asked = ticket.ask
        if self._may_sell(model, now):
            if not model.slots.queue and (replica := model.slots.pool.least_loaded()) is not None:
                self._grant(model, ticket, replica, now)
                return
            model.tickets[key] = ticket
            if self._queue(model, key, now) and model.slots.ready:
                waits = Waits(self._turn(ticket.member), asked.request, len(model.slots.queue) - 1)
                self.tell(ticket.member, waits)
            self.serve(model, now)
        elif self.admit(model, key, ticket, now):
            self.tell(ticket.member, Waits(self._turn(ticket.member), asked.request, len(model.tickets) - 1))

    def admit(self, model: SharedModel, key: str, ticket: Waiting, now: Instant) -> bool:
        """Keep a ticket until we sell the model; False when there are too many."""
        if len(model.tickets) >= self._most_tickets:
            self._refuse(model, ticket, HoldRefusal.COUNT_IN_ALL, now)
            return False
        model.tickets[key] = ticket
        return True

    def line_up(self, model: SharedModel, now: Instant) -> None:
        """All who wait stand in the order of their arrival, and those for whom there is a slot get it."""
        for key in model.line_up():
            self._queue(model, key, now)
        self.serve(model, now)
        if model.slots.ready:
            for ahead, ticket in enumerate(model.tickets.values()):
                self.tell(ticket.member, Waits(self._turn(ticket.member), ticket.ask.request, ahead))

    def _queue(self, model: SharedModel, key: str, now: Instant) -> bool:
        """Let a ticket wait in the queue. Its gateway itself refuses those whose time is up."""
        ticket = model.tickets[key]
        why = model.queue(key, now)
        if why is not None and why is not HoldRefusal.TOO_OLD:
            self._refuse(model, ticket, why, now)
        return why is None

    def _refuse(self, model: SharedModel, ticket: Waiting, why: HoldRefusal, now: Instant) -> None:
        message = f"no slot of {model.name!r} is free: {why.value}, over all gateways"
        code, after = RefusalCode.QUEUE_FULL.value, admission.retry_after(model.slots, now)
        self.tell(ticket.member, Refused(self._turn(ticket.member), ticket.ask.request, code, message, after))

    # Slots

    def serve(self, model: SharedModel, now: Instant) -> None:
        """Give free slots to whoever waits."""
        if not model.tickets or not self._may_sell(model, now):
            return
        pool, queue = model.slots.pool, model.slots.queue
        while (replica := pool.least_loaded()) is not None and (held := queue.pop()) is not None:
            model.slots.drain_rate.add(now)
            self._grant(model, model.tickets.pop(held.request), replica, now)

    def _grant(self, model: SharedModel, ticket: Waiting, replica: ReplicaSlots, now: Instant) -> None:
        handle = self.handle()
        name = self.name(handle)
        self.granted += 1
        model.sold[name] = Sold(handle, name, ticket.member, replica.name, replica.life, now, at=replica)
        replica.lease(handle, now)
        model.slots.pool.changed(replica)
        follower = self._followers.get(ticket.member)
        as_of = now if follower is None else follower.as_of
        told = model.granted(name, ticket.ask.request, self._turn(ticket.member), as_of)
        self.tell(ticket.member, told)

    def weigh(self, now: Instant) -> None:
        """Free what engines' counts prove done."""
        for model, replica in self.counts.settled(self._followers, now):
            model.forget_settled(replica)
            model.disown(replica, lambda: self.name(self.handle()))
            self._settled(model, replica, now)

    def tell_drained(self, model: SharedModel, now: Instant) -> None:
        """Say of each replica that drains, once, that nothing runs on it."""
        for replica in model.slots.replicas.values():
            if replica.draining and not replica.busy and not replica.drained and self._may_sell(model, now):
                replica.drained = True
                self._out.append(Drained(model.name, replica.name))

    def _settled(self, model: SharedModel, replica: ReplicaSlots, now: Instant) -> None:
        model.forget_settled(replica)
        if not replica.settling:
            self.counts.forget(model, replica)
        model.slots.pool.changed(replica)
        self.tell_drained(model, now)
        self.serve(model, now)

    # The passing of time

    def due(self) -> Instant | None:
        """When a model is to be looked at."""
        return Instant(self._alarms[0][0]) if self._alarms else None

    def arm(self, model: SharedModel) -> None:
        """Look at a model by itself once one of its deadlines, quarantines or settling slots is over."""
        due = model.slots.next_due()
        if due is None or (model.slots.alarm_at is not None and due >= model.slots.alarm_at):
            return
        model.slots.alarm_at = due
        heapq.heappush(self._alarms, (due, model.name))

    def advance(self, models: Mapping[str, SharedModel], now: Instant) -> None:
        """Look at the models whose time has come."""
        for model in list(self._ringing(models, now)):
            self._look(model, now)
            self.arm(model)

    def _ringing(self, models: Mapping[str, SharedModel], now: Instant) -> Iterator[SharedModel]:
        while self._alarms and self._alarms[0][0] <= now:
            at, name = heapq.heappop(self._alarms)
            model = models.get(name)
            if model is not None and model.slots.alarm_at == at:
                model.slots.alarm_at = None
                yield model

    def _look(self, model: SharedModel, now: Instant) -> None:
        for held in model.slots.queue.expire(now):
            model.tickets.pop(held.request, None)
        for replica in list(model.slots.replicas.values()):
            done, overdue = replica.settled_by_time(now)
            if overdue and model.selling:
                self._out.append(Suspect(model.name, replica.name, "it runs a request whose lease has long ended"))
            if done:
                self._settled(model, replica, now)
        model.slots.end_quarantines(now)
        self.serve(model, now)

    # Words and names

    def tell(self, member: Member, frame: FromAuthority) -> None:
        """Say something to a gateway."""
        self._out.append(Tell(member, frame))

    def handle(self) -> int:
        """A number for a lease, never used before."""
        self._last += 1
        return self._last

    def name(self, handle: int) -> str:
        """Of a lease, among those of all gateways and all their lives."""
        return f"{self._me.boot}-{handle}"

    def _turn(self, member: Member) -> int:
        follower = self._followers.get(member)
        return 0 if follower is None else follower.turn
