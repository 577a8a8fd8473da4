"""The allocator: grants wishes out of what is free in the pool, by name and place. Pure; one decision at a time.

`Pool` is fed what is known and decides again only what that may change; `decide` does the same from one whole snapshot,
and always gives what a pool that was fed step by step gives (tests/properties/test_allocator.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from events.types.caches import CacheObserved
from events.types.grants import GrantDecided, Placement, ReplicaGrant
from events.types.limits import Limit
from events.types.replicas import CardsObserved, ReplicasObserved, ReplicaStatus
from events.units import Instant
from preemption.core.callers import Callers
from preemption.core.freeing import Freeing
from preemption.core.inventory import Holding, Ledger, Node, cordon_name, need_of
from preemption.core.kept import Keepers
from preemption.core.lending.policy import LendingCounts
from preemption.core.lending.shortages import Lent, Scene, Short, Usual, short_of, waits_first
from preemption.core.nearness import Nearness
from preemption.core.rank import Ask, Round
from preemption.core.seat import Seat
from preemption.core.standing import stand
from preemption.core.view import AllocatorPolicy, Declared, Memory, ModelView, Wish

if TYPE_CHECKING:
    from preemption.core.lending.lender import Lender
    from preemption.core.reclaim.pool_policy import PoolPolicy

NOTHING_LENT: Final = Lent()

_ROUNDS_MOST: Final = 8
"""Times that models are placed again in one decision because a claim ended. What is freed later is placed in the next
one, which follows at once."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision over the whole pool is made from."""

    nodes: tuple[CardsObserved, ...]
    models: tuple[ModelView, ...]
    caches: tuple[tuple[CacheObserved, Instant], ...] = ()
    """What nodes' agents told of weights, and when."""


@dataclass(frozen=True, slots=True)
class GrantPlan:
    """The grants that changed, by model's name; when to decide again though nothing happens; what to remember of the
    models that were decided; which models are forgotten; what changed for training."""

    grants: tuple[GrantDecided, ...]
    again_at: Instant | None
    memories: Mapping[str, Memory]
    gone: tuple[str, ...]
    lent: Lent = NOTHING_LENT
    """What changed for training. Records of attempts must be written before any grant of this plan."""


def decide(snapshot: Snapshot, policy: AllocatorPolicy, now: Instant) -> GrantPlan:
    """Decide the whole pool at once."""
    pool = Pool(policy)
    for node in snapshot.nodes:
        pool.set_node(node)
    for seen, at in snapshot.caches:
        pool.set_cache(seen, at)
    for view in snapshot.models:
        pool.set_view(view)
    return pool.decide(now)


