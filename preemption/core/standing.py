"""One model by itself: which of its replicas stay, which drain, and how many more it wants.

Nothing here knows what is free; `preemption.core.allocator` places what is wanted. The rules:

* The number to grant is a person's override while it lasts, else the wish (at most maxReplicas), else what was granted.
* What runs is kept and never moved. Above the number the cheapest replicas drain; when it rises again, a draining
  replica is taken back before a new one is asked for.
* A draining replica stays named, and holds its resources, until it is seen to be gone, or asleep: then it stays named
  and holds nothing. When one more is wanted it is woken, if its very place is free; else a new one starts elsewhere.
* What another hand ends drains too, and is never taken back: its successor is asked for at once.
* Replicas of an object that ends its last one first (a StatefulSet) drain in that order, whatever runs on them.
* A new revision takes over one by one: one more than the number may run (surge), an old replica drains for each new one
  that is ready. Old replicas that never got ready go at once. After too many failed starts the old ones stay.
* While starts back off nothing more is asked for, and replicas that are not there give their places to others.
* What is only kept, and was given to a model for which requests wait, is not wished for until something needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile

from events.types.grants import GrantDecided, ReplicaGrant
from events.types.replicas import ReplicaState, ReplicaStatus
from events.units import Instant
from preemption.core.freeing import Freeing
from preemption.core.view import AllocatorPolicy, Memory, ModelView, Reason

_CAN_GO_ON = frozenset({None, ReplicaState.STARTING, ReplicaState.READY, ReplicaState.DRAINING})
"""States from which a drain may be taken back; None: not observed yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A named replica: what was granted, and what is seen of it (`state` None: nothing). `foreign`: of another uid;
    `ended`: another hand ends it; `ordinal`: where it stands among those of an object that ends its last one first."""

    grant: ReplicaGrant
    foreign: bool
    state: ReplicaState | None = None
    running: float | None = None
    created_at: Instant | None = None
    ready_at: Instant | None = None
    ended: bool = False
    ordinal: int | None = None

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.grant.replica

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.state is ReplicaState.READY

    @property
    def sleeps(self) -> bool:
        """Whether it sleeps, and nobody has woken it yet."""
        return self.state is ReplicaState.SLEEPING and self.grant.drain


@dataclass(frozen=True, slots=True)
class Stand:
    """What a model should have. `named`: the replicas that stay named, with `drain` decided.

    `want`: how many more of the active revision to place now; `held_back`: how many more it would want, were its starts
    not backing off. `yields`: ready replicas of an older revision, the first to go first, one of which may be drained
    if the surge has no place. `dormant`: replicas that are not there because starts back off: their places may go to
    others until the next try. `sleepers`: replicas of the active revision that sleep. `taken`: names that are in
    use. `kept`: so many of `wished` are only kept; `spare`: the
    replicas that may go to others for it, the first to go first: so many, and those that run no more than the last of
    them.
    """

    wished: int
    named: tuple[ReplicaGrant, ...]
    want: int
    held_back: int
    yields: tuple[str, ...]
    dormant: tuple[str, ...]
    sleepers: tuple[str, ...]
    taken: frozenset[str]
    reasons: tuple[Reason, ...]
    again_at: Instant | None
    memory: Memory
    kept: int = 0
    spare: tuple[Spare, ...] = ()


@dataclass(frozen=True, slots=True)
class Spare:
    """A replica that may go to another model, and what it runs (infinite: not known). `in_order`: its object ends its
    last one first, so none goes before those that stand before it here."""

    replica: str
    running: float
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which entries drain, which drains are taken back, how many more are wanted."""

    drains: frozenset[str]
    back: frozenset[str]
    want: int
    yields: tuple[str, ...]
    reasons: tuple[Reason, ...]


