"""Whom a gateway follows: one authority a model at a time, by its view of who lives."""

from __future__ import annotations

from events.units import Instant
from runtime.core.frames import Vow
from runtime.core.members import GRANT_LIFE, VOW, Member, View
from runtime.core.rendezvous import Authorities


class Allegiance:
    """What `me` has promised to whom. Without a view it follows nobody."""

    def __init__(self, me: Member) -> None:
        self.me = me
        self.authorities: Authorities | None = None
        self._turns: dict[Member, int] = {}
        """How often we have presented ourselves to each authority over the connection that we have to it."""
        self._turn = 0
        self._vowed: dict[Member, Instant] = {}
        """When we last vowed to each."""

    @property
    def view(self) -> View | None:
        """Who lives, as we see it."""
        return None if self.authorities is None else self.authorities.view

    def change(self, view: View | None, now: Instant) -> None:
        """Who lives is another now."""
        self.authorities = None if view is None else Authorities(view)
        self._vowed = {member: at for member, at in self._vowed.items() if at + VOW > now}

    def authority_of(self, model: str) -> Member | None:
        """Whom we follow for a model."""
        return None if self.authorities is None else self.authorities.of(model)

    def turn(self, authority: Member, now: Instant) -> int:
        """A new presentation to an authority begins: what it granted before is void."""
        self._turn += 1
        self._turns[authority] = self._turn
        self._vowed[authority] = now
        return self._turn

    def presented(self, authority: Member) -> bool:
        """Whether it knows what we hold, and is told of what changes."""
        return authority in self._turns

    def lost(self, authority: Member) -> None:
        """The connection to it is gone, with all that was on its way."""
        self._turns.pop(authority, None)

    def vow(self, authority: Member, ping: float, now: Instant) -> Vow | None:
        """The answer to its ping; None before we have presented ourselves."""
        if authority not in self._turns:
            return None
        self._vowed[authority] = now
        return Vow(ping, now)

    def vows(self, now: Instant) -> tuple[tuple[Member, float], ...]:
        """To whom we have vowed of late, and how many seconds ago."""
        return tuple((member, now - at) for member, at in self._vowed.items() if at + VOW > now)

    def current(self, authority: Member, turn: int) -> bool:
        """Whether something that answers this presentation is said to us as we are now."""
        return self._turns.get(authority) == turn

    def usable(self, authority: Member, model: str, as_of: float, now: Instant) -> bool:
        """Whether a slot that it grants us may be used: we follow it, and the grant is fresh."""
        return self.authority_of(model) == authority and now - as_of <= GRANT_LIFE
