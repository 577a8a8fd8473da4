"""A case: one attempt to have a training job yield, with what it is for and what it has cost. What is persisted.

The attempt itself is `preemption.core.attempts`; here stands what its records carry beside it, and the ledger, which is
kept as the attempt goes from state to state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from events.types.reclaims import ReclaimChanged, ReclaimLedger, ReclaimStep, ReclaimVerdict
from events.types.training import Ending, MemberGrant, TrainingObserved
from events.units import Instant
from preemption.core.attempts.attempt import Attempt, AttemptPolicy, Change, News, advance
from preemption.core.attempts.states import HOLDS_CARDS, Happened, State
from preemption.core.inventory import MILLI, need_of

VERDICTS_MOST: Final = 32
"""Verdicts that a record keeps: those that were taken, then the others."""

FOREVER: Final = Instant(math.inf)

NOBODY: Final = ""
"""The shortage of a case that is for none."""


class Cause(StrEnum):
    """Why a job's run must end."""

    SHORTAGE = "shortage"
    """A model, or a job of higher priority, needs its cards, or some of them."""
    PERSON = "person"
    """It was paused, cancelled, deleted or declared anew."""
    GROWS = "grows"
    """There is room for more of its members: it saves, and is started again with them."""
    CARDS_GONE = "cards_gone"
    """Its node or its cards are not there any more."""


STAGES: Final[Mapping[State, str]] = {
    State.NOTIFIED: "ack", State.SAVING: "save", State.SAVED: "stop", State.STOPPING: "stop",
    State.KILLING: "stop", State.DRAINING: "drain", State.QUARANTINE: "drain", State.CLAIMED: "bind",
}  # fmt: skip
"""Which stage on the way from the demand to the usable GPU each state belongs to."""

CAUSES: Final[Mapping[State, str]] = {
    State.SAVING: "save", State.SAVED: "stop", State.STOPPING: "stop", State.KILLING: "stop",
    State.DRAINING: "drain", State.QUARANTINE: "drain", State.CLAIMED: "claim", State.RESUMING: "restore",
    State.RESUMING_OLDER: "restore",
}  # fmt: skip
"""What the cards do in each state instead of training. (While a notice is not heard yet, training goes on.)"""

_HALTS: Final = frozenset({State.SAVING, State.STOPPING, State.DRAINING, State.DRAINING_DONE, State.LOST})
"""From the first of these on, nothing is trained any more."""

