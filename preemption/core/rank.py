"""Who is placed first, and the round that places everyone.

The order is total: priority, then who needs a replica before who would only keep one, then a model whose old replica
was drained for its successor, then marginal gain, then who has fewest replicas, then who has been short longest, then
the name. So the same pool always gives the same grants, and two hungry models that are alike take turns instead of one
taking all.

A model of higher priority that is short *lays a claim* to the kinds of resources that it lacks, on the nodes that it
may have: no model of lower priority gets a new replica there that takes of these kinds until the claim is gone. A model
that could fit no node, whose starts back off, or that would only keep what it lacks, claims nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from events.types.grants import Placement
from events.units import Instant, Seconds
from preemption.core.groups import has_room, hold_workers, lack_of_workers
from preemption.core.inventory import Holding, Ledger, Need, Node
from preemption.core.limits import Tally, tally_of
from preemption.core.nearness import Nearness, Soon
from preemption.core.placement import Kind, Lack, is_free, kinds_of, lack, place, place_among
from preemption.core.seat import Seat
from preemption.core.terms import ANYWHERE, Terms, allows

HAND_OVER = Seconds(1.0)
"""A dormant replica this close to its next try keeps its place: the adapter may start it before it has read that the
place is another's. Many times what a grant takes to reach it."""

Rank = tuple[int, bool, bool, float, int, float, str]

Ask = tuple[Need, Terms]
"""What a replica takes, and which nodes it may have."""


class SetAside(Protocol):
    """Places in the ledger that are set aside, each for one model."""

    def has(self, shortage: str) -> bool:
        """Whether anything is set aside for this model."""

    def find(self, shortage: str, need: Need, terms: Terms = ANYWHERE) -> Placement | None:
        """Where a replica of it fits there."""

    def take(self, shortage: str, holdings: Mapping[str, Holding]) -> None:
        """Its replicas hold this from now on."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A model of this priority lacks something, on nodes that these terms allow."""

    priority: int
    model: str
    terms: Terms


