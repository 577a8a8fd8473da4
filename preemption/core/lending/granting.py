"""The grant that a job's seat comes to: which members may run, which notice stands, how hard they are told to end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from events.names import member_name
from events.types.grants import Placement
from events.types.training import MemberGrant, NoticeGiven, NoticeMode, Stop, TrainingGranted
from preemption.core.attempts.states import State
from preemption.core.lending.case import Case, Cause
from preemption.core.lending.seat import Job, JobSeat


class Because(StrEnum):
    """Why a training job's grant is what it is, beside the words of `preemption.core.lending.seat.Want`."""

    YIELDS = "yields"
    """Its cards are needed: it has a notice, or is told to end."""
    SHRINKS = "shrinks"
    """Likewise, of some of its members; all of them end, and it is started again with the others."""
    GROWS = "grows"
    """There is room for more of its members: it ends, and is started again with them."""
    CARDS_GONE = "cards_gone"
    """Its node or its cards are not there any more."""
    GOES_ON = "goes_on"
    """They are not needed any more: the notice is withdrawn."""
    ENDS = "ends"
    """A person paused, cancelled or deleted it: it is told to checkpoint and end."""
    WAITS_EMPTY = "waits_until_empty"
    """Its run has ended; its cards are not seen empty yet."""
    LACKS = "lacks_room"
    BEHIND = "waits_for_higher_priority"
    """There would be room, but a model lacks the same and comes first."""
    SETTLES = "settles"
    """There is room; it is waited for whether that lasts, since the job had to yield lately."""
    SPENT = "budget_spent"
    """There is room; but the job had to yield as often as it may within an hour, and could not give it back."""


_NUMBERS: Final = re.compile(r"\d[\d.]*( \w+)?")
"""With the word that follows, of which there may be one or several."""

_NOTICED: Final = frozenset({
    State.SELECTED, State.NOTIFIED, State.SAVING, State.SAVED, State.STOPPING, State.KILLING,
})  # fmt: skip
_STOPS: Final[Mapping[State, Stop]] = {State.STOPPING: Stop.TERMINATE, State.KILLING: Stop.KILL}


def grant_of(seat: JobSeat, *, keep: bool) -> TrainingGranted | None:
    """What the seat's grant should be now; None: it never had one and needs none. `keep`: its members may stay."""
    job, old, case = seat.job, seat.grant, seat.governing
    if old is None:
        if job is None or not seat.told[0]:
            return None
        return TrainingGranted(
            job=seat.name, uid=job.uid, revision=job.revision, run=0, reasons=seat.told[0], message=seat.told[1],
            first_run=_first_run(seat, job.uid),
        )  # fmt: skip
    if keep and old.members:
        return _running(seat, old, case)
    uid, revision = (old.uid, old.revision) if job is None else (job.uid, job.revision)
    reasons, message = seat.told if case is None else ((str(Because.YIELDS),), case.message)
    return replace(
        old, uid=uid, revision=revision, members=(), notice=None, stop=Stop.NOT, reasons=reasons, message=message,
        first_run=_first_run(seat, uid),
    )  # fmt: skip


def started(seat: JobSeat, job: Job, placements: tuple[Placement, ...]) -> TrainingGranted:
    """The grant of a new run."""
    members = tuple(
        MemberGrant(member=member_name(seat.name, index), placement=where, resources=job.policy.resources)
        for index, where in enumerate(placements)
    )
    return TrainingGranted(
        job=seat.name, uid=job.uid, revision=job.revision, run=seat.next_run, members=members, reasons=("runs",),
        first_run=_first_run(seat, job.uid),
    )  # fmt: skip


def _first_run(seat: JobSeat, uid: str) -> int:
    """Which run is the first of a declaration; 0: a record of an older release does not say."""
    old = seat.grant
    if old is not None and old.uid == uid and (old.run or old.first_run):
        return old.first_run
    return seat.next_run


def says_the_same(old: TrainingGranted | None, new: TrainingGranted) -> bool:
    """Whether a grant need not be recorded: nothing but the numbers in its message differs."""
    if old is None:
        return False
    return replace(old, message=words_of(old.message)) == replace(new, message=words_of(new.message))


def words_of(message: str) -> str:
    """What a message says, whatever its numbers are: those change all the time, and a record each would tell
    nothing."""
    return _NUMBERS.sub("0", message)


def _running(seat: JobSeat, old: TrainingGranted, case: Case | None) -> TrainingGranted:
    if case is None:
        reasons = ("runs",) if seat.alive else (str(Because.WAITS_EMPTY),)
        return replace(old, notice=None, stop=Stop.NOT, reasons=reasons, message="")
    if case.state in _NOTICED:
        stop = _STOPS.get(case.state, Stop.NOT)
        notice = _notice(case, NoticeMode.SAVE_AND_EXIT)
        return replace(old, notice=notice, stop=stop, reasons=(str(_why(old, case)),), message=case.message)
    if case.state is State.CANCELLING:
        withdrawn = _notice(case, NoticeMode.WITHDRAWN)
        return replace(old, notice=withdrawn, stop=Stop.NOT, reasons=(str(Because.GOES_ON),), message="")
    stands = old.notice
    if case.state is State.LOST and stands is None:  # should it live on where nobody reaches it, it may hear this
        stands = _notice(case, NoticeMode.SAVE_AND_EXIT)
    return replace(old, notice=stands, reasons=(str(Because.WAITS_EMPTY),))  # it has ended: what it was told stands


def _why(old: TrainingGranted, case: Case) -> Because:
    if case.cause is Cause.SHORTAGE:
        return Because.YIELDS if len(case.members) >= len(old.members) else Because.SHRINKS
    return _BECAUSE[case.cause]


_BECAUSE: Final = {
    Cause.PERSON: Because.ENDS, Cause.GROWS: Because.GROWS, Cause.CARDS_GONE: Because.CARDS_GONE,
}  # fmt: skip
_SAYS: Final = {
    Cause.PERSON: "a person asked for it", Cause.GROWS: "there is room for more members",
    Cause.CARDS_GONE: "its cards are not there any more",
}  # fmt: skip


def _notice(case: Case, mode: NoticeMode) -> NoticeGiven:
    reason = _SAYS.get(case.cause) or f"{case.attempt.shortage} needs the cards"
    return NoticeGiven(id=case.id, deadline=case.attempt.due, mode=mode, reason=reason)