def stand(
    view: ModelView, policy: AllocatorPolicy, now: Instant, misplaced: frozenset[str], freeing: Freeing | None = None
) -> Stand:
    """What `view` should have. `misplaced`: named replicas whose node or cards are not there any more. `freeing`: what
    the pool looks like without a replica; None: nobody knows, and age decides between equals."""
    entries = _entries(view)
    there = [entry for entry in entries if not _gone(entry, view.memory, policy, now)]
    lost = {entry.name for entry in there if entry.name in misplaced and entry.state is None}
    there = [entry for entry in there if entry.name not in lost]
    wished, reasons = wished_replicas(view, now)
    kept = _kept(view, wished, reasons)
    given = min(view.memory.given, kept)
    wished, kept, reasons = wished - given, kept - given, (*reasons, *([Reason.GIVES_UP] if given else ()))
    shape = _shape(view, there, wished, policy, freeing)
    named = tuple(_with_drain(entry, shape) for entry in there)
    memory = _remember(view, there, named, given, now)
    backs_off = _backs_off(view, memory, now)
    dormant = [e.name for e in there if _dormant(e, memory) and e.name not in shape.drains] if backs_off else []
    moments = [moment + policy.unseen_grace for moment in memory.drained.values()]
    moments += [view.declared.override.until] if Reason.OVERRIDE in reasons and view.declared.override else []
    moments += [backs_off] if backs_off is not None and (shape.want or dormant) else []
    spare, held_until = _spare(view, [e for e in there if e.name not in shape.drains], kept, policy, now)
    moments += held_until
    observed = () if view.observed is None else view.observed.replicas
    return Stand(
        wished=wished,
        named=named,
        want=0 if backs_off is not None else shape.want,
        held_back=shape.want if backs_off is not None else 0,
        yields=() if backs_off is not None else shape.yields,
        dormant=tuple(dormant),
        sleepers=tuple(e.name for e in there if e.sleeps and not e.foreign and _is_active(e, view)),
        taken=frozenset(grant.replica for grant in named) | {status.replica for status in observed},
        reasons=(*reasons, *([Reason.PLACEMENT_GONE] if lost else ()), *shape.reasons,
                 *([Reason.BACKS_OFF] if backs_off is not None and shape.want else ())),
        again_at=Instant(min(moments)) if moments else None,
        memory=memory,
        kept=kept,
        spare=spare,
    )  # fmt: skip


def _is_active(entry: Entry, view: ModelView) -> bool:
    return entry.grant.revision == view.declared.revision


def wished_replicas(view: ModelView, now: Instant) -> tuple[int, tuple[Reason, ...]]:
    """The number to grant, and whose number it is."""
    declared, wish = view.declared, view.wish
    if declared.deleted:
        return 0, (Reason.DELETED,)
    if declared.override is not None and declared.override.until > now:
        return declared.override.replicas, (Reason.OVERRIDE,)
    if wish is None or wish.uid != declared.uid:
        ours = view.grant is not None and view.grant.uid == declared.uid
        return (view.grant.wished if ours and view.grant is not None else 0), (Reason.NO_WISH,)
    if wish.replicas > declared.max_replicas:
        return declared.max_replicas, (Reason.WISH, Reason.CAPPED)
    return wish.replicas, (Reason.WISH,)


def cheapest_first(entries: Iterable[Entry]) -> list[Entry]:
    """Who drains first: what does not serve yet; of what serves, the oldest revision, the least running, the newest.

    A running count that is not known is not zero: such a replica goes after those whose count is known. Where their
    object ends its last one first, that goes, and before it what has no place in its order yet.
    """
    some = sorted(entries, key=_cost)
    return sorted(some, key=_from_the_last) if _in_order(some) else some


def _in_order(entries: Iterable[Entry]) -> bool:
    """Whether what they run in ends in an order of its own."""
    return any(entry.ordinal is not None for entry in entries)


def _from_the_last(entry: Entry) -> tuple[bool, int]:
    return entry.ordinal is not None, -(entry.ordinal or 0)


def first_to_go(entries: Iterable[Entry], count: int, freeing: Freeing | None) -> list[Entry]:
    """As `cheapest_first`; but of the first `count` those that are equal in readiness, revision and what they run go by
    what their leaving does to the fragmentation of the cards, each after those before it have gone."""
    ordered = cheapest_first(entries)
    if freeing is None or not 0 < count < len(ordered) or _in_order(ordered):
        return ordered
    going: list[Entry] = []
    for _, group in groupby(ordered, key=_alike):
        equal = list(group)
        some = min(count - len(going), len(equal))
        if some <= 0:
            break
        going += _least_fragmenting(equal, some, [entry.name for entry in going], freeing) if len(equal) > 1 else equal
    gone = {entry.name for entry in going}
    return going + [entry for entry in ordered if entry.name not in gone]


def _least_fragmenting(equal: list[Entry], count: int, gone: list[str], freeing: Freeing) -> list[Entry]:
    """So many of them, each the best to go when those before it have gone. (What a node looks like changes by what goes
    from it alone.)"""
    left = {entry.name: entry for entry in equal}
    going: list[Entry] = []
    worth = {name: freeing.fragmentation(name, gone) for name in left}
    while len(going) < count:
        name = min(left, key=worth.__getitem__)
        going.append(left.pop(name))
        gone = [*gone, name]
        there = freeing.node_of(name)
        worth |= {other: freeing.fragmentation(other, gone) for other in left if freeing.node_of(other) == there}
    return going


