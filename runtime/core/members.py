"""Who shares models: gateways by name and boot, and a view of those that live."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Seconds

UNSEEN = Seconds(5.0)
"""A gateway of which nothing was seen for so long is dead (design §4)."""

VOW = Seconds(7.0)
"""How long an authority may sell after the last sign that a gateway follows it, and how long whoever takes over from a
silent one waits. More than `UNSEEN`: a gateway that falls silent is found dead before it stops the authority."""

LOG_LEASE = Seconds(4.0)
"""For so long after it said a beat that it has read back since, nobody takes a gateway for dead: others do `UNSEEN`
after the beat's append. A second is left for the clocks of several brokers."""

GRANT_LIFE = Seconds(3.0)
"""A grant is used only if it answers something that its gateway said within this time: less than `UNSEEN`, so no grant
to a gateway that was found dead by its silence is used later."""


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One life of a gateway: `boot` is new at each start."""

    gateway: str
    boot: str


@dataclass(frozen=True, slots=True)
class View:
    """The gateways that live, as one of them sees it, each in the order of names. Leaving ones take no model."""

    staying: tuple[Member, ...]
    leaving: tuple[Member, ...] = ()

    def __contains__(self, member: Member) -> bool:
        return member in self.staying or member in self.leaving

    @property
    def members(self) -> tuple[Member, ...]:
        """All that live."""
        return self.staying + self.leaving
