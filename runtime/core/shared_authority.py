"""The slot authority of models that several gateways share: it sells the slots, to one queue of all gateways' tickets.

It sells a model while every gateway that lives follows it for that model (`runtime.core.followers`). It begins when all
have presented their leases and tickets, and then knows which slots are taken: from the authority before it, if that one
has handed over what it knew, else by taking every slot that nobody presents for busy until the engine's count or the
total time of a request says otherwise. docs/decisions/0012 has the argument why no slot is sold twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coldstart.core.hold import HoldBudget
from events.names import ModelName
from events.types.replicas import ReplicasObserved
from events.units import Bytes, Instant
from runtime.core.authority import QUARANTINE
from runtime.core.followers import Followers
from runtime.core.frames import Ask, GiveBack, Part, Ping, Present, Row, Vow
from runtime.core.ledger import Poll
from runtime.core.members import GRANT_LIFE, UNSEEN, Member
from runtime.core.model_slots import Declared
from runtime.core.rendezvous import Authorities
from runtime.core.said import HangUp, Said
from runtime.core.selling import Selling
from runtime.core.shared_model import SharedModel, Waiting
from runtime.core.slots import ReplicaSlots
from runtime.core.wakefulness import Wakefulness

MOST_TICKETS = 200_000
"""Tickets of all gateways together, half a kilobyte each; each gateway's own bounds are far lower."""