@dataclass(slots=True)
class Round:
    """Places what is wanted, one replica at a time, the first in rank first.

    `claimants`: the first model in rank of each need that has no place. It outlives the round: these take part in the
    next one, so that they lay their claims again, though they can find no place before something is freed.
    `dormant`: models with replicas whose places stand empty while their starts back off; these go to who needs them.
    """

    ledger: Ledger
    claimants: dict[Ask, str]
    dormant: Sequence[Seat]
    nearness: Nearness
    now: Instant
    set_aside: SetAside | None = None
    """What training gave up for models; None: training has never been asked."""
    _claims: dict[tuple[Kind, str, Terms], Claim] = field(default_factory=dict)
    """By kind, and of cards by MIG profile: an instance is no card, and none of another profile."""
    _changed: set[str] = field(default_factory=set)
    _lacks: dict[Ask, Lack] = field(default_factory=dict)
    _claimed: set[Ask] = field(default_factory=set)
    _beside: dict[frozenset[Terms], list[Node]] = field(default_factory=dict)
    _soon: dict[str, Soon | None] = field(default_factory=dict)
    _with_workers: list[str] = field(default_factory=list)
    """Names in the ledger by which room for workers is held until the round ends."""
    _limits: Tally | None = field(init=False)

    def __post_init__(self) -> None:
        self._limits = tally_of(self.ledger)

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
            if self._place_in_own_room(seat) or (not self._refused(seat) and self._place_one(seat)):
                changed.add(model)
                self._count(seat)
                if seat.unplaced:
                    heapq.heappush(waiting, (self.rank(seat), model))
            else:
                changed |= {model} if self._yield_one(seat) or before != seat.plight else set()
        for name in self._with_workers:
            self.ledger.release(name)
        return changed

    def rank(self, seat: Seat) -> Rank:
        """The seat's place in the order; less is earlier."""
        return rank_of(seat, self.now)

    def _place_in_own_room(self, seat: Seat) -> bool:
        """Whether a pod of its enrolled object runs already that is no replica: nobody else may have that place, and a
        quota has counted it."""
        need = seat.need
        assert need is not None
        for name in () if seat.workers is not None else self.ledger.rooms_of(seat.model):
            room = self.ledger.holdings[name]
            self.ledger.release(name)
            if len(room.placement.gpus) == cards_of(need) and is_free(self.ledger, room.placement, need):
                seat.waits_for = ""
                self._give(seat, room.placement, need)
                return True
            self.ledger.hold(name, room)
        return False

    def _refused(self, seat: Seat) -> bool:
        """Whether a limit beside the nodes says no to one more."""
        others = () if seat.workers is None else (seat.workers,)
        refusal = "" if self._limits is None or seat.need is None else self._limits.refusal(seat.need, *others)
        if refusal:
            seat.waits_for, seat.lack = "", Lack((), (), ever=False, message=refusal, quota=True)
        return bool(refusal)

    def _count(self, seat: Seat) -> None:
        """One more of it has a place."""
        if self._limits is None or seat.need is None:
            return
        self._limits.take(seat.need)
        if seat.workers is not None:
            need, count = seat.workers
            for _ in range(count):
                self._limits.take(need)

    def _place_one(self, seat: Seat) -> bool:
        """Place one replica, or note why there is no place."""
        assert seat.declared is not None
        need = seat.need
        assert need is not None
        seat.waits_for = ""
        if self._place_by_set_aside(seat, need):
            return True
        claims = self._claims_before(need, seat.declared.priority)
        if claims:
            return self._place_beside(claims, seat, need)
        ask = need, seat.declared.terms
        if ask not in self._lacks and self._wake(seat, need):
            return True
        placement = None if ask in self._lacks else self._find(seat, need) or self._place_by_dormant(seat, need)
        if placement is None:
            self._note_lack(seat, ask)
            return False
        self._give(seat, placement, need)
        return True

    def _find(self, seat: Seat, need: Need, nodes: Iterable[Node] | None = None) -> Placement | None:
        """The best place for one replica of this model: anywhere, or on one of these nodes."""
        assert seat.declared is not None
        terms, soon = seat.declared.terms, self._soon_of(seat)
        if nodes is None:
            found = place(self.ledger, need, terms, soon)
        else:
            found = place_among(nodes, need, terms, self.ledger.gradient, soon)
        if found is None or seat.workers is None:
            return found
        return found if has_room(self.ledger, Holding(found, need), seat.workers, terms) else None

    def _soon_of(self, seat: Seat) -> Soon | None:
        if seat.model not in self._soon:
            assert seat.declared is not None
            waits = seat.wish is not None and seat.wish.waits
            self._soon[seat.model] = self.nearness.soon(seat.declared, self.now, hurried=waits)
        return self._soon[seat.model]

    def _give(self, seat: Seat, placement: Placement, need: Need) -> None:
        name = seat.add(placement)
        self.ledger.hold(name, Holding(placement, need))
        seat.held |= {name}
        seat.lack = None
        if seat.workers is not None and seat.declared is not None:
            self._with_workers += hold_workers(self.ledger, name, seat.workers, seat.declared.terms)

    def _place_beside(self, claims: Sequence[Claim], seat: Seat, need: Need) -> bool:
        """Place it on a node that none of those who come first may have; else it waits for them."""
        first = claims[0]
        theirs = frozenset(claim.terms for claim in claims)
        nodes = self._beside.get(theirs)
        if nodes is None:
            every = self.ledger.nodes.values()
            nodes = self._beside[theirs] = [node for node in every if not any(allows(node, one) for one in theirs)]
        placement = self._find(seat, need, nodes) if nodes else None
        if placement is None:
            seat.lack = None
            seat.waits_for = f"waits for model {first.model} of priority {first.priority}, which lacks the same"
            return False
        self._give(seat, placement, need)
        return True

    def _wake(self, seat: Seat, need: Need) -> bool:
        """Whether a replica of it sleeps whose place is free: its process can nowhere else."""
        assert seat.stand is not None
        for name in seat.stand.sleepers:
            grant = seat.named.get(name)
            if grant is not None and grant.drain and is_free(self.ledger, grant.placement, need):
                seat.wake(name)
                self.ledger.hold(name, Holding(grant.placement, need))
                seat.held |= {name}
                seat.lack = None
                return True
        return False

    def _place_by_set_aside(self, seat: Seat, need: Need) -> bool:
        """Whether it has a place where training gave cards up for it; nobody else may have that, so nobody's claim to
        their kind stands before it."""
        if self.set_aside is None or not self.set_aside.has(seat.model):
            return False
        assert seat.declared is not None
        placement = self.set_aside.find(seat.model, need, seat.declared.terms)
        if placement is None:
            return False
        name = seat.add(placement)
        self.set_aside.take(seat.model, {name: Holding(placement, need)})
        seat.held |= {name}
        seat.lack = None
        return True

    def _place_by_dormant(self, seat: Seat, need: Need) -> Placement | None:
        """A place where dormant replicas give theirs up: no more of them than needed, the last in rank first."""
        given: list[tuple[Seat, str, Holding]] = []
        found: Placement | None = None
        for owner, name in self._dormant_replicas():
            given.append((owner, name, self.ledger.holdings[name]))
            self.ledger.release(name)
            found = self._find(seat, need)
            if found is not None:
                break
        for owner, name, holding in given:
            self.ledger.hold(name, holding)  # back again, unless this is one of those that are needed
            if found is not None and self._find(seat, need) is None:
                self.ledger.release(name)
                owner.give_up(name)
                self._changed.add(owner.model)
        return None if found is None else self._find(seat, need)

    def _dormant_replicas(self) -> list[tuple[Seat, str]]:
        owners = sorted(filter(self._sleeps_on, self.dormant), key=self.rank, reverse=True)
        named = ((owner, name) for owner in owners if owner.stand for name in reversed(owner.stand.dormant))
        return [(owner, name) for owner, name in named if name in owner.named]

    def _sleeps_on(self, seat: Seat) -> bool:
        """Whether the next try of a model whose starts back off is far enough."""
        retry_at = None if seat.observed is None else seat.observed.retry_at
        return retry_at is not None and retry_at > self.now + HAND_OVER

    def _note_lack(self, seat: Seat, ask: Ask) -> None:
        assert seat.declared is not None
        need, terms = ask
        found = self._lacks.get(ask)
        if found is None and seat.workers is not None and place(self.ledger, need, terms) is not None:
            found = lack_of_workers(seat.workers)
        elif found is None:
            found = self._lacks[ask] = lack(self.ledger, need, terms)
        seat.lack = found
        if seat.only_keeps:
            return
        if ask not in self._claimed:
            self._claimed.add(ask)
            self.claimants[ask] = seat.model
        priority = seat.declared.priority
        for kind in found.claims:
            what = kind, _profile(kind, need), terms
            if what not in self._claims or self._claims[what].priority < priority:
                self._claims[what] = Claim(priority, seat.model, terms)

    def _claims_before(self, need: Need, priority: int) -> list[Claim]:
        """Higher priorities' claims to something that `need` takes of; the highest first."""
        if not self._claims:
            return []
        kinds = kinds_of(need)
        found = {
            claim.model: claim for (kind, profile, _), claim in self._claims.items()
            if kind in kinds and profile == _profile(kind, need) and claim.priority > priority
        }  # fmt: skip
        return sorted(found.values(), key=lambda claim: (-claim.priority, claim.model))

    def _yield_one(self, seat: Seat) -> bool:
        """Drain one old replica for its successor, if the successor would fit once the old ones were gone."""
        assert seat.stand is not None
        assert seat.need is not None
        yields = seat.stand.yields
        if not yields or seat.lack is None or not (seat.lack.ever or seat.lack.quota):
            return False
        freed = {name: self.ledger.holdings[name] for name in yields if name in self.ledger.holdings}
        for name in freed:
            self.ledger.release(name)
        fits = self._find(seat, seat.need) is not None
        for name, holding in freed.items():
            self.ledger.hold(name, holding)
        return fits and self._drain_one(seat, yields, freed)

    def _drain_one(self, seat: Seat, yields: Sequence[str], held: Mapping[str, Holding]) -> bool:
        """Drain the first whose node has the successor's weights, or of whose node nothing is known; for a bounded time
        none, while each node lacks them."""
        assert seat.declared is not None
        heard: list[Instant] = []
        for name in yields:
            node = held[name].placement.node if name in held else ""
            until = self.nearness.lacks_weights(node, seat.model, seat.declared.revision, self.now)
            if until is None:
                seat.drain_first(name)
                return True
            heard.append(until)
        since = self.now if seat.memory.weights_since is None else seat.memory.weights_since
        until = Instant(since + self.nearness.locality.weights)
        if self.now >= until:
            seat.drain_first(yields[0])
        else:
            seat.await_weights(since, min(until, *heard))
        return True


def _profile(kind: Kind, need: Need) -> str:
    """Of cards: the MIG profile that is asked for."""
    return need.mig_profile if kind is Kind.GPU else ""


def cards_of(need: Need) -> int:
    """How many cards a replica is on, or parts of cards."""
    return need.gpus or int(need.any_gpu)


def rank_of(seat: Seat, now: Instant) -> Rank:
    """The seat's place in the order; less is earlier."""
    assert seat.declared is not None
    gain = 0.0 if seat.wish is None else seat.wish.marginal_gain
    since = now if seat.memory.short_since is None else seat.memory.short_since
    return -seat.declared.priority, seat.only_keeps, not seat.memory.owed, -gain, seat.live, since, seat.model
