"""One gateway of several: what it holds, whom it follows, and what it sells. Pure: frames in, frames and commands out.

`runtime.desk.shared` moves the frames. After each call `take` what is to be done, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from events.names import ModelName
from events.types.gateways import GatewayBeat
from events.types.replicas import ReplicasObserved
from events.units import Instant, Seconds
from runtime.core.allegiance import Allegiance
from runtime.core.commands import Command
from runtime.core.frames import (
    Ask,
    FromAuthority,
    GiveBack,
    Granted,
    Leave,
    Part,
    Ping,
    Present,
    Refused,
    Row,
    ToAuthority,
    Vow,
    Waits,
)
from runtime.core.holder import HeldLease, Holder, ask
from runtime.core.ledger import Poll
from runtime.core.members import UNSEEN, Member, View
from runtime.core.membership import Membership
from runtime.core.model_slots import Declared
from runtime.core.rendezvous import Authorities
from runtime.core.said import Effect, HangUp, Said, Say, Tell
from runtime.core.shared_authority import SharedAuthority
from runtime.ports import Ending, Lease, Outcome, Refusal, RefusalCode, TicketRequest

PING = Seconds(1.0)
"""How often an authority asks whether it is followed: seven times within `VOW`, three within `GRANT_LIFE`."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A lease of ours that has ended while the engine may be at its request, until then."""

    held: HeldLease
    until: Instant


@dataclass(frozen=True, slots=True)
class _HandOver:
    """What we knew of a model when we ceased to be its authority."""

    rows: tuple[Row, ...]
    at: Instant