_ENDED_RUN: Final = frozenset({State.DRAINING, State.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An attempt with its context. `members`: those of its gang that the victim gives up. The others go on: all of them
    save and end, and are started again without these. `shortage` of the attempt is the name of a model,
    ``training/NAME`` for a job of higher priority, or `NOBODY`."""

    attempt: Attempt
    run: int
    members: tuple[MemberGrant, ...]
    shortage_uid: str
    shortage_since: Instant
    cause: Cause = Cause.SHORTAGE
    cost: float = 0.0
    verdicts: tuple[ReclaimVerdict, ...] = ()
    ledger: ReclaimLedger = field(default_factory=ReclaimLedger)
    message: str = ""

    @property
    def id(self) -> str:
        """Names the attempt, its record and its notice."""
        return self.attempt.id

    @property
    def state(self) -> State:
        """Where the attempt is."""
        return self.attempt.state

    @property
    def governs(self) -> bool:
        """Whether the job's run is this attempt's to tell what to do."""
        return self.attempt.state in HOLDS_CARDS

    @property
    def for_shortage(self) -> bool:
        """Whether cards are short."""
        return self.cause is Cause.SHORTAGE

    @property
    def yielded_at(self) -> Instant | None:
        """When the job had to give its cards up for a shortage; None: it did not, or not yet."""
        if not self.for_shortage:
            return None
        return next((change.at for change in self.attempt.history if change.state in _ENDED_RUN), None)

    def priced(self, cost: float, verdicts: tuple[ReclaimVerdict, ...]) -> Case:
        """The case with what the plan said of it."""
        return replace(self, cost=cost, verdicts=verdicts)

    def record(self) -> ReclaimChanged:
        """The whole case as its event."""
        one = self.attempt
        return ReclaimChanged(
            id=one.id, job=one.job, job_uid=one.uid, run=self.run,
            members=tuple(member.member for member in self.members), held=self.members, shortage=one.shortage,
            shortage_uid=self.shortage_uid, shortage_since=self.shortage_since, cards=one.cards, state=one.state,
            since=one.since, due=one.due, deadline=None if one.deadline == FOREVER else one.deadline, ended=one.ended,
            manifest=one.manifest, step=one.step, cost=self.cost,
            history=tuple(ReclaimStep(at=c.at, happened=c.happened, state=c.state) for c in one.history),
            verdicts=self.verdicts, ledger=self.ledger, message=self.message, cause=self.cause,
        )  # fmt: skip


def read_case(event: ReclaimChanged, epoch: int) -> Case:
    """The case that a record tells of. ValueError: it has words of another release."""
    history = tuple(Change(Instant(c.at), Happened(c.happened), State(c.state)) for c in event.history)
    attempt = Attempt(
        id=event.id, job=event.job, uid=event.job_uid, shortage=event.shortage, cards=event.cards, epoch=epoch,
        due=Instant(event.due), state=State(event.state), since=Instant(event.since),
        deadline=FOREVER if event.deadline is None else Instant(event.deadline), manifest=event.manifest,
        step=event.step, history=history,
    )  # fmt: skip
    return Case(
        attempt=attempt, run=event.run, members=event.held, shortage_uid=event.shortage_uid,
        shortage_since=Instant(event.shortage_since), cost=event.cost, verdicts=event.verdicts, ledger=event.ledger,
        message=event.message, cause=cause_of(event),
    )  # fmt: skip


def cause_of(event: ReclaimChanged) -> Cause:
    """Why its job's run had to end. ValueError: it has a word of another release."""
    if event.cause:
        return Cause(event.cause)
    return Cause.SHORTAGE if event.shortage else Cause.PERSON


def step(case: Case, news: News, now: Instant, policy: AttemptPolicy) -> Case:
    """What becomes of the case: the attempt's table, and the time that its last state took, in the ledger."""
    after, _ = advance(case.attempt, news, now, policy)
    if after == case.attempt:
        return case
    if after.state is case.attempt.state:
        return replace(case, attempt=after)
    spent = max(0.0, now - case.attempt.since)
    return replace(case, attempt=after, ledger=_spend(case, spent))


def account(case: Case, seen: TrainingObserved | None) -> Case:
    """The case of a run that has just ended, with what that lost: work and steps since the last proven checkpoint.

    The newest checkpoint that was verified is what the job comes back to, whether it was saved for us or before.
    """
    if seen is None:
        return case
    if seen.ending is Ending.FINISHED:  # it was done by itself: nothing of it is done again
        return replace(case, ledger=replace(case.ledger, steps_lost=0))
    proven = seen.checkpoint if seen.checkpoint is not None and seen.checkpoint.verified else None
    attempt = case.attempt
    if proven is not None and proven.step > attempt.step:
        attempt = replace(attempt, manifest=proven.manifest, step=proven.step)
    base = max(attempt.step, seen.resumed_step or 0)
    steps = None if seen.step is None else max(0, seen.step - base)
    lost = dict(case.ledger.lost)
    began = seen.started_at if proven is None else max(proven.at, seen.started_at or proven.at)
    if began is not None:
        cause = Cause.CARDS_GONE if case.cause is Cause.CARDS_GONE else "since_commit"
        lost[str(cause)] = case.ledger.gpus * max(0.0, _halted(attempt) - began)
    return replace(case, attempt=attempt, ledger=replace(case.ledger, lost=lost, steps_lost=steps))


def resumed(case: Case, seen: TrainingObserved) -> Case:
    """The case of a job that has come back: from an older checkpoint than the proven one, more steps are done again."""
    steps, back = case.ledger.steps_lost, seen.resumed_step
    if steps is None or back is None or case.attempt.step < 0 or back >= case.attempt.step:
        return case
    return replace(case, ledger=replace(case.ledger, steps_lost=steps + case.attempt.step - back))


def gpus_of(members: tuple[MemberGrant, ...]) -> float:
    """Cards that these members hold together, in whole cards, parts added up."""
    return sum(len(one.placement.gpus) * need_of(one.resources).milli_each for one in members) / MILLI


def cards_of(members: tuple[MemberGrant, ...]) -> tuple[str, ...]:
    """``NODE/CARD`` of all of them."""
    return tuple(f"{member.placement.node}/{card}" for member in members for card in member.placement.gpus)


def _halted(attempt: Attempt) -> Instant:
    return next((change.at for change in attempt.history if change.state in _HALTS), attempt.since)


def _spend(case: Case, seconds: float) -> ReclaimLedger:
    """While it saves and ends, the whole gang stands still; set aside is what it gives up."""
    ledger, state = case.ledger, case.state
    lost, stages = dict(ledger.lost), dict(ledger.stages)
    gpus = gpus_of(case.members) if state is State.CLAIMED else ledger.gpus
    if state in STAGES:
        stages[STAGES[state]] = stages.get(STAGES[state], 0.0) + seconds
    if state in CAUSES:
        lost[CAUSES[state]] = lost.get(CAUSES[state], 0.0) + seconds * gpus
    return replace(ledger, lost=lost, stages=stages)