class SharedAuthority:
    """The models of several gateways, as their authority. Methods add what is to be said and done to `out`."""

    def __init__(
        self, me: Member, surely_dead: Callable[[Member], bool], out: list[Said], most_tickets: int = MOST_TICKETS
    ) -> None:
        self._me = me
        self._surely_dead = surely_dead
        self._out = out
        self._budget = HoldBudget(most_tickets, Bytes(1 << 62))  # the bytes are held, and bounded, where the bodies are
        self._models: dict[str, SharedModel] = {}
        self.followers = Followers(me, surely_dead)
        self._selling = Selling(me, self.followers, self._may_sell, out, most_tickets)
        self._counts = self._selling.counts
        self._begins_at: Instant | None = None
        self._late_grants_until = Instant(0.0)
        """Until then a gateway of which we know nothing may use a slot that was granted to it before."""
        self.wakefulness = Wakefulness()
        self.begun = 0
        """Terms that have begun: models that we began to sell."""

    @property
    def granted(self) -> int:
        """Slots that were sold."""
        return self._selling.granted

    # What the states say

    def declare(self, declared: Declared, now: Instant) -> None:
        """A model is declared, anew or otherwise."""
        model = self._known(declared.model)
        model.declare(declared)
        self._may_sell(model, now)  # at once: a term may have to wait for engines' counts
        self._selling.serve(model, now)

    def delete(self, name: ModelName) -> None:
        """A model is not declared any more; each gateway refuses its own."""
        model = self._models.get(name)
        if model is not None:
            self._stop(model)
            model.known = False
            model.tickets.clear()
            model.declare(None)
            self._drop_if_over(model)

    def observe(self, observed: ReplicasObserved, now: Instant) -> None:
        """What runs of a model."""
        model = self._known(ModelName(observed.model))
        seen = {(it.replica, it.created_at) for it in model.slots.observed.replicas}
        fresh, gone = model.observe(observed, now)
        self._may_sell(model, now)
        for replica in gone:
            self._counts.forget(model, replica)
        if model.known and now < model.suspect_until:
            # Whose start was seen here cannot have been leased before.
            unseen = [it for it in fresh if (it.name, it.status.created_at) not in seen]
            self._take_for_busy(model, unseen, now)
        for replica in fresh:
            self._counts.want(model, replica)
        self._selling.serve(model, now)
        self._selling.tell_drained(model, now)
        self._selling.arm(model)
        self._drop_if_over(model)

    # Who lives, and what they present

    def change_view(
        self, authorities: Authorities | None, vows: tuple[tuple[Member, float], ...], now: Instant
    ) -> None:
        """Who lives is another now. Leases of the dead settle, tickets of the dead are gone."""
        self._notice(now)
        before = self.followers.view
        after = before if authorities is None else authorities.view
        silent = () if before is None or after is None else (it for it in before.members if it not in after)
        if before is None or any(not self._surely_dead(member) for member in silent):
            self._late_grants_until = Instant(now + GRANT_LIFE)
        for member in self.followers.change_view(authorities, vows, now):
            self._out.append(HangUp(member))
            self._bury(member, now)
        self.ping(now)
        self._judge_all(now)

    def hand_over(self, model: str, now: Instant) -> tuple[Row, ...] | None:
        """All leases of a model, for its next authority; None if we may have missed some. Ends our term."""
        known = self._models.get(model)
        if known is None or known.slots.declared is None:
            return None
        self._may_sell(known, now)
        told = tuple(sold.row(now) for sold in known.sold.values()) if known.known else None
        known.known = False
        self._stop(known)
        return told

    def names(self) -> list[str]:
        """The models that are declared."""
        return [name for name, model in self._models.items() if model.slots.declared is not None]

    def present(self, member: Member, told: Present, now: Instant) -> None:
        """A gateway follows us: these are its leases and tickets of our models, and there are no others."""
        self._notice(now)
        authorities = self.followers.present(member, told, now)
        for model in self._models.values():
            model.hand_overs.pop(member, None)
            model.drop_all(member)
            mine = [it.name for it in model.sold.values() if it.holder == member and not it.ended]
            if mine and authorities.of(model.name) == self._me:
                for name in mine:
                    model.remove(name)
        for part in told.parts:
            self._take_part(member, part, now)
        self._judge_all(now)
        for part in told.parts:
            known = self._models.get(part.model)
            if known is not None and known.selling:
                self._selling.line_up(known, now)

    def vow(self, member: Member, told: Vow, now: Instant) -> None:
        """A gateway still follows us."""
        self._notice(now)
        version = self.followers.version
        self.followers.vow(member, told, now)
        if self.followers.version != version:
            self._judge_all(now)
        self._selling.weigh(now)

    def parted(self, member: Member) -> None:
        """The connection of a gateway is gone: its tickets are, until it presents them again; its leases are not."""
        for model in self._models.values():
            model.drop_all(member)

    def read_back(self, said_at: Instant, now: Instant) -> None:
        """Our own beat has come back from the log."""
        self._notice(now)
        self.followers.read_back(said_at)
        if self.wakefulness.read_back(said_at):
            for model in self._models.values():
                if model.selling:
                    self._selling.line_up(model, now)
            self._judge_all(now)

    def appeared(self, now: Instant) -> None:
        """A gateway of which we did not know has been there: if we stood still, it may have sold our slots."""
        if not self.wakefulness.runs(now):
            self._lapse(now)

    def ping(self, now: Instant) -> None:
        """Ask all that follow us whether they still do."""
        for member in self.followers.members():
            self._selling.tell(member, Ping(now))

    # What requests do

    def ask(self, member: Member, asked: Ask, now: Instant) -> None:
        """A request wants a slot."""
        model = self._known(ModelName(asked.model))
        key = f"{member.gateway}/{asked.request}"
        if key in model.tickets:
            return
        ticket = Waiting(member, asked, Instant(now - asked.held), Instant(now + asked.left))
        self._selling.ask(model, key, ticket, now)

    def leave(self, member: Member, name: str, request: str) -> None:
        """A request waits no more."""
        if (model := self._models.get(name)) is not None:
            model.drop(f"{member.gateway}/{request}")

    def give_back(self, ended: GiveBack, now: Instant) -> None:
        """A lease has ended."""
        model = self._models.get(ended.model)
        sold = None if model is None else model.sold.get(ended.name)
        if model is None or sold is None:
            return
        replica = sold.at
        if ended.left is None:
            model.remove(ended.name)
        else:
            sold.ended = True
            model.settle(sold, now, Instant(now + ended.left))
            if replica is not None:
                self._counts.want(model, replica)
            self._selling.arm(model)
        if replica is not None and ended.unreachable:
            replica.quarantined_until = Instant(now + QUARANTINE)
            model.slots.refresh()
            self._selling.arm(model)
        if replica is not None and replica.draining:
            self._selling.tell_drained(model, now)
        if model.slots.queue:
            self._selling.serve(model, now)
        elif model.slots.declared is None:
            self._drop_if_over(model)

    # What the engines say, and the passing of time

    def polls(self) -> tuple[Poll, ...]:
        """Whom to ask for its running count."""
        return self._counts.polls()

    def engine_running(self, poll: Poll, count: int, asked_at: Instant, now: Instant) -> None:
        """An engine that was asked at `asked_at` runs `count` requests."""
        for holder in self._counts.note(poll, count, asked_at):
            self._selling.tell(holder, Ping(now))
        self._selling.weigh(now)

    def due(self) -> Instant | None:
        """When `advance` must be called next."""
        alarm = self._selling.due()
        begins = self._begins_at
        if alarm is None or begins is None:
            return begins if alarm is None else alarm
        return min(alarm, begins)

    def advance(self, now: Instant) -> None:
        """Time has passed: deadlines, quarantines, settling slots, and the wait for a silent authority."""
        if self._begins_at is not None and self._begins_at <= now:
            self._begins_at = None
            self.followers.version += 1
            self._judge_all(now)
        self._selling.advance(self._models, now)

    # The parts: what may be sold

    def _may_sell(self, model: SharedModel, now: Instant) -> bool:
        if not self.wakefulness.runs(now):
            return False
        self._notice(now)
        if model.version != self.followers.version:
            self._judge(model, now)
        return model.selling

    def _judge(self, model: SharedModel, now: Instant) -> None:
        """Whether a model may be sold, now that something has changed."""
        model.version = self.followers.version
        followers = self.followers
        mine = followers.authority_of(model.name) == self._me and model.slots.declared is not None
        if not mine or followers.lapsed(now) or not followers.stay(model.name):
            self._stop(model)
        elif model.known:
            self._start(model, now)
        elif not followers.all_here(model.name):
            self._stop(model)
        elif (begins_at := followers.begins_at()) > now:
            self._begins_at = begins_at if self._begins_at is None else min(begins_at, self._begins_at)
            self._stop(model)
        else:
            self._begin(model, now)
            self._start(model, now)

    def _judge_all(self, now: Instant) -> None:
        """Judge the models that anything goes on for; others are judged when they are asked for."""
        for model in list(self._models.values()):
            if model.tickets or model.slots.replicas or model.sold:
                self._may_sell(model, now)

    def _begin(self, model: SharedModel, now: Instant) -> None:
        """A term begins: all gateways have presented themselves. Find out which slots nobody speaks for."""
        self.begun += 1
        if len(model.hand_overs) == 1:
            (rows,) = model.hand_overs.values()
            for row in rows:
                if row.name not in model.sold and not self._speaks_for_itself(row.holder):
                    since = now if self._surely_dead(row.holder) else Instant(now + GRANT_LIFE)
                    model.inherit(self._selling.handle(), row, since, now)
        else:
            self._take_for_busy(model, list(model.slots.replicas.values()), now)
            model.suspect_until = Instant(now + UNSEEN)
        model.hand_overs.clear()
        model.known = True

    def _start(self, model: SharedModel, now: Instant) -> None:
        if model.selling:
            return
        model.selling = True
        for replica in model.slots.replicas.values():
            replica.drained = False
            self._counts.want(model, replica)
        self._selling.line_up(model, now)
        self._selling.tell_drained(model, now)
        self._selling.arm(model)

    def _stop(self, model: SharedModel) -> None:
        if model.selling:
            model.selling = False
            model.slots.queue.clear()

    def _notice(self, now: Instant) -> None:
        """Before anything that may extend it: whether our time is up."""
        if self.followers.lapsed(now):
            self._lapse(now)

    def _lapse(self, now: Instant) -> None:
        """Others may have taken us for dead, and have sold what we do not know of."""
        self.followers.start_over(now)
        for model in self._models.values():
            model.known = False
            self._stop(model)

    def _take_for_busy(self, model: SharedModel, replicas: Iterable[ReplicaSlots], now: Instant) -> None:
        """Nobody can say which slots are free: all that are not leased may be busy."""
        for replica in replicas:
            # (A lease that has ended may have settled before, and its slot have been sold again.)
            for _ in range(replica.status.slots - len(replica.leases)):
                handle = self._selling.handle()
                model.take_for_busy(handle, self._selling.name(handle), replica, max(now, self._late_grants_until), now)
            self._counts.want(model, replica)
        self._selling.arm(model)

    def _bury(self, member: Member, now: Instant) -> None:
        for model in list(self._models.values()):
            for replica in model.bury(member, now):
                self._counts.want(model, replica)
            self._selling.arm(model)

    def _speaks_for_itself(self, holder: Member) -> bool:
        """Whether a lease that its holder has not presented is over."""
        return holder == self._me or self.followers.get(holder) is not None

    def _take_part(self, member: Member, part: Part, now: Instant) -> None:
        model = self._known(ModelName(part.model))
        if part.sold is not None and not model.known:
            model.hand_overs[member] = model.hand_overs.get(member, ()) + part.sold
        for row in part.leases:
            sold = model.enter(self._selling.handle(), row, member, now)
            if sold.at is not None:
                self._counts.want(model, sold.at)
        for asked in part.tickets:
            ticket = Waiting(member, asked, Instant(now - asked.held), Instant(now + asked.left))
            self._selling.admit(model, f"{member.gateway}/{asked.request}", ticket, now)
        self._selling.arm(model)

    def _known(self, name: ModelName) -> SharedModel:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = SharedModel(name, self._budget)
        return model

    def _drop_if_over(self, model: SharedModel) -> None:
        if model.over:
            self._models.pop(model.name, None)
