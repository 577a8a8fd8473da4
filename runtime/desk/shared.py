"""The desk of one of several gateways: it asks each model's slot authority, and is the authority of some models itself.

Requests, meters and news are as with one gateway. A lease comes from `runtime.core.sharing`, which says what is to be
said to whom; `runtime.desk.peers` carries it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from coldstart.core.hold import HoldBudget
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.following import Follower
from events.log import Batch, EventLog, Start
from events.names import ModelName, Topic
from events.types.gateways import GatewayBeat
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved
from events.units import Instant, Seconds
from events.writer import EventWriter
from runtime.core.commands import Grant
from runtime.core.frames import FromAuthority, Ping, ToAuthority
from runtime.core.holder import Holder
from runtime.core.ledger import Poll
from runtime.core.members import Member
from runtime.core.said import HangUp, Say, Tell
from runtime.core.sharing import Sharing
from runtime.desk.busy import BusyPoller
from runtime.desk.desk import NEVER, Desk, DeskSettings
from runtime.desk.peers import PeerCounts, Peers, PeerSettings
from runtime.ports import Lease, Outcome, Refusal, TicketRequest, Waiter

logger = logging.getLogger(__name__)

LOOK = Seconds(0.25)
"""How often it is looked at who lives and whom to call."""

MISSED_AFTER = Seconds(10.0)
"""A gateway that lives and does not come to us for so long is told of: its network may keep it from us."""


@dataclass(frozen=True, slots=True)
class SharingCounts:
    """What sharing models has come to since the start."""

    terms: int
    """Models that this gateway began to be the authority of."""
    granted: int
    """Slots that it granted as an authority, to all gateways."""
    gateways: int
    """Gateways that live."""
    missing: int
    """Gateways that live and have not come to us."""


class SharedDesk(Desk):
    """See `Desk`. Settings of the gateway need a `peer_address`; its port may be 0."""

    def __init__(
        self, log: EventLog, clock: Clock, writer: EventWriter, settings: DeskSettings, peers: PeerSettings
    ) -> None:
        me = Member(settings.gateway, settings.boot)
        self._holder = Holder(settings.gateway, HoldBudget(settings.hold_max_requests, settings.hold_max_bytes))
        self._sharing = Sharing(me, self._holder)
        super().__init__(log, clock, writer, settings, self._holder)
        self._peers = Peers(me, peers, clock, self)
        self._busy = BusyPoller(clock, self._sharing.authority.polls, self._engine_running)
        self._beats = Follower(log, clock, (Topic.GATEWAYS,), Start("newest_per_key"), self._take_beats)
        self._shared_alarm: asyncio.TimerHandle | None = None
        self._shared_alarm_at = NEVER
        self._missing_since: dict[Member, Instant] = {}
        self._unreachable: set[str] = set()
        """Gateways without a peer address, which were told of."""
        self._asking = False
        """Whether engines were to be asked for their counts when it was last looked at."""

    # Its life

    async def start(self) -> None:
        """Listen for other gateways, then see `Desk.start`. Raises OSError for a peer port that is taken."""
        address = await self._peers.start()
        self._heart.says = replace(self._heart.says, peer_address=address)
        for work, name in ((self._beats.run(), "desk-beats"), (self._look(), "desk-look")):
            self._tasks.append(self._spawn(work, name))
        await super().start()

    def shut_down(self) -> None:
        """See `Desk.shut_down`; but as long as other gateways stay, who waits and comes here gets their slots. They are
        told at once what this one knows."""
        self._heart.says = replace(self._heart.says, leaving=True)
        self._sharing.leave_all(self._clock.now())
        self._act()
        self._tasks.append(self._spawn(self._heart.beat(), "desk-leaves"))

    async def close(self) -> None:
        """See `Desk.close`. Other gateways see by the closed peer port that this one is gone."""
        if self._shared_alarm is not None:
            self._shared_alarm.cancel()
        await super().close()
        await self._peers.close()

    @property
    def sharing_counts(self) -> SharingCounts:
        """For metrics."""
        view = self._sharing.allegiance.view
        authority = self._sharing.authority
        return SharingCounts(
            terms=authority.begun,
            granted=authority.granted,
            gateways=0 if view is None else len(view.members),
            missing=len(authority.followers.missing()),
        )

    @property
    def peer_counts(self) -> PeerCounts:
        """For metrics."""
        return self._peers.counts

    # Slots

    def take(self, wanted: TicketRequest, waiter: Waiter) -> Lease | None:
        """See `Slots.take`. A lease at once if this gateway is the authority and a slot is free."""
        lease = super().take(wanted, waiter)
        if lease is not None or not self._holder.waiting(wanted.request):
            return lease
        self._sharing.asks(wanted, self._clock.now())
        return self._act(wanted.request)

    def leave(self, request: str) -> None:
        """See `Slots.leave`."""
        super().leave(request)
        self._sharing.left(request, self._clock.now())
        self._act()

    def give_back(self, lease: Lease, outcome: Outcome) -> None:
        """See `Slots.give_back`. Raises LeaseEnded."""
        self._sharing.given_back(lease, outcome, self._clock.now())
        super().give_back(lease, outcome)
        self._act()

    # What others say

    def met(self, follower: Member) -> None:
        """See `runtime.desk.peers.Listener`. Its answer to the ping is that it presents itself."""
        self._peers.tell(follower, Ping(self._clock.now()))

    def from_follower(self, follower: Member, frame: ToAuthority) -> None:
        """See `runtime.desk.peers.Listener`."""
        self._sharing.from_follower(follower, frame, self._clock.now())
        self._act()

    def from_authority(self, authority: Member, frame: FromAuthority) -> None:
        """See `runtime.desk.peers.Listener`."""
        self._sharing.from_authority(authority, frame, self._clock.now())
        self._act()

    def ended(self, member: Member, *, called: bool) -> None:
        """See `runtime.desk.peers.Listener`."""
        if called:
            self._sharing.lost(member)
        else:
            self._sharing.parted(member)
        self._act()

    def refused(self, member: Member) -> None:
        """See `runtime.desk.peers.Listener`."""
        logger.info("no gateway %s (%s) lives at its address any more", member.gateway, member.boot)
        self._sharing.refused(member, self._clock.now())
        self._act()

    # What is followed

    def _take_beats(self, batch: Batch) -> None:
        now = self._clock.now()
        for record in batch.records:
            beat = record.envelope.data
            if isinstance(beat, GatewayBeat):
                self._check_address(beat)
                superseded = self._sharing.membership.superseded
                self._sharing.beat(beat, record.envelope.time, record.appended_at, now)
                if self._sharing.membership.superseded and not superseded:
                    logger.error(
                        "another process beats as gateway %s: this one serves nothing any more; give each gateway a "
                        "name of its own (--node-name)", beat.gateway,
                    )  # fmt: skip
        self._peers.call(self._sharing.membership.addresses(now))
        self._act()

    def _check_address(self, beat: GatewayBeat) -> None:
        if beat.peer_address or beat.leaving or beat.gateway in self._unreachable:
            return
        if len(self._unreachable) < 1000:  # of more nothing is said: a beat comes each second
            self._unreachable.add(beat.gateway)
            logger.warning(
                "gateway %s has or had no peer address: if it runs, it sells the slots of all models itself; give each "
                "gateway of this event log a peer address (--peer-address)", beat.gateway,
            )  # fmt: skip

    def _apply(self, envelope: AnyEnvelope) -> None:
        super()._apply(envelope)
        data, now = envelope.data, self._clock.now()
        if isinstance(data, ReplicasObserved):
            self._sharing.observe(data, now)
        elif isinstance(data, ModelDeclared) and data.deleted:
            self._sharing.delete(ModelName(data.model), now)
        elif isinstance(data, ModelDeclared):
            declared = self._authority.resolve(data.model)
            if declared is not None:
                self._sharing.declare(declared, now)
        self._act()

    def _engine_running(self, poll: Poll, count: int, asked_at: Instant) -> None:
        self._sharing.engine_running(poll, count, asked_at, self._clock.now())
        self._act()

    async def _look(self) -> None:
        while True:
            now = self._clock.now()
            self._sharing.tick(now)
            self._peers.call(self._sharing.membership.addresses(now))
            self._act()
            self._complain(now)
            await self._clock.sleep_until(Instant(now + LOOK))

    def _complain(self, now: Instant) -> None:
        missing = self._sharing.authority.followers.missing()
        self._missing_since = {member: self._missing_since.get(member, now) for member in missing}
        for member, since in self._missing_since.items():
            if now - since >= MISSED_AFTER:
                self._missing_since[member] = Instant(float("inf"))  # once
                logger.warning(
                    "gateway %s lives and does not reach our peer port %s: while that is so, no new authority begins "
                    "here", member.gateway, self._heart.says.peer_address,
                )  # fmt: skip

    # What is to be done

    def _refuse(self, request: str, refusal: Refusal) -> None:
        self._sharing.left(request, self._clock.now())
        super()._refuse(request, refusal)
        self._act()

    def _act(self, request: str = "") -> Lease | None:
        """Do what sharing wants. Returns the lease of `request` if it is among it, instead of waking its waiter."""
        lease: Lease | None = None
        while effects := self._sharing.take():
            for effect in effects:
                if isinstance(effect, Say):
                    self._peers.say(effect.member, effect.frame)
                elif isinstance(effect, Tell):
                    self._peers.tell(effect.member, effect.frame)
                elif isinstance(effect, HangUp):
                    self._peers.hang_up(effect.member)
                elif isinstance(effect, Grant) and effect.lease.request == request:
                    lease = effect.lease
                    self._waiters.pop(request, None)
                else:
                    self._outbox.append(effect)
        self._work()
        due = self._sharing.authority.due()
        if due is not None and due < self._shared_alarm_at:
            self._arm(due)
        asking = bool(self._sharing.authority.polls())
        if asking and not self._asking:
            self._busy.wake()
        self._asking = asking
        return lease

    def _arm(self, due: Instant) -> None:
        if self._shared_alarm is not None:
            self._shared_alarm.cancel()
        self._shared_alarm_at = due
        left = max(0.0, due - self._clock.now())
        self._shared_alarm = asyncio.get_running_loop().call_later(left, self._shared_ring)

    def _shared_ring(self) -> None:
        self._shared_alarm, self._shared_alarm_at = None, NEVER
        self._sharing.advance(self._clock.now())
        self._act()