class Pool:
    """The pool's state between decisions: seats of models, the ledger, and which seats must be decided again.

    A decision costs what has changed. What is hungry is ranked again as a whole only when something was freed, or when
    a hungry model changed: a model that found no place finds none as long as the pool only fills up.
    """

    def __init__(self, policy: AllocatorPolicy) -> None:
        self._policy = policy
        self._ledger = Ledger()
        self._seats: dict[str, Seat] = {}
        self._dirty: set[str] = set()
        self._hungry: set[str] = set()
        self._nearness = Nearness(policy.locality)
        self._claimants: dict[Ask, str] = {}
        self._dormant: set[str] = set()
        self._keepers = Keepers(self._ledger, self._seats)
        self._timers: list[tuple[Instant, str]] = []
        self._all_again = False
        self._lender: Lender | None = None
        self._settings: PoolPolicy | None = None
        """As declared; None: nobody did."""
        self._cordoned: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        """Models whose shortage training has to do with."""
        self._callers = Callers(self._seats)
        self._epoch = 0
        self.counts = LendingCounts()
        """What happened to training since the start."""

    @property
    def lender(self) -> Lender:
        """Who lends cards to training. It is made when it is first asked for: it brings numpy, which takes a fifth of a
        second and 20 MB that a pool without training keeps."""
        if self._lender is None:
            from preemption.core.lending.lender import Lender  # noqa: PLC0415 - as said above

            self._lender = Lender(self._policy.lending, self._ledger, self.counts)
            self._lender.lead(self._epoch)
            if self._settings is not None:
                self._lender.set_policy(self._settings)
        return self._lender

    @property
    def has_lender(self) -> bool:
        """Whether there has been any training."""
        return self._lender is not None

    def lead(self, epoch: int) -> None:
        """What is decided from now on is decided under this leadership."""
        self._epoch = epoch
        if self._lender is not None:
            self._lender.lead(epoch)

    def set_node(self, seen: CardsObserved) -> None:
        """What a node has."""
        self._ledger.set_node(seen)
        for node, card in self._cordoned:
            if node == seen.node:
                self._ledger.cordon(node, card)
        self._all_again = True
        self._dirty.update(model for model, seat in self._seats.items() if seat.named)

    def set_cache(self, seen: CacheObserved, at: Instant) -> None:
        """What a node's agent told at `at`. What has a place stays there; rollouts may have waited for it."""
        for model in self._nearness.hear(seen, at):
            seat = self._seats.get(model)
            if seat is not None and seat.awaits_weights:
                self._dirty.add(model)

    def set_limits(self, limits: tuple[Limit, ...]) -> None:
        """Bounds beside what nodes have; what is there stays."""
        if limits != self._ledger.limits:
            self._ledger.limits = limits
            self._all_again = True

    def set_policy(self, policy: PoolPolicy) -> None:
        """The pool's settings, from the next decision on."""
        self._settings = policy
        if self._lender is not None:
            self._lender.set_policy(policy)

    def set_cordoned(self, node: str, card: str, *, cordoned: bool) -> None:
        """Whether nothing new may be placed on a card. What is there stays."""
        if cordoned:
            self._cordoned.add((node, card))
            self._ledger.cordon(node, card)
        elif (node, card) in self._cordoned:
            self._cordoned.discard((node, card))
            self._ledger.release(cordon_name(node, card))
            self._all_again = True

    def set_view(self, view: ModelView) -> None:
        """All that is known of a model."""
        seat = self._seat(view.declared.model)
        seat.declared, seat.wish, seat.grant, seat.observed = view.declared, view.wish, view.grant, view.observed
        seat.running, seat.memory = dict(view.running), view.memory
        self._expect(view.declared)

    def set_declared(self, declared: Declared) -> None:
        """A model is declared, or deleted."""
        self._seat(declared.model).declared = declared
        self._expect(declared)

    def set_wish(self, model: str, wish: Wish) -> None:
        """The autoscaler's newest wish for a model."""
        self._seat(model).wish = wish

    def set_grant(self, grant: GrantDecided) -> None:
        """A grant that stands in the log from before."""
        self._seat(grant.model).grant = grant

    def set_observed(self, observed: ReplicasObserved) -> None:
        """A model's replicas as the cluster adapter sees them."""
        seat = self._seat(observed.model)
        seat.observed = observed
        seen = {status.replica for status in observed.replicas}
        seat.running = {name: count for name, count in seat.running.items() if name in seen}

    def set_running(self, model: str, replica: str, running: float) -> None:
        """How many requests a replica runs, as its engine says. Used at the next choice of who drains; decides nothing
        by itself."""
        seat = self._seats.get(model)
        if seat is not None and seat.observed is not None and any(s.replica == replica for s in seat.observed.replicas):
            seat.running[replica] = running

    def granted(self, model: str) -> GrantDecided | None:
        """The newest grant of a model: ours, or the one that stood in the log from before."""
        seat = self._seats.get(model)
        return None if seat is None else seat.grant

    @property
    def models(self) -> int:
        """How many models have a seat."""
        return len(self._seats)

    @property
    def ledger(self) -> Ledger:
        """Who holds what; for reading."""
        return self._ledger

    def decide(self, now: Instant) -> GrantPlan:
        """Decide again what may have changed since the last time."""
        while self._timers and self._timers[0][0] <= now:
            instant, model = heapq.heappop(self._timers)
            if self._is_set(instant, model):
                self._seats[model].timer = None
                self._dirty.add(model)
        touched = self._stand_dirty(now)
        self._ledger.keep_rooms()
        lent = NOTHING_LENT
        if self._lender is None or self._lender.idle:
            self._shed(touched)
            touched |= self._place(touched, now)
            touched |= self._keepers.seek(touched, self._hungry, now)
        else:
            lent = self._lend(self._lender, touched, now)
        calls = None if self._settings is None or not self._policy.calls else self._settings.calls
        called, call_at = self._callers.call(self._hungry, calls, now)
        touched |= called
        grants = [grant for model in sorted(touched) if (grant := self._conclude(model, now)) is not None]
        memories = {model: self._seats[model].memory for model in touched if model in self._seats}
        gone = tuple(sorted(touched - memories.keys()))
        again_at = _earlier(_earlier(self._next_timer(), lent.again_at), call_at)
        return GrantPlan(tuple(grants), again_at, memories, gone, lent)

    def _lend(self, lender: Lender, touched: set[str], now: Instant) -> Lent:
        """Decide with training in the pool: what it frees goes to models first, then what is left is lent."""
        self._all_again |= lender.begin(now)
        self._shed(touched)
        for _ in range(_ROUNDS_MOST):
            touched |= self._place(touched, now)
            if not lender.settle(now, self._wants(now)):
                break
            self._all_again = True
        touched |= self._keepers.seek(touched, self._hungry, now)
        wants = self._wants(now)
        lender.plan(now, wants, self._scene())
        told = lender.told(now, wants)
        for model in self._told | told.keys():
            if (seat := self._seats.get(model)) is not None:
                seat.told = told.get(model)
                touched.add(model)
        self._told = set(told)
        return lender.finish(now)

    def _wants(self, now: Instant) -> dict[str, Short]:
        shorts = (short_of(self._seats[model], now) for model in self._hungry)
        return {short.name: short for short in shorts if short is not None}

    def _scene(self) -> Scene:
        first = (waits_first(self._seats[model]) for model in sorted(self._hungry))
        return Scene(tuple(one for one in first if one is not None), self._usual)

    def _usual(self) -> Usual:
        seats = self._seats.values()
        resources = dict.fromkeys(seat.declared.resources for seat in seats if seat.declared is not None)
        draining = [name for seat in seats for name, grant in seat.named.items() if grant.drain and name in seat.held]
        return Usual(tuple(resources), tuple(sorted(draining)))

    def _expect(self, declared: Declared) -> None:
        """What a model declares is of what usually comes, as long as it is declared."""
        self._ledger.gradient.declare(declared.model, None if declared.deleted else need_of(declared.resources))

    def _seat(self, model: str) -> Seat:
        self._dirty.add(model)
        return self._seats.setdefault(model, Seat(model))

    def _stand_dirty(self, now: Instant) -> set[str]:
        """Decide each dirty model by itself, and bring its holdings into the ledger."""
        dirty, self._dirty = self._dirty, set()
        left = sorted(dirty, reverse=True)
        freeing = Freeing(self._ledger, lambda: self._hold_granted(left))
        while left:
            model = left[-1]
            seat = self._seats[model]
            if model in self._hungry:
                self._all_again = True
            if seat.declared is not None:
                view = seat.view(seat.declared)
                seat.settle(seat.declared, stand(view, self._policy, now, self._misplaced(seat), freeing))
            left.pop()  # what is decided of it counts from now on
            self._hold(seat, seat.named)
            if seat.stand is not None and seat.stand.dormant:
                self._dormant.add(model)
                self._all_again = True
            else:
                self._dormant.discard(model)
        return dirty

    def _misplaced(self, seat: Seat) -> frozenset[str]:
        """Named replicas whose place is not there any more; none while no node is known at all."""
        if seat.grant is None or not self._ledger.nodes:
            return frozenset()
        return frozenset(r.replica for r in seat.grant.replicas if not self._ledger.exists(r.placement))

    def _hold_granted(self, models: Iterable[str]) -> None:
        """Bring what models hold by their last grants into the ledger: they are about to be decided."""
        for model in models:
            seat = self._seats[model]
            granted = () if seat.grant is None else seat.grant.replicas
            self._hold(seat, {one.replica: one for one in granted})

    def _hold(self, seat: Seat, named: Mapping[str, ReplicaGrant]) -> None:
        """What a model holds: all replicas that are named, and all that are seen though nobody names them. One that
        sleeps holds nothing here: its memory is of what its node sets aside for sleepers."""
        seen = () if seat.observed is None else seat.observed.replicas
        asleep = {status.replica for status in seen if status.sleep_level}
        wanted = {status.replica: _seen_holding(status) for status in seen if status.replica not in asleep}
        wanted |= {
            name: Holding(grant.placement, need_of(grant.resources))
            for name, grant in named.items()
            if not (grant.drain and name in asleep)
        }
        for name in seat.held - wanted.keys():
            self._all_again |= self._ledger.release(name)
        for name, holding in wanted.items():
            if self._ledger.holdings.get(name) not in (None, holding):
                self._all_again = True
            self._ledger.hold(name, holding)
        seat.held = frozenset(wanted)

    def _shed(self, touched: set[str]) -> None:
        """On nodes that have less than is held on them, take back what has not started, the last in rank first."""
        for node in self._ledger.overcommitted():
            for seat, replica in self._unstarted_on(node):
                if not node.overcommitted:
                    break
                seat.drop(replica)
                seat.held -= {replica}
                self._all_again = True
                self._ledger.release(replica)
                touched.add(seat.model)

    def _unstarted_on(self, node: Node) -> list[tuple[Seat, str]]:
        found = []
        for seat in self._seats.values():
            if seat.declared is None:
                continue
            gain = 0.0 if seat.wish is None else seat.wish.marginal_gain
            rank = (seat.declared.priority, gain)
            found += [(rank, name, seat) for name in seat.unstarted() if name in node.holdings]
        found.sort(key=lambda one: one[1], reverse=True)
        found.sort(key=lambda one: one[0])
        return [(seat, name) for _, name, seat in found]

    def _place(self, touched: set[str], now: Instant) -> set[str]:
        """Place what is wanted: of all hungry models if anything was freed, else of those that were touched."""
        hungry = {model for model in touched if self._seats[model].unplaced}
        self._hungry = (self._hungry - touched) | hungry
        if self._all_again:
            candidates, self._all_again = self._hungry, False
            self._claimants.clear()
        else:
            candidates = hungry | set(self._claimants.values()) if hungry else hungry
        seats = [self._seats[model] for model in sorted(candidates)]
        dormant = [self._seats[model] for model in sorted(self._dormant)]
        changed = set[str]()
        if seats:
            aside = None if self._lender is None else self._lender.claims
            changed = Round(self._ledger, self._claimants, dormant, self._nearness, now, aside).place_all(seats)
        self._hungry -= {model for model in changed if not self._seats[model].unplaced}
        return changed

    def _conclude(self, model: str, now: Instant) -> GrantDecided | None:
        seat = self._seats[model]
        grant = None if seat.declared is None else seat.conclude(now)
        if seat.again_at != seat.timer:
            seat.timer = seat.again_at
            if seat.again_at is not None:
                heapq.heappush(self._timers, (seat.again_at, model))
        if seat.over:
            del self._seats[model]
            self._keepers.forget(model)
        return grant

    def _next_timer(self) -> Instant | None:
        """When the next timer is due; timers that were set anew are forgotten on the way."""
        if len(self._timers) > 2 * len(self._seats) + 64:
            self._timers = [timer for timer in self._timers if self._is_set(*timer)]
            heapq.heapify(self._timers)
        while self._timers and not self._is_set(*self._timers[0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_set(self, instant: Instant, model: str) -> bool:
        return model in self._seats and self._seats[model].timer == instant


def _earlier(one: Instant | None, other: Instant | None) -> Instant | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _seen_holding(status: ReplicaStatus) -> Holding:
    return Holding(Placement(node=status.node, gpus=status.gpus), need_of(status.resources))
