"""Who follows an authority, and so what it may sell.

An authority may sell a model while all that follow it do so for that model, and nobody can have taken it for dead: the
log brings its own beats back, or, while the log is away, every gateway that lives has vowed to it of late. A vow is
dated by the authority's own ping that it answers, so no two clocks are compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from events.units import Instant
from runtime.core.frames import Present, Vow
from runtime.core.members import LOG_LEASE, VOW, Member, View
from runtime.core.rendezvous import Authorities

NEVER = Instant(float("-inf"))
ALWAYS = Instant(float("inf"))

ANSWERS = 64
"""Vows that are remembered: while an engine is asked for its count, ten come in a second; the last second matters."""


@dataclass(slots=True)
class Follower:
    """What one gateway has presented, and when it last vowed."""

    member: Member
    turn: int
    authorities: Authorities
    vowed_until: Instant = NEVER
    """We may count on it until then; `NEVER` before its first vow."""
    as_of: float = 0.0
    """Its own time in its last vow."""
    answers: deque[tuple[Instant, float]] = field(default_factory=lambda: deque(maxlen=ANSWERS))
    """When its last vows came, and the pings that they answered."""
    vows: dict[Member, Instant] = field(default_factory=dict)
    """To whom it has vowed before, and until when that authority may count on it."""

    def answered(self, by: Instant) -> float:
        """The newest ping that it had answered by then: it had received all that was said to it before that ping."""
        return max((ping for at, ping in self.answers if at <= by), default=NEVER)


class Followers:
    """The gateways that follow `me`."""

    def __init__(self, me: Member, surely_dead: Callable[[Member], bool]) -> None:
        self._me = me
        self._surely_dead = surely_dead
        self._followers: dict[Member, Follower] = {}
        self._authorities: Authorities | None = None
        self._own_vows: dict[Member, Instant] = {}
        self.version = 0
        """Goes up with everything that may change what may be sold."""
        self._viewed_at = NEVER
        """When our view of who lives changed, or we may have been taken for dead: what was said before is void."""
        self.not_before = NEVER
        """We begin nothing until then: we may not have read of all gateways yet."""
        self._log_until = NEVER
        self.until = NEVER
        """Until when nobody has taken us for dead."""

    @property
    def view(self) -> View | None:
        """Who lives, as we see it."""
        return None if self._authorities is None else self._authorities.view

    def get(self, member: Member) -> Follower | None:
        """A gateway that has presented itself."""
        return self._followers.get(member)

    def change_view(
        self, authorities: Authorities | None, vows: tuple[tuple[Member, float], ...], now: Instant
    ) -> list[Member]:
        """Who lives is another now; `vows` are our own of late. Returns who is dead: followers that live no more."""
        self._authorities = authorities
        self._viewed_at = now
        self._own_vows |= {member: Instant(now - age + VOW) for member, age in vows}
        self._own_vows = {member: until for member, until in self._own_vows.items() if until > now}
        gone = [] if authorities is None else [member for member in self._followers if member not in authorities.view]
        for member in gone:
            del self._followers[member]
        self._changed()
        return gone

    def members(self) -> list[Member]:
        """All that follow us, but for ourselves."""
        return [member for member in self._followers if member != self._me]

    def read_back(self, said_at: Instant) -> None:
        """Our beat of that time has come back from the log."""
        self._log_until = max(self._log_until, Instant(said_at + LOG_LEASE))
        self.until = self._until()

    def present(self, member: Member, told: Present, now: Instant) -> Authorities:
        """A gateway follows us anew, or for other models. Returns whom it follows."""
        before = self._followers.get(member)
        made = Follower(member, told.turn, Authorities(told.view))
        made.vows = {other: Instant(now - age + VOW) for other, age in told.vows if other != self._me}
        if before is not None:
            made.vowed_until, made.as_of, made.answers = before.vowed_until, before.as_of, before.answers
            if before.authorities.view == told.view:
                made.authorities = before.authorities
        self._followers[member] = made
        if member != self._me:
            self.vow(member, told.vow, now)
        self._changed()
        return made.authorities

    def vow(self, member: Member, told: Vow, now: Instant) -> None:
        """A gateway has answered a ping."""
        follower = self._followers.get(member)
        if follower is None:
            return
        was_here = self._is_here(follower)
        follower.vowed_until = max(follower.vowed_until, Instant(told.ping + VOW))
        follower.as_of = max(follower.as_of, told.at)
        follower.answers.append((now, told.ping))
        if not was_here:
            self.version += 1
        self.until = self._until()

    def start_over(self, now: Instant) -> None:
        """All must say anew that they follow us."""
        self._viewed_at = now
        self.version += 1

    def lapsed(self, now: Instant) -> bool:
        """Whether others may have taken us for dead."""
        return now >= self.until

    def authority_of(self, model: str) -> Member | None:
        """The authority of a model in our own view."""
        return None if self._authorities is None else self._authorities.of(model)

    def stay(self, model: str) -> bool:
        """Whether all that ever followed us, and live, do so for this model: enough to go on selling.

        A gateway that has just come and not presented itself yet has no leases, and whoever would sell in our stead
        needs us.
        """
        return all(follower.authorities.of(model) == self._me for follower in self._followers.values())

    def all_here(self, model: str) -> bool:
        """Whether all gateways that live follow us for this model, and we know what they hold: enough to begin."""
        return not self.missing() and self.stay(model)

    def missing(self) -> list[Member]:
        """Those that live and have not said that they follow us since our view is what it is."""
        members = () if self._authorities is None else self._authorities.view.members
        return [
            member
            for member in members
            if member != self._me and ((follower := self._followers.get(member)) is None or not self._is_here(follower))
        ]

    def begins_at(self) -> Instant:
        """The earliest instant at which we may begin to sell: until then a silent authority may still count on one of
        us. One whose process is gone for sure is not waited for."""
        latest = self.not_before
        view: View | None = None if self._authorities is None else self._authorities.view
        for vows in (self._own_vows, *(follower.vows for follower in self._followers.values())):
            for member, until in vows.items():
                if until > latest and (view is None or member not in view) and not self._surely_dead(member):
                    latest = until
        return latest

    def _is_here(self, follower: Follower) -> bool:
        """Whether it has answered what we asked since then: by now we have read all that it presented before."""
        return bool(follower.answers) and follower.answers[-1][1] >= self._viewed_at

    def _changed(self) -> None:
        self.version += 1
        self.until = self._until()

    def _until(self) -> Instant:
        """While the log brings our beats back, or all vow. Alone we need nobody: see `Wakefulness`."""
        members = () if self._authorities is None else self._authorities.view.members
        vowed = [
            NEVER if (follower := self._followers.get(member)) is None else follower.vowed_until
            for member in members
            if member != self._me
        ]
        return max(self._log_until, min(vowed, default=ALWAYS))