def _alike(entry: Entry) -> tuple[bool, int, float]:
    """What makes two equally good to go but for the cards that they hold, and their age."""
    return entry.ready, entry.grant.revision, _running(entry) if entry.ready else 0.0


def _running(entry: Entry) -> float:
    """What is not known is not zero."""
    return math.inf if entry.running is None else entry.running


def _cost(entry: Entry) -> tuple[tuple[bool, int, float], float, int, str]:
    age = -math.inf if entry.created_at is None else -entry.created_at
    index = entry.name.rsplit("-", 1)[-1]
    return _alike(entry), age, -int(index) if index.isdigit() else 0, entry.name


def _entries(view: ModelView) -> list[Entry]:
    """The replicas that the last grant names, with what is seen of them."""
    if view.grant is None:
        return []
    seen = {} if view.observed is None else {status.replica: status for status in view.observed.replicas}
    return [_entry(view, view.grant, grant, seen.get(grant.replica)) for grant in view.grant.replicas]


def _entry(view: ModelView, whole: GrantDecided, grant: ReplicaGrant, status: ReplicaStatus | None) -> Entry:
    uid = view.declared.uid
    if status is None:
        return Entry(grant, foreign=whole.uid != uid)
    created = None if status.created_at is None else Instant(status.created_at)
    ready = None if status.ready_at is None else Instant(status.ready_at)
    foreign = whole.uid != uid or status.uid != uid
    # an adapter that is told to drain one gives no reason for it: it has one when another hand ends what it runs in
    ended = status.state is ReplicaState.DRAINING and bool(status.reason)
    running = view.running.get(grant.replica)
    return Entry(grant, foreign, status.state, running, created, ready, ended, status.ordinal)


def _gone(entry: Entry, memory: Memory, policy: AllocatorPolicy, now: Instant) -> bool:
    """A drained replica is gone when it was seen and is seen no more. If it was not there when it was told to drain,
    its start may be under way unseen: then it is gone after the grace."""
    if entry.state is not None or not entry.grant.drain:
        return False
    since = memory.drained.get(entry.name)
    return entry.name in memory.seen if since is None else now >= since + policy.unseen_grace


def _shape(
    view: ModelView, entries: Sequence[Entry], wished: int, policy: AllocatorPolicy, freeing: Freeing | None
) -> _Shape:
    revision = view.declared.revision
    out = frozenset(entry.name for entry in entries if entry.grant.drain or entry.foreign or entry.ended)
    live = [entry for entry in entries if entry.name not in out]
    new = [entry for entry in live if entry.grant.revision == revision]
    old = [entry for entry in live if entry.grant.revision != revision]
    failing = _fails_to_start(view, new, policy)
    serving = [entry for entry in old if entry.ready]
    keep = min(len(serving), wished if failing else max(0, wished - sum(entry.ready for entry in new)))
    ready_old = first_to_go(serving, len(serving) - keep + 1, freeing)  # one more may yield
    leaving = {entry.name for entry in old if not entry.ready} | {e.name for e in ready_old[: len(ready_old) - keep]}
    target = _target(wished, keep, len(new), failing=failing)
    surplus = {entry.name for entry in first_to_go(new, len(new) - target, freeing)[: max(0, len(new) - target)]}
    back = _taken_back(entries, revision, target - len(new))
    want = max(0, target - len(new) - len(back))
    reasons = [] if not keep else [Reason.KEEPS_OLD] if failing else [Reason.ROLLS_OUT]
    drains = (out | leaving | surplus) - back
    awake = drains - {entry.name for entry in entries if entry.sleeps}
    reasons += ([Reason.DRAINS] if awake else []) + ([Reason.TAKES_BACK] if back else [])
    settled = not awake and all(entry.ready for entry in new)
    yields = [entry.name for entry in ready_old[len(ready_old) - keep :]] if settled and want and not failing else []
    return _Shape(drains, back, want, tuple(yields), tuple(reasons))


def _kept(view: ModelView, wished: int, reasons: tuple[Reason, ...]) -> int:
    """How many of `wished` only live on. A person's number is meant as it is; what the bound cuts off goes first."""
    if Reason.WISH not in reasons or view.wish is None:
        return 0
    return max(0, min(wished, view.wish.kept - (view.wish.replicas - wished)))


