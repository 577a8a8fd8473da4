"""Which models of a pool call for nodes: what is short after all else was tried, brought to `decide_calls` and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from events.types.replicas import ReplicasObserved
from events.units import Instant
from preemption.core.calling import Call, Caller, CallPolicy, decide_calls
from preemption.core.seat import Seat


class Callers:
    """All calls of a pool. Changes its seats."""

    def __init__(self, seats: Mapping[str, Seat]) -> None:
        self._seats = seats
        self._known: set[str] = set()
        """Models that call, or whose last call is remembered."""

    def call(self, hungry: Collection[str], policy: CallPolicy | None, now: Instant) -> tuple[set[str], Instant | None]:
        """Decide all calls again: whose changed, and when time alone changes one. `hungry`: who has no room."""
        if policy is None and not self._known:
            return set(), None
        seats = {model: self._seats[model] for model in self._known.union(hungry) if model in self._seats}
        callers = [one for seat in seats.values() if (one := _caller(seat, now)) is not None]
        decided = decide_calls(callers, policy, now)
        changed = set()
        for model, seat in seats.items():
            call = decided.by_model.get(model)
            if seat.call != call:
                seat.call = call
                changed.add(model)
        self._known = {model for model, seat in seats.items() if seat.call is not None}
        return changed, decided.again_at


def _caller(seat: Seat, now: Instant) -> Caller | None:
    """A model as calls see it; None: it is not declared any more."""
    if seat.declared is None or seat.declared.deleted:
        return None
    since = now if seat.memory.short_since is None else seat.memory.short_since
    return Caller(
        model=seat.model, priority=seat.declared.priority, since=since, live=seat.live,
        count=seat.lacking, before=_before(seat),
        cancelled_at=_cancelled_at(seat.observed, seat.declared.uid),
    )  # fmt: skip


def _before(seat: Seat) -> Call | None:
    """Its last call: ours, or the one that the leader before left in its grant."""
    if seat.call is not None or seat.grant is None or seat.grant.shortage is None:
        return seat.call
    told = seat.grant.shortage.call
    return None if told is None else Call(told, seat.live)


def _cancelled_at(seen: ReplicasObserved | None, uid: str) -> Instant | None:
    """When somebody last took a stand-in of it away."""
    if seen is None or seen.uid != uid or seen.stand_ins is None or seen.stand_ins.cancelled_at is None:
        return None
    return Instant(seen.stand_ins.cancelled_at)
