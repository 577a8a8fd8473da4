"""What has happened to the victim of an attempt, read from what is seen of its run.

Nothing here is told once: what is seen is a state, so what was missed, comes late or twice leads to the same place. One
thing at a time is told; the caller asks again until nothing more is.
"""

from __future__ import annotations

from typing import Final

from events.types.training import Ending, NoticeStatus, RunState, TrainingObserved
from events.units import Instant, Seconds
from preemption.core.attempts.attempt import News
from preemption.core.attempts.states import TABLE, Happened, State
from preemption.core.lending.case import Case, Cause
from preemption.core.lending.seat import JobSeat

_ENDINGS: Final = {
    Ending.FINISHED: Happened.EXIT_DONE, Ending.SAVED: Happened.EXIT_SAVED, Ending.FAILED: Happened.EXIT_ERROR,
    Ending.TOLD: Happened.EXIT_ERROR, Ending.LOST: Happened.GONE,
}  # fmt: skip

_RESTING: Final = frozenset({State.PARKED, State.PARKED_AGED, State.RESUMING, State.RESUMING_OLDER})


def news_of(seat: JobSeat, case: Case, now: Instant) -> News | None:
    """The next thing that the case does not know yet, beside the shortage's own news; None: nothing."""
    if case.state in _RESTING:
        found = _of_return(seat, case)
    else:
        found = next((one for one in _of_victim(seat, case) if one.happened in TABLE.get(case.state, {})), None)
    if found is None and now >= case.attempt.deadline and case.state is not State.CLAIMED:
        return News(Happened.TIMEOUT)  # (a claim lives as long as its wish, which is looked up each time)
    return found


def _of_victim(seat: JobSeat, case: Case) -> list[News]:
    """In the order in which they count: a save before the end that followed it, the end before all else."""
    seen = seat.observed if seat.observed is not None and seat.observed.run == case.run else None
    found: list[News] = []
    notice = None if seen is None or seen.notice is None or seen.notice.id != case.id else seen.notice
    if seen is not None and notice is not None:
        found += _of_save(seen, notice)
    if seen is not None and seen.state is RunState.ENDED:
        if case.state is not State.LOST:  # (there it is known already that it is not ours any more)
            found.append(News(_ENDINGS.get(seen.ending or Ending.LOST, Happened.GONE)))
        if seen.empty_at is not None:
            found.append(News(Happened.GONE if case.state is State.LOST else Happened.CARDS_EMPTY))
    if seat.misplaced and case.cause is not Cause.CARDS_GONE:  # (there that is why; it is told as any other)
        found.append(News(Happened.NODE_LOST))
    if seen is not None and seen.blocked and seen.state is not RunState.ENDED:
        found.append(News(Happened.EVICTION_BLOCKED))
    if _was_told(seat, case):
        found.append(News(Happened.SENT))
    if seen is not None:
        found += _of_notice(seat, case, seen, notice)
    return found


def _was_told(seat: JobSeat, case: Case) -> bool:
    """Whether the notice stands in a grant that is on record."""
    return seat.grant is not None and seat.grant.notice is not None and seat.grant.notice.id == case.id


def _of_save(seen: TrainingObserved, notice: NoticeStatus) -> list[News]:
    """A checkpoint counts once it was verified."""
    saved = seen.checkpoint
    if notice.saved_step is None or saved is None or not saved.verified or saved.step < notice.saved_step:
        return []
    return [News(Happened.CHECKPOINTED, manifest=saved.manifest, step=saved.step)]


def _of_notice(seat: JobSeat, case: Case, seen: TrainingObserved, notice: NoticeStatus | None) -> list[News]:
    if case.state is State.CANCELLING:
        return [News(Happened.STEP_SEEN)] if _goes_on(case, seen, notice) else []
    found: list[News] = []
    if notice is None:
        return found
    if notice.failed:
        found.append(News(Happened.SAVE_FAILED))
    if notice.heard_at is not None:
        found.append(News(Happened.ACK, eta=None if notice.eta is None else Seconds(notice.eta)))
    if case.state is State.SAVING and notice.progress_at is not None and notice.progress_at > seat.progress_at:
        seat.progress_at = notice.progress_at
        found.append(News(Happened.PROGRESS))
    return found


def _goes_on(case: Case, seen: TrainingObserved, notice: NoticeStatus | None) -> bool:
    """Whether a trainer that was told to go on does. One that never says anything is taken to."""
    if notice is not None and notice.continued_at is not None:
        return True
    stepped = seen.step_at is not None and seen.step_at > case.attempt.since
    return stepped or (not seen.reports and seen.state is RunState.RUNNING)


def _of_return(seat: JobSeat, case: Case) -> News | None:
    """Whether a job that had to yield is back: it runs, and has made a step beyond where it began again.

    Of several attempts the newest waits for that: however often a job yields before it has loaded, one stays open.
    """
    if any(one.run > case.run and one.state in _RESTING for one in seat.open.values()):
        return News(Happened.YIELDS_AGAIN)
    if seat.run <= case.run or not seat.granted:
        return None
    if case.state in (State.PARKED, State.PARKED_AGED):
        return News(Happened.CAPACITY_BACK) if _comes_back(seat, case) else None
    seen = seat.seen
    if seen is None or seat.misplaced:
        return News(Happened.NODE_LOST) if seat.misplaced else None
    happened = None
    if _stepped(case, seen):
        happened = Happened.STEP_SEEN
    elif seen.state is RunState.ENDED:
        happened = _ENDINGS.get(seen.ending or Ending.LOST, Happened.GONE)
    elif seen.restore_bad and case.state is State.RESUMING:
        happened = Happened.RESTORE_BAD
    return None if happened is None else News(happened)


def _comes_back(seat: JobSeat, case: Case) -> bool:
    """Whether a run is on its way that was not waited for in vain already."""
    if not seat.alive:
        return False
    if seat.tried.get(case.id) != seat.run:
        seat.tried[case.id] = seat.run
        return True
    return seat.seen is not None and _stepped(case, seat.seen)


def _stepped(case: Case, seen: TrainingObserved) -> bool:
    if (
        not seen.reports
    ):  # one that had saved before will say something; of others all that can be known is that it runs
        return case.attempt.step < 0 and seen.state is RunState.RUNNING
    began = seen.resumed_step if seen.resumed_step is not None else max(0, case.attempt.step)
    return seen.step is not None and seen.step > began
