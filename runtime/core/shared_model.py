"""One model as its slot authority knows it when several gateways share it: who waits where, which slots are sold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coldstart.core.hold import Held, HoldBudget, HoldRefusal
from events.names import ModelName
from events.types.replicas import ReplicasObserved
from events.units import Instant, Seconds
from runtime.core.frames import Ask, Granted, Row
from runtime.core.members import Member
from runtime.core.model_slots import Declared, ModelSlots
from runtime.core.slots import ReplicaSlots, Settling

NOBODY = Member("", "")
"""Holds slots of which nobody can say whose request the engine may be at."""

NOT_JUDGED = -1
"""No version of `Followers`."""

UNDECLARED_TOTAL = Seconds(600.0)
"""Stands in for `timeouts.total` of a model that is not declared any more: that setting's default."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket: where its request waits, in our own time."""

    member: Member
    ask: Ask
    arrived_at: Instant
    deadline: Instant


@dataclass(slots=True)
class Sold:
    """A lease that we know of, and the replica whose slot it takes, once that one is known here."""

    handle: int
    name: str
    holder: Member
    replica: str
    life: str
    granted_at: Instant
    settling: Settling | None = None
    """Since it has ended, or its gateway is dead."""
    ended: bool = False
    """Its gateway has said that it has ended: from then on the engine alone says when it is done."""
    at: ReplicaSlots | None = None
    guessed: bool = False
    """It settles until a guess is over: its gateway died before the model's declaration had been read here."""

    def row(self, now: Instant) -> Row:
        """For whoever is the authority next."""
        left = None if self.settling is None else max(0.0, self.settling.until - now)
        return Row(self.name, self.holder, self.replica, self.life, max(0.0, now - self.granted_at), left)