def _spare(
    view: ModelView, live: Sequence[Entry], kept: int, policy: AllocatorPolicy, now: Instant
) -> tuple[tuple[Spare, ...], list[Instant]]:
    """Ready replicas that may go to others for what is only kept, and when those may go that have just come. None
    while a revision is rolled out."""
    if not kept or not all(_is_active(entry, view) for entry in live):
        return (), []
    until = {
        entry.name: Instant(entry.ready_at + max(policy.least_hold, entry.ready_at - entry.created_at))
        for entry in live if entry.ready and entry.ready_at is not None and entry.created_at is not None
    }  # fmt: skip
    in_order = _in_order(live)
    pick = takewhile if in_order else filter  # none before who stands after it
    ready = list(pick(lambda entry: entry.name in until, cheapest_first(live)))
    free = [Spare(entry.name, _running(entry), in_order) for entry in pick(lambda one: until[one.name] <= now, ready)]
    held = [until[entry.name] for entry in ready if until[entry.name] > now and len(free) < kept]
    return first_spares(free, kept), held


def first_spares(spares: Sequence[Spare], kept: int) -> tuple[Spare, ...]:
    """The first `kept`, and those that are as good to go as the last of them: which of these leaves the cards best
    depends on who comes."""
    if len(spares) <= kept or not kept:
        return tuple(spares[:kept])
    last = spares[kept - 1]
    alike = takewhile(lambda spare: spare.running == last.running and not spare.in_order, spares[kept:])
    return (*spares[:kept], *alike)


def _target(wished: int, keep: int, new: int, *, failing: bool) -> int:
    """How many replicas of the active revision there may be beside `keep` old ones: together one more than wished."""
    if not keep:
        return wished
    return min(wished, max(new, 1) if failing else wished + 1 - keep)


def _fails_to_start(view: ModelView, new: Sequence[Entry], policy: AllocatorPolicy) -> bool:
    """Whether the active revision was tried and failed too often."""
    tried = _failing(view, new) == view.declared.revision
    often = view.observed is not None and view.observed.failures >= policy.failed_starts
    return tried and often and not any(entry.ready for entry in new)


def _taken_back(entries: Iterable[Entry], revision: int, missing: int) -> frozenset[str]:
    able = [
        entry for entry in entries
        if entry.grant.drain and not (entry.foreign or entry.ended) and entry.grant.revision == revision
        and entry.state in _CAN_GO_ON
    ]  # fmt: skip
    started = sorted(
        able,
        key=lambda one: (one.state in (None, ReplicaState.STARTING), one.ordinal or 0, one.created_at or 0.0),
    )
    return frozenset(entry.name for entry in started[: max(0, missing)])


def _failing(view: ModelView, entries: Iterable[Entry]) -> int:
    """The active revision, if it is the one whose starts fail, else 0. (Failures from before it was tried are another
    revision's.)"""
    observed, revision = view.observed, view.declared.revision
    if observed is None or observed.uid != view.declared.uid or not observed.failures:
        return 0
    tried = any(entry.grant.revision == revision and not entry.grant.drain and not entry.ready for entry in entries)
    return revision if tried or view.memory.failing == revision else 0


def _backs_off(view: ModelView, memory: Memory, now: Instant) -> Instant | None:
    """Until when starts of the active revision back off, or None when they do not."""
    if not memory.failing or view.observed is None or view.observed.retry_at is None:
        return None
    return Instant(view.observed.retry_at) if view.observed.retry_at > now else None


def _dormant(entry: Entry, memory: Memory) -> bool:
    """Whether a replica was there and is not: its place stands empty until it is started again."""
    return entry.state is None and entry.name in memory.seen and entry.grant.revision == memory.failing


def _with_drain(entry: Entry, shape: _Shape) -> ReplicaGrant:
    drain = entry.name in shape.drains
    return entry.grant if entry.grant.drain == drain else replace(entry.grant, drain=drain)


def _remember(
    view: ModelView, kept: Sequence[Entry], named: Sequence[ReplicaGrant], given: int, now: Instant
) -> Memory:
    old = view.memory
    seen = frozenset(entry.name for entry in kept if entry.state is not None or entry.name in old.seen)
    absent = {entry.name for entry in kept if entry.state is None}
    unseen = [grant.replica for grant in named if grant.drain and grant.replica in absent]
    drained = {name: old.drained.get(name, now) for name in unseen}
    failing = _failing(view, kept)
    if (seen, drained, failing, given) == (old.seen, old.drained, old.failing, old.given):
        return old
    return replace(old, seen=seen, drained=drained, failing=failing, given=given)