class Sharing:
    """See the module."""

    def __init__(self, me: Member, holder: Holder) -> None:
        self.me = me
        self.holder = holder
        self.membership = Membership(me)
        self.allegiance = Allegiance(me)
        self._out: list[Said] = []
        self._effects: list[Effect] = []
        self.authority = SharedAuthority(me, self.membership.surely_dead, self._out)
        self._pinged: dict[Member, float] = {}
        """Authorities that we are connected to, and the newest ping of each."""
        self._asked: dict[str, str] = {}
        """Requests whose tickets their authorities have, and their models."""
        self._ended: dict[str, _Ended] = {}
        self._hand_overs: dict[str, _HandOver] = {}
        """What the next authorities of models have yet to be told."""
        self._ping_at = Instant(0.0)
        self._leaving = False

    def take(self) -> list[Effect]:
        """What is to be done, in order; then it is nobody's but the caller's."""
        effects, self._effects = self._effects, []
        return effects

    # What the states and the engines say

    def declare(self, declared: Declared, now: Instant) -> None:
        """A model is declared; to be told after the holder was."""
        self.authority.declare(declared, now)
        self._work(now)

    def delete(self, name: ModelName, now: Instant) -> None:
        """A model is not declared any more."""
        self.authority.delete(name)
        self._work(now)

    def observe(self, observed: ReplicasObserved, now: Instant) -> None:
        """What runs of a model; to be told after the holder was."""
        self.authority.observe(observed, now)
        self._work(now)

    def engine_running(self, poll: Poll, count: int, asked_at: Instant, now: Instant) -> None:
        """An engine that was asked at `asked_at` runs `count` requests."""
        self.authority.engine_running(poll, count, asked_at, now)
        self._work(now)

    def advance(self, now: Instant) -> None:
        """The authority's time has come, see its `due`."""
        self.authority.advance(now)
        self._work(now)

    # Who lives

    def beat(self, beat: GatewayBeat, said_at: Instant, appended_at: Instant, now: Instant) -> None:
        """A beat was read from the log. `said_at`: by the clock of the gateway that said it."""
        member, view = Member(beat.gateway, beat.boot), self.allegiance.view
        self.membership.beat(beat, appended_at, now)
        self.authority.followers.not_before = self.membership.read_on_until
        if view is not None and member not in view:
            self.authority.appeared(now)
        self._reconsider(now)
        if member == self.me:
            self.authority.read_back(said_at, now)
            self._work(now)

    def refused(self, member: Member, now: Instant) -> None:
        """A gateway's address refuses."""
        self.membership.refused(member)
        self._reconsider(now)

    def leave_all(self, now: Instant) -> None:
        """Be the authority of nothing any more. Who waits and comes here still gets the slots of those that stay; once
        nobody does, it is refused."""
        self._leaving = True
        self.membership.leave()
        self._reconsider(now)
        self._close_if_alone(now)

    def tick(self, now: Instant) -> None:
        """Some time has passed: to be called a few times a second."""
        self.authority.wakefulness.runs(now)
        self._reconsider(now)
        if now >= self._ping_at:
            self._ping_at = Instant(now + PING)
            self.authority.ping(now)
        self._ended = {name: it for name, it in self._ended.items() if it.until > now}
        self._work(now)

    # Connections

    def lost(self, authority: Member) -> None:
        """Our connection to an authority is gone."""
        self.allegiance.lost(authority)
        self._pinged.pop(authority, None)

    def parted(self, follower: Member) -> None:
        """A gateway's connection to us is gone."""
        self.authority.parted(follower)

    def from_follower(self, follower: Member, frame: ToAuthority, now: Instant) -> None:
        """A gateway says something to us as an authority."""
        self.membership.heard(follower, now)
        view = self.allegiance.view
        if view is None or follower not in view:
            self._effects.append(HangUp(follower))  # it will come again; by then we may have read its beat
            return
        match frame:
            case Ask():
                self.authority.ask(follower, frame, now)
            case GiveBack():
                self.authority.give_back(frame, now)
            case Vow():
                self.authority.vow(follower, frame, now)
            case Leave():
                self.authority.leave(follower, frame.model, frame.request)
            case Present():
                self.authority.present(follower, frame, now)
        self._work(now)

    def from_authority(self, authority: Member, frame: FromAuthority, now: Instant) -> None:
        """An authority says something to us."""
        self.membership.heard(authority, now)
        self._hear(authority, frame, now)
        self._work(now)

    # Our own requests

    def asks(self, wanted: TicketRequest, now: Instant) -> None:
        """A request waits here: ask its authority, if that one knows us; else it is presented later."""
        self._ask(ask(wanted, now), now)
        self._work(now)

    def left(self, request: str, now: Instant) -> None:
        """A request waits here no more."""
        model = self._asked.pop(request, None)
        if model is not None:
            self._say(model, Leave(model, request), now)
            self._work(now)

    def given_back(self, lease: Lease, outcome: Outcome, now: Instant) -> None:
        """A lease of ours ends; to be told before the holder is."""
        held = self.holder.held(lease.id)
        if held is None:
            return
        left = self.holder.left_behind(lease.id, outcome, now)
        if left is not None:
            self._ended[held.name] = _Ended(held, Instant(now + left))
        self._say(held.model, GiveBack(held.model, held.name, left, outcome.ending is Ending.UNREACHABLE), now)
        self._work(now)

    # The parts

    def _reconsider(self, now: Instant) -> None:
        """If who lives is another, follow accordingly: first cease to be an authority, then tell the next ones."""
        view = self.membership.view(now)
        if view == self.allegiance.view:
            return
        before, after = self.allegiance.authorities, None if view is None else Authorities(view)
        self._hand_overs = {name: it for name, it in self._hand_overs.items() if now - it.at < UNSEEN}
        for name in self.authority.names() if before is not None else ():
            if before is not None and before.of(name) == self.me and (after is None or after.of(name) != self.me):
                rows = self.authority.hand_over(name, now)
                if rows is not None:
                    self._hand_overs[name] = _HandOver(rows, now)
        self.allegiance.change(view, now)
        self._asked.clear()
        self.authority.change_view(self.allegiance.authorities, self.allegiance.vows(now), now)
        if view is not None:
            self._present_all(view, now)
        self._close_if_alone(now)
        self._work(now)

    def _close_if_alone(self, now: Instant) -> None:
        view = self.allegiance.view
        if self._leaving and (view is None or not view.staying):
            self._do(self.holder.shutdown(now))

    def _present_all(self, view: View, now: Instant) -> None:
        everything = self._everything(now)
        for member in view.staying:
            if member == self.me or member in self._pinged:
                self._present(member, everything.get(member, {}), now)
        for member in self._pinged:
            if member not in view.staying:  # it may still count on us for nothing
                self._present(member, {}, now)

    def _present(self, authority: Member, parts: dict[str, Part], now: Instant) -> None:
        view = self.allegiance.view
        assert view is not None
        vows = self.allegiance.vows(now)
        turn = self.allegiance.turn(authority, now)
        for name, part in parts.items():
            if part.sold is not None:
                self._hand_overs.pop(name, None)
            for asked in part.tickets:
                self._asked[asked.request] = name
        vow = Vow(self._pinged.get(authority, 0.0), now)
        told = Present(turn, view, tuple(parts.values()), vow, vows)
        if authority == self.me:
            self.authority.present(self.me, told, now)
        else:
            self._effects.append(Say(authority, told))

    def _everything(self, now: Instant) -> dict[Member, dict[str, Part]]:
        """Our leases, our tickets and what we hand over, by authority and model."""
        leases: dict[str, list[Row]] = {}
        tickets: dict[str, list[Ask]] = {}
        for held in self.holder.all_held():
            leases.setdefault(held.model, []).append(self._row(held, None, now))
        for ended in self._ended.values():
            if ended.until > now:
                row = self._row(ended.held, ended.until - now, now)
                leases.setdefault(ended.held.model, []).append(row)
        for asked in self.holder.asks(now):
            tickets.setdefault(asked.model, []).append(asked)
        found: dict[Member, dict[str, Part]] = {}
        for model in {**leases, **tickets, **self._hand_overs}:
            owner = self.allegiance.authority_of(model)
            if owner is not None:
                handed = self._hand_overs.get(model)
                sold = None if handed is None or now - handed.at >= UNSEEN else handed.rows
                part = Part(model, tuple(leases.get(model, ())), tuple(tickets.get(model, ())), sold)
                found.setdefault(owner, {})[model] = part
        return found

    def _row(self, held: HeldLease, left: float | None, now: Instant) -> Row:
        return Row(held.name, self.me, held.replica, held.life, max(0.0, now - held.granted_at), left)

    def _ask(self, asked: Ask, now: Instant) -> None:
        owner = self.allegiance.authority_of(asked.model)
        if owner is not None and self.allegiance.presented(owner):
            self._asked[asked.request] = asked.model
            self._say(asked.model, asked, now)

    def _say(self, model: str, frame: Ask | Leave | GiveBack, now: Instant) -> None:
        """Tell the authority of a model; one that does not know us yet is presented with what is then."""
        owner = self.allegiance.authority_of(model)
        if owner is None or not self.allegiance.presented(owner):
            return
        if owner != self.me:
            self._effects.append(Say(owner, frame))
        elif isinstance(frame, Ask):
            self.authority.ask(self.me, frame, now)
        elif isinstance(frame, Leave):
            self.authority.leave(self.me, frame.model, frame.request)
        else:
            self.authority.give_back(frame, now)

    def _hear(self, authority: Member, frame: FromAuthority, now: Instant) -> None:
        if isinstance(frame, Ping):
            self._pong(authority, frame, now)
        elif self.allegiance.current(authority, frame.turn):
            match frame:
                case Granted():
                    self._granted(authority, frame, now)
                case Waits():
                    self._do(self.holder.waits(frame.request, frame.ahead, now))
                case Refused():
                    self._asked.pop(frame.request, None)
                    after = None if frame.retry_after is None else Seconds(frame.retry_after)
                    refusal = Refusal(_code(frame.code), frame.message, after)
                    self._do(self.holder.refused(frame.request, refusal, now))

    def _pong(self, authority: Member, ping: Ping, now: Instant) -> None:
        self._pinged[authority] = ping.at
        view = self.allegiance.view
        if view is None or authority not in view:
            return
        vow = self.allegiance.vow(authority, ping.at, now)
        if vow is not None:
            self._effects.append(Say(authority, vow))
        else:
            self._present(authority, self._everything(now).get(authority, {}), now)

    def _granted(self, authority: Member, told: Granted, now: Instant) -> None:
        as_of = now if authority == self.me else told.as_of
        if not self.allegiance.usable(authority, told.model, as_of, now):
            self._say(told.model, GiveBack(told.model, told.name, None, unreachable=False), now)
            again = self.holder.again(told.request, now)
            if again is not None:
                self._ask(again, now)
            return
        self._asked.pop(told.request, None)
        commands = self.holder.granted(told, now)
        if commands is None:
            self._say(told.model, GiveBack(told.model, told.name, None, unreachable=False), now)
        else:
            self._do(commands)

    def _do(self, commands: list[Command]) -> None:
        self._effects.extend(commands)

    def _work(self, now: Instant) -> None:
        """Do what the authority said: to ourselves at once, to others by the caller."""
        while self._out:
            said = self._out.copy()
            self._out.clear()
            for one in said:
                if isinstance(one, Tell) and one.member == self.me:
                    self._hear(self.me, one.frame, now)
                else:
                    self._effects.append(one)


def _code(code: str) -> RefusalCode:
    """Of a newer release's word nothing is known but that it is a refusal that may pass."""
    return RefusalCode(code) if code in tuple(RefusalCode) else RefusalCode.QUEUE_FULL
