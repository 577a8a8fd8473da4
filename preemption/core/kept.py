"""Replicas that are only kept go to models for which requests wait. Pure; on the pool's own ledger, which is left as it
was.

A replica is *only kept* when its model's wish says that nothing has needed it for a stable window: it lives on by its
keep-alive, or by a forecast. A model whose requests wait and that has no place has those of equal or lower priority,
the lowest first, then in the order in which they would come last; of those that are equal in that, those that leave the
cards best (`giving`); no more than it needs, and none while what drains already will give it a place. A replica that
has just come is left alone for as long as its start took (`AllocatorPolicy.least_hold` at least): so models that are
asked in turn do not do nothing but start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

from events.units import Instant
from preemption.core.giving import Giving
from preemption.core.inventory import Holding, Ledger, Need
from preemption.core.placement import place
from preemption.core.rank import Ask, rank_of
from preemption.core.seat import Seat
from preemption.core.terms import Terms


class Keepers:
    """Who has replicas that are only kept, and when they must be sought: only when something changed for those who have
    them, for those who wait, or in the ledger. `seats`: all of the pool's."""

    def __init__(self, ledger: Ledger, seats: Mapping[str, Seat]) -> None:
        self._ledger = ledger
        self._seats = seats
        self._keepers: set[str] = set()
        self._leaving: set[str] = set()
        """Models of which a replica drains."""
        self._sought_at = -1
        """The ledger's version at the last search."""

    def forget(self, model: str) -> None:
        """It has no seat any more."""
        self._keepers.discard(model)
        self._leaving.discard(model)

    def seek(self, touched: AbstractSet[str], hungry: AbstractSet[str], now: Instant) -> set[str]:
        """Let kept replicas drain for the hungry whose requests wait. The models whose state changed."""
        for model in touched:
            self._note(self._seats[model])
        version, self._sought_at = self._sought_at, self._ledger.version
        if not hungry or not (self._keepers or self._leaving):
            return set()
        concerned = self._keepers | self._leaving | hungry
        if version == self._ledger.version and concerned.isdisjoint(touched):
            return set()
        waiting = [self._seats[model] for model in hungry if self._seats[model].seeks]
        if not waiting:
            return set()
        waiting.sort(key=lambda seat: rank_of(seat, now))
        keepers = (self._seats[model] for model in self._keepers)
        ranked = sorted(((rank_of(seat, now), seat) for seat in keepers), key=itemgetter(0), reverse=True)
        tiers = [[seat for _, seat in tier] for _, tier in groupby(ranked, key=lambda one: one[0][:ALIKE])]
        leaving = [self._seats[model] for model in sorted(self._leaving)]
        draining = [name for seat in leaving for name in sorted(seat.held) if _drains(seat, name)]
        changed = KeptRound(self._ledger, waiting, tiers, draining).take()
        for model in changed:
            self._note(self._seats[model])
        return changed

    def _note(self, seat: Seat) -> None:
        spare = seat.stand is not None and bool(seat.stand.spare)
        drains = any(grant.drain for grant in seat.named.values())
        for names, belongs in ((self._keepers, spare), (self._leaving, drains)):
            if belongs:
                names.add(seat.model)
            else:
                names.discard(seat.model)


def _drains(seat: Seat, name: str) -> bool:
    return name in seat.named and seat.named[name].drain


ALIKE: Final = 5
"""Of a rank so many say who gives first: priority, what it keeps, what it is owed, gain, and how many it has. Not since
when it has been short, nor its name."""

WAITING_MOST: Final = 64
"""Models for which something is sought at a time, the first in rank; the others come once these have a place."""


@dataclass(slots=True)
class KeptRound:
    """`waiting`: models for which requests wait, the first in rank first. `tiers`: those with replicas that are only
    kept, the first to give first, each with its equals. `draining`: names of replicas that will be gone."""

    ledger: Ledger
    waiting: Sequence[Seat]
    tiers: Sequence[Sequence[Seat]]
    draining: Iterable[str]
    _gone: dict[str, Holding] = field(default_factory=dict)
    _came: list[str] = field(default_factory=list)
    _failed: dict[Ask, int] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)

    def take(self) -> set[str]:
        """Let kept replicas drain where that helps. The models whose state changed."""
        version = self.ledger.version
        try:
            for name in self.draining:
                self._release(name)
            for seat in self.waiting[:WAITING_MOST]:
                self._seek(seat)
        finally:
            for name in self._came:
                self.ledger.release(name)
            for name, holding in self._gone.items():
                self.ledger.hold(name, holding)
            self.ledger.version = version
        return self._changed

    def _seek(self, seat: Seat) -> None:
        assert seat.declared is not None
        assert seat.need is not None
        need, terms = seat.need, seat.declared.terms
        coming: list[str] = []
        comes = 0
        for index in range(seat.waiting):
            if place(self.ledger, need, terms) is None and not self._make_room(seat, need, terms):
                break
            found = place(self.ledger, need, terms)
            assert found is not None
            mine = f"coming/{seat.model}/{index}"
            coming += [name for name, held in self._gone.items() if held.placement.node == found.node]
            self.ledger.hold(mine, Holding(found, need))
            self._came.append(mine)
            comes += 1
        names = tuple(dict.fromkeys(coming))
        if (names, comes) != (seat.coming, seat.comes):
            seat.coming, seat.comes = names, comes
            self._changed.add(seat.model)

    def _make_room(self, seat: Seat, need: Need, terms: Terms) -> bool:
        """Whether it has a place when some kept replicas are gone: these drain from now on."""
        assert seat.declared is not None
        priority = seat.declared.priority
        if priority <= self._failed.get((need, terms), priority - 1):
            return False
        givers = (
            [one for one in tier if one is not seat and one.declared is not None and one.declared.priority <= priority]
            for tier in self.tiers
        )
        given = Giving(self.ledger, need, terms).find(givers)
        if not given:
            self._failed[need, terms] = priority
            return False
        for offer in given:
            self._release(offer.name)
            offer.owner.give_away(offer.name)
            self._changed.add(offer.owner.model)
        return True

    def _release(self, name: str) -> None:
        holding = self.ledger.holdings.get(name)
        if holding is not None:
            self._gone[name] = holding
            self.ledger.release(name)