class SharedModel:
    """Tickets and leases of one model, of all gateways."""

    __slots__ = ("hand_overs", "known", "selling", "slots", "sold", "suspect_until", "tickets", "version")

    def __init__(self, name: ModelName, budget: HoldBudget) -> None:
        self.slots = ModelSlots(name, budget)
        self.tickets: dict[str, Waiting] = {}
        """By gateway and request; while slots are sold they stand in `slots.queue` too."""
        self.sold: dict[str, Sold] = {}
        """By name."""
        self.hand_overs: dict[Member, tuple[Row, ...]] = {}
        """What gateways that were the authority until now know, until one is believed."""
        self.known = False
        """Whether every slot that may be busy is known to be."""
        self.selling = False
        self.version = NOT_JUDGED
        """Of `Followers` when it was last judged whether it may be sold."""
        self.suspect_until = Instant(0.0)
        """Replicas that are seen before this may have leases of an authority that died."""

    def declare(self, declared: Declared | None) -> None:
        """It is declared, or (None) no more. Whether it may be sold is judged anew: tickets of others may come before
        the declaration has been read here, and until then nobody may sell it."""
        self.version = NOT_JUDGED
        self.slots.declare(declared)
        for sold in self.sold.values():
            if sold.guessed and sold.at is not None:
                self._reckon(sold, sold.at)

    @property
    def name(self) -> ModelName:
        return self.slots.name

    @property
    def total(self) -> Seconds:
        """How long an engine may be at a request."""
        declared = self.slots.declared
        return UNDECLARED_TOTAL if declared is None else declared.timeouts.total

    @property
    def over(self) -> bool:
        """Whether nothing is left of a model that is not declared."""
        return self.slots.over and not self.tickets and not self.sold

    # Tickets

    def queue(self, key: str, now: Instant) -> HoldRefusal | None:
        """Put a ticket into the queue, or say why it may not wait; then it is gone."""
        ticket = self.tickets[key]
        asked = ticket.ask
        held = Held(key, asked.caller, ticket.arrived_at, ticket.deadline, asked.body_bytes)
        why = self.slots.queue.push(held, now, returning=asked.attempt > 0)
        if why is not None:
            del self.tickets[key]
        return why

    def line_up(self) -> list[str]:
        """All tickets in the order of their requests' arrival; none of them is in the queue then."""
        self.slots.queue.clear()
        return sorted(self.tickets, key=lambda key: self.tickets[key].arrived_at)

    def granted(self, name: str, request: str, turn: int, as_of: float) -> Granted:
        """What the gateway is told whose request has got the slot of this lease."""
        replica = self.sold[name].at
        assert replica is not None, "a slot is sold at a replica"
        host, port = replica.address
        return Granted(
            turn=turn, as_of=as_of, request=request, model=self.name, name=name, replica=replica.name,
            life=replica.life, revision=replica.status.revision, host=host, port=port, cancels=replica.cancels.value,
        )  # fmt: skip

    def drop(self, key: str) -> Waiting | None:
        """A ticket waits no more."""
        self.slots.queue.cancel(key)
        return self.tickets.pop(key, None)

    def drop_all(self, member: Member) -> None:
        """No ticket of a gateway waits any more."""
        for key in [key for key, ticket in self.tickets.items() if ticket.member == member]:
            self.drop(key)

    # Leases

    def put(self, sold: Sold) -> None:
        """A lease is known, anew or otherwise: it takes its replica's slot."""
        before = self.sold.get(sold.name)
        if before is not None:
            self.detach(before)
        self.sold[sold.name] = sold
        self.attach(sold)

    def enter(self, handle: int, row: Row, holder: Member, now: Instant) -> Sold:
        """A lease that its holder has presented."""
        sold = Sold(handle, row.name, holder, row.replica, row.life, Instant(now - row.age))
        self.put(sold)
        if row.left is not None:
            sold.ended = True
            self.settle(sold, now, Instant(now + row.left))
        return sold

    def inherit(self, handle: int, row: Row, since: Instant, now: Instant) -> None:
        """A lease of a gateway that does not live, as the authority before us tells."""
        left = max(0.0, self.total - row.age) if row.left is None else row.left
        sold = self.enter(handle, row, row.holder, now)
        self.settle(sold, since, Instant(max(since, now + left)))

    def take_for_busy(self, handle: int, name: str, replica: ReplicaSlots, since: Instant, now: Instant) -> None:
        """A slot of which nobody can say whether it is free."""
        sold = Sold(handle, name, NOBODY, replica.name, replica.life, now)
        self.put(sold)
        self.settle(sold, since, Instant(now + self.total))

    def bury(self, member: Member, now: Instant) -> list[ReplicaSlots]:
        """A gateway is dead: its tickets are gone, its leases settle. Returns the replicas that have them."""
        self.drop_all(member)
        found = []
        for sold in self.sold.values():
            if sold.holder == member and sold.settling is None:
                self.settle(sold, now, Instant(max(now, sold.granted_at + self.total)))
                sold.guessed = self.slots.declared is None
                if sold.at is not None:
                    found.append(sold.at)
        return found

    def attach(self, sold: Sold) -> None:
        """Take the slot, if the replica is known."""
        replica = self.slots.replicas.get(sold.replica)
        if replica is None or replica.life != sold.life:
            return
        sold.at = replica
        if sold.settling is None:
            replica.leases[sold.handle] = sold.granted_at
        else:
            counts = bool(replica.status.busy_path)
            if sold.settling.counts is not counts:
                sold.settling = replace(sold.settling, counts=counts)
            replica.settling[sold.handle] = sold.settling
            if sold.guessed:
                self._reckon(sold, replica)
        self.slots.pool.changed(replica)

    def _reckon(self, sold: Sold, replica: ReplicaSlots) -> None:
        """Now that it may be known how long the engine may be at a request whose gateway is dead: until then, where
        that is sooner. (Under the same name another model, of another uid, may have been declared meanwhile.)"""
        declared, guess = self.slots.declared, sold.settling
        if guess is None or declared is None or declared.uid != replica.instance.uid:
            return
        until = Instant(min(guess.until, max(guess.since, sold.granted_at + self.total)))
        sold.settling = replica.settling[sold.handle] = replace(guess, until=until, patience=self.total)
        sold.guessed = False

    def detach(self, sold: Sold) -> None:
        """Its slot is free."""
        if sold.at is not None:
            sold.at.leases.pop(sold.handle, None)
            sold.at.settling.pop(sold.handle, None)
            self.slots.pool.changed(sold.at)
            sold.at = None

    def remove(self, name: str) -> Sold | None:
        """A lease has ended, and the engine is done."""
        sold = self.sold.pop(name, None)
        if sold is not None:
            self.detach(sold)
        return sold

    def settle(self, sold: Sold, since: Instant, until: Instant) -> None:
        """A lease has ended, and the engine may be at its request until `until`, or as long as it counts it."""
        replica = sold.at or self.slots.replicas.get(sold.replica)
        counts = replica is not None and bool(replica.status.busy_path)
        self.detach(sold)
        sold.settling = Settling(since, until, counts, self.total)
        sold.guessed = False
        self.attach(sold)

    def forget_settled(self, replica: ReplicaSlots) -> None:
        """Drop the leases whose slots of this replica have settled."""
        done = [
            it.name
            for it in self.sold.values()
            if it.settling is not None and it.at is replica and it.handle not in replica.settling
        ]
        for name in done:
            del self.sold[name]

    def disown(self, replica: ReplicaSlots, name: Callable[[], str]) -> None:
        """A count has freed some of a replica's settling slots, and says not whose: those that are left are nobody's.

        A lease that is left may stand for another's request, whose own was freed. If its gateway comes back and says
        that it holds it no more, or gives it back, that proves nothing of the slot; the next count does.
        """
        left = [it for it in self.sold.values() if it.at is replica and it.settling is not None and it.holder != NOBODY]
        for sold in left:
            del self.sold[sold.name]
            nobodys = replace(sold, name=name(), holder=NOBODY)
            self.sold[nobodys.name] = nobodys

    def observe(self, observed: ReplicasObserved, now: Instant) -> tuple[list[ReplicaSlots], tuple[ReplicaSlots, ...]]:
        """Take over what runs. Returns the replicas that are new here, and those that are gone."""
        before = self.slots.replicas
        gone = self.slots.observe(observed)
        for sold in list(self.sold.values()):
            if sold.at is not None and sold.at.gone:
                sold.at = None
            if sold.at is None:
                self.attach(sold)
            if sold.at is None and sold.settling is not None and sold.settling.until <= now:
                del self.sold[sold.name]
        fresh = [it for name, it in self.slots.replicas.items() if before.get(name) is not it]
        return fresh, gone
