"""Who is placed first, and the round that places everyone.

The order is total: priority, then a model whose old replica was drained for its successor, then marginal gain, then who
has fewest replicas, then who has been short longest, then the name. So the same pool always gives the same grants, and
two hungry models that are alike take turns instead of one taking all.

A model of higher priority that is short *lays a claim* to the kinds of resources that it lacks: no model of lower
priority gets a new replica that takes of these kinds until the claim is gone. A model that could fit no node, or whose
starts back off, claims nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from events.types.grants import Placement
from events.units import Instant, Seconds
from preemption.core.inventory import Holding, Ledger, Need
from preemption.core.placement import Kind, Lack, kinds_of, lack, place
from preemption.core.seat import Seat

HAND_OVER = Seconds(1.0)
"""A dormant replica this close to its next try keeps its place: the adapter may start it before it has read that the
place is another's. Many times what a grant takes to reach it."""

Rank = tuple[int, bool, float, int, float, str]


class SetAside(Protocol):
    """Places in the ledger that are set aside, each for one model."""

    def has(self, shortage: str) -> bool:
        """Whether anything is set aside for this model."""

    def find(self, shortage: str, need: Need) -> Placement | None:
        """Where a replica of it fits there."""

    def take(self, shortage: str, holdings: Mapping[str, Holding]) -> None:
        """Its replicas hold this from now on."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A model of this priority lacks something."""

    priority: int
    model: str


@dataclass(slots=True)
class Round:
    """Places what is wanted, one replica at a time, the first in rank first.

    `claimants`: the first model in rank of each need that has no place. It outlives the round: these take part in the
    next one, so that they lay their claims again, though they can find no place before something is freed.
    `dormant`: models with replicas whose places stand empty while their starts back off; these go to who needs them.
    """

    ledger: Ledger
    claimants: dict[Need, str]
    dormant: Sequence[Seat]
    now: Instant
    set_aside: SetAside | None = None
    """What training gave up for models; None: training has never been asked."""
    _claims: dict[Kind, Claim] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _lacks: dict[Need, Lack] = field(default_factory=dict)

    def place_all(self, seats: Iterable[Seat]) -> set[str]:
        """Place for these seats what can be placed; the names of models whose state changed."""
        by_name = {seat.model: seat for seat in seats}
        waiting = [(self.rank(seat), seat.model) for seat in by_name.values() if seat.unplaced]
        heapq.heapify(waiting)
        changed = self._changed
        while waiting:
            _, model = heapq.heappop(waiting)
            seat = by_name[model]
            before = seat.plight
            if self._place_one(seat):
                changed.add(model)
                if seat.unplaced:
                    heapq.heappush(waiting, (self.rank(seat), model))
            else:
                changed |= {model} if self._yield_one(seat) or before != seat.plight else set()
        return changed

    def rank(self, seat: Seat) -> Rank:
        """The seat's place in the order; less is earlier."""
        assert seat.declared is not None
        gain = 0.0 if seat.wish is None else seat.wish.marginal_gain
        since = self.now if seat.memory.short_since is None else seat.memory.short_since
        return -seat.declared.priority, not seat.memory.owed, -gain, seat.live, since, seat.model

    def _place_one(self, seat: Seat) -> bool:
        """Place one replica, or note why there is no place."""
        assert seat.declared is not None
        need = seat.need
        assert need is not None
        seat.waits_for = ""
        if self._place_by_set_aside(seat, need):
            return True
        claim = self._claim_before(need, seat.declared.priority)
        if claim is not None:
            seat.lack = None
            seat.waits_for = f"waits for model {claim.model} of priority {claim.priority}, which lacks the same"
            return False
        placement = None if need in self._lacks else place(self.ledger, need) or self._place_by_dormant(need)
        if placement is None:
            self._note_lack(seat, need, seat.declared.priority)
            return False
        name = seat.add(placement)
        self.ledger.hold(name, Holding(placement, need))
        seat.held |= {name}
        seat.lack = None
        return True

    def _place_by_set_aside(self, seat: Seat, need: Need) -> bool:
        """Whether it has a place where training gave cards up for it; nobody else may have that, so nobody's claim to
        their kind stands before it."""
        if self.set_aside is None or not self.set_aside.has(seat.model):
            return False
        placement = self.set_aside.find(seat.model, need)
        if placement is None:
            return False
        name = seat.add(placement)
        self.set_aside.take(seat.model, {name: Holding(placement, need)})
        seat.held |= {name}
        seat.lack = None
        return True

    def _place_by_dormant(self, need: Need) -> Placement | None:
        """A place where dormant replicas give theirs up: no more of them than needed, the last in rank first."""
        given: list[tuple[Seat, str, Holding]] = []
        found: Placement | None = None
        for owner, name in self._dormant_replicas():
            given.append((owner, name, self.ledger.holdings[name]))
            self.ledger.release(name)
            found = place(self.ledger, need)
            if found is not None:
                break
        for owner, name, holding in given:
            self.ledger.hold(name, holding)  # back again, unless this is one of those that are needed
            if found is not None and place(self.ledger, need) is None:
                self.ledger.release(name)
                owner.give_up(name)
                self._changed.add(owner.model)
        return None if found is None else place(self.ledger, need)

    def _dormant_replicas(self) -> list[tuple[Seat, str]]:
        owners = sorted(filter(self._sleeps_on, self.dormant), key=self.rank, reverse=True)
        named = ((owner, name) for owner in owners if owner.stand for name in reversed(owner.stand.dormant))
        return [(owner, name) for owner, name in named if name in owner.named]

    def _sleeps_on(self, seat: Seat) -> bool:
        """Whether the next try of a model whose starts back off is far enough."""
        retry_at = None if seat.observed is None else seat.observed.retry_at
        return retry_at is not None and retry_at > self.now + HAND_OVER

    def _note_lack(self, seat: Seat, need: Need, priority: int) -> None:
        found = self._lacks.get(need)
        if found is None:
            found = self._lacks[need] = lack(self.ledger, need)
            self.claimants[need] = seat.model
        seat.lack = found
        for kind in found.claims:
            if kind not in self._claims or self._claims[kind].priority < priority:
                self._claims[kind] = Claim(priority, seat.model)

    def _claim_before(self, need: Need, priority: int) -> Claim | None:
        """A higher priority's claim to something that `need` takes of."""
        claims = (self._claims.get(kind) for kind in kinds_of(need))
        return next((claim for claim in claims if claim is not None and claim.priority > priority), None)

    def _yield_one(self, seat: Seat) -> bool:
        """Drain one old replica for its successor, if the successor would fit once the old ones were gone."""
        assert seat.stand is not None
        assert seat.need is not None
        yields = seat.stand.yields
        if not yields or seat.lack is None or not seat.lack.ever:
            return False
        freed = {name: self.ledger.holdings[name] for name in yields if name in self.ledger.holdings}
        for name in freed:
            self.ledger.release(name)
        fits = place(self.ledger, seat.need) is not None
        for name, holding in freed.items():
            self.ledger.hold(name, holding)
        if fits:
            seat.drain_first(yields[0])
        return fits
