"""What models lack, as the lender sees it, and the sentences that tell them what is done about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from events.types.reclaims import ReclaimChanged
from events.types.shared import Resources
from events.types.training import TrainingGranted
from events.units import Instant
from preemption.core.attempts.states import State
from preemption.core.inventory import Need, need_of
from preemption.core.lending.case import Case
from preemption.core.placement import Kind, kinds_of
from preemption.core.reclaim.values import ReclaimPlan, Verdict, Why
from preemption.core.seat import Seat, Told
from preemption.core.view import Reason

NAMES_MOST: Final = 3
"""Jobs that one sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """So many of `name` (a model, or ``training/NAME``) have no place. `kinds`: what they lack."""

    name: str
    uid: str
    resources: Resources
    count: int
    priority: int
    since: Instant
    kinds: frozenset[Kind]
    gang: bool = False
    blocked: bool = False
    """It waits for a model of higher priority that lacks the same: nobody is asked to yield for it meanwhile."""

    @property
    def need(self) -> Need:
        """What one of them takes."""
        return need_of(self.resources)


@dataclass(frozen=True, slots=True)
class Hungry:
    """Who waits for a place and comes before jobs of a lower priority; which kinds of resources it lacks."""

    need: Need
    priority: int
    kinds: frozenset[Kind]


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usually asked for in the pool, and which replicas drain now (their names in the ledger)."""

    resources: tuple[Resources, ...] = ()
    drains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What the pool knows of models beside its ledger: those that wait, and, when it is asked, what is usual."""

    hungry: tuple[Hungry, ...]
    usual: Callable[[], Usual]


@dataclass(frozen=True, slots=True)
class Lent:
    """What a decision changed for training: records of attempts, to be written before the grants; and when to decide
    again."""

    reclaims: tuple[ReclaimChanged, ...] = ()
    grants: tuple[TrainingGranted, ...] = ()
    again_at: Instant | None = None


def short_of(seat: Seat, now: Instant) -> Short | None:
    """What a model lacks of its wish; None: nothing that cards could help with.

    A surge (one more than wished while a revision is rolled out) makes nobody yield, nor does what may not have all
    nodes that could hold it: the planner does not know which.
    """
    declared, stand, lack, need = seat.declared, seat.stand, seat.lack, seat.need
    if declared is None or stand is None or need is None or (lack is not None and (lack.narrow or not lack.ever)):
        return None
    count = min(seat.unplaced, stand.wished - seat.live) - seat.comes
    if count <= 0:
        return None
    since = now if seat.memory.short_since is None else seat.memory.short_since
    return Short(
        name=seat.model, uid=declared.uid, resources=declared.resources, count=count, priority=declared.priority,
        since=since, kinds=frozenset(kinds_of(need) if lack is None else lack.claims), blocked=bool(seat.waits_for),
    )  # fmt: skip


def waits_first(seat: Seat) -> Hungry | None:
    """A waiting model whose place training of lower priority must not take."""
    declared, lack = seat.declared, seat.lack
    if declared is None or seat.need is None or not seat.unplaced or (lack is not None and not lack.ever):
        return None
    kinds = kinds_of(seat.need) if lack is None else lack.claims
    return Hungry(seat.need, declared.priority, frozenset(kinds))


_DOES: Final = {
    State.SELECTED: "to hear the notice", State.NOTIFIED: "to hear the notice", State.SAVING: "to save",
    State.SAVED: "to end", State.STOPPING: "to stop",
    State.KILLING: "to be killed", State.DRAINING: "to be gone from its cards",
    State.DRAINING_DONE: "to be gone from its cards", State.QUARANTINE: "to be gone from its cards",
}  # fmt: skip


def tell_cases(cases: Sequence[Case], now: Instant) -> Told | None:
    """What the attempts for one shortage are at: the slowest first."""
    busy = sorted((case for case in cases if case.state in _DOES), key=lambda case: case.attempt.due, reverse=True)
    if not busy:
        held = sorted(case.attempt.job for case in cases if case.state is State.CLAIMED)
        if not held:
            return None
        words = f"what {_names(held)} gave up is set aside for it, and is not enough yet"
        return Told(Reason.TRAINING_YIELDS, words, ",".join(held))
    parts = [
        f"{case.attempt.job} {_DOES[case.state]}; due in {max(0, round(_due(case) - now))} s"
        for case in busy[:NAMES_MOST]
    ]
    more = f" and for {len(busy) - NAMES_MOST} more" if len(busy) > NAMES_MOST else ""
    words = "waits for " + ", for ".join(parts) + more
    key = ",".join(f"{case.attempt.job}:{_DOES[case.state]}" for case in busy)
    return Told(Reason.TRAINING_YIELDS, words, key)


def _due(case: Case) -> Instant:
    """When it must have done what it is at; a save that was promised sooner may still take until then."""
    return case.attempt.due if case.state in (State.SELECTED, State.NOTIFIED) else case.attempt.deadline


def tell_others(cases: Mapping[str, Sequence[Case]]) -> Told | None:
    """Who yields already, though not for this shortage. `cases` by shortage."""
    busy = sorted(case.attempt.job for shortage, found in cases.items() if shortage for case in found)
    if not busy:
        return None
    return Told(Reason.NO_VICTIM, f"no training may yield: {_names(busy)} yields for others already", ",".join(busy))


def tell_plan(plan: ReclaimPlan, now: Instant) -> Told | None:
    """Why nobody yields for a shortage, or what is waited for."""
    if plan.wait_until is not None:
        seconds = max(0, round(plan.wait_until - now))
        return Told(Reason.COMING, f"enough is expected to be free in {seconds} s, which is cheaper", plan.outcome)
    told = [verdict for verdict in plan.verdicts if verdict.why in _BECAUSE]
    if not told:
        return None
    words = [f"{verdict.job} {_BECAUSE[verdict.why]}{_until(verdict)}" for verdict in told[:NAMES_MOST]]
    more = f", and {len(told) - NAMES_MOST} more" if len(told) > NAMES_MOST else ""
    key = ",".join(f"{verdict.job}:{verdict.why}" for verdict in told[:NAMES_MOST])
    return Told(Reason.NO_VICTIM, f"no training may yield: {', '.join(words)}{more}", key)


_BECAUSE: Final = {
    Why.PROTECTED: "is protected", Why.PRIORITY: "has a priority that is not lower",
    Why.TOO_YOUNG: "has just been started", Why.COOLS_DOWN: "had to yield just now",
    Why.BUDGET: "has spent its budget",
    Why.YIELDING: "yields already", Why.NO_USE: "holds nothing of use", Why.NOT_ASKED: "would not free enough",
}  # fmt: skip


def _until(verdict: Verdict) -> str:
    numbers = verdict.numbers
    match verdict.why:
        case Why.COOLS_DOWN:
            return f" and is left alone for {round(numbers['coolDown'] - numbers['since'])} s more"
        case Why.TOO_YOUNG:
            return f" and is left alone for {round(numbers['minimum'] - numbers['ran'])} s more"
        case Why.BUDGET:
            return f" of {numbers['perHour']:g} an hour"
    return ""


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:NAMES_MOST]) + (" and others" if len(listed) > NAMES_MOST else "")
