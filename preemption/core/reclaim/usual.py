"""How long it usually takes a training job to save when it is asked to, and to come back: learned from its attempts.

Only attempts that have ended are read, as they stand in the log, so a new leader knows what the last one did. Which of
them count is a matter of their times alone, not of the order in which they are read. The middle of a few newest ones
tells, so that one slow save, or one start on a node without the image, moves nothing.

A job that has not shown it yet is taken to be like those whose members take the same of cards. A trainer that never
proved a checkpoint has none to load, so the time of its start says nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from events.types.reclaims import ReclaimChanged
from events.types.shared import Resources
from events.units import Seconds
from preemption.core.attempts.states import Happened, State
from preemption.core.inventory import need_of

TIMES_KEPT: Final = 8
"""Newest saves, and returns, of a job that count. Chosen: enough to outvote three odd ones, few enough to follow a job
that changes within a day."""

JOBS_KEPT: Final = 512
"""Jobs of which they are known: those that did it last. Chosen: 100 kB."""

Alike = tuple[int, int, int, str]
"""What a member takes of cards: whole ones, thousandths of one, bytes of one, a MIG profile."""


@dataclass(frozen=True, slots=True)
class Usual:
    """The middle of `seen` times of the job itself; with `alike`, of the middles of so many jobs like it."""

    seconds: Seconds
    seen: int
    alike: bool = False


@dataclass(slots=True)
class _Job:
    """One job's newest times: when each was over, the attempt, and seconds."""

    alike: Alike
    saves: list[tuple[float, str, float]] = field(default_factory=list)
    returns: list[tuple[float, str, float]] = field(default_factory=list)

    @property
    def newest(self) -> float:
        return max(one[-1][0] for one in (self.saves, self.returns) if one)


class UsualTimes:
    """What was seen of all jobs, by uid. Bounded by `JOBS_KEPT` and `TIMES_KEPT`."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._alike: dict[Alike, tuple[Usual | None, Usual | None]] = {}
        """What was asked for already of jobs that are alike: their saves and returns."""

    def __len__(self) -> int:
        return len(self._jobs)

    def copy(self) -> UsualTimes:
        """As it stands now, for a reader in another thread."""
        other = UsualTimes()
        other._jobs = {uid: _Job(job.alike, [*job.saves], [*job.returns]) for uid, job in self._jobs.items()}
        return other

    def see(self, attempt: ReclaimChanged) -> None:
        """Take in an attempt that has ended; twice is as once."""
        saved, back = _saved_in(attempt), _back_in(attempt)
        if not attempt.ended or not attempt.held or (saved is None and back is None):
            return
        self._alike.clear()
        job = self._jobs.setdefault(attempt.job_uid, _Job(alike_of(attempt.held[0].resources)))
        for times, found in ((job.saves, saved), (job.returns, back)):
            if found is not None and (one := (found[0], attempt.id, found[1])) not in times:
                times.append(one)
                times.sort()
                del times[:-TIMES_KEPT]
        if len(self._jobs) > JOBS_KEPT:
            del self._jobs[min(self._jobs, key=lambda uid: (self._jobs[uid].newest, uid))]

    def save(self, uid: str, resources: Resources | None, newest: float = 0.0) -> Usual | None:
        """How long a save takes that a job of this uid, or one like it, is asked for; `newest`: what its newest
        checkpoint took, by whatever it was saved (0: not known). None: nobody like it was seen to save.

        `resources`: what a member takes, None: not known, so nobody is like it.
        """
        job = self._jobs.get(uid)
        own = [one[2] for one in job.saves] if job is not None else []
        return _middle([*own, newest] if newest > 0 else own) or self._of_others(resources)[0]

    def back(self, uid: str, resources: Resources | None) -> Usual | None:
        """How long it takes a job of this uid, or one like it, from being granted cards again to its first new step.
        None: nobody like it was seen to come back."""
        job = self._jobs.get(uid)
        own = [one[2] for one in job.returns] if job is not None else []
        return _middle(own) or self._of_others(resources)[1]

    def _of_others(self, resources: Resources | None) -> tuple[Usual | None, Usual | None]:
        if resources is None:
            return None, None
        alike = alike_of(resources)
        if alike not in self._alike:
            jobs = [job for job in self._jobs.values() if job.alike == alike]
            self._alike[alike] = _middles([job.saves for job in jobs]), _middles([job.returns for job in jobs])
        return self._alike[alike]


def alike_of(resources: Resources) -> Alike:
    """By what jobs are taken to be like each other."""
    need = need_of(resources)
    return need.gpus, need.gpu_milli, need.gpu_bytes, need.mig_profile


def _saved_in(attempt: ReclaimChanged) -> tuple[float, float] | None:
    """When the save that was asked for was over, and the seconds from its beginning; from the notice, where the
    trainer's first word was its last."""
    began = None
    for change in attempt.history:
        if change.state in (State.NOTIFIED, State.SAVING):
            began = change.at
        elif began is not None and (change.state == State.SAVED or change.happened == Happened.EXIT_SAVED):
            return change.at, max(0.0, change.at - began)
        elif change.state in (State.STOPPING, State.CANCELLING):
            return None
    return None


def _back_in(attempt: ReclaimChanged) -> tuple[float, float] | None:
    """When the job was back, and the seconds since it was granted its cards."""
    if attempt.step < 0 or attempt.state != State.RESUMED:
        return None
    began = None
    for change in attempt.history:
        if change.state == State.RESUMING:
            began = change.at
        elif change.state == State.RESUMED and began is not None:
            return change.at, max(0.0, change.at - began)
    return None


def _middle(seconds: Sequence[float]) -> Usual | None:
    return Usual(Seconds(median(seconds)), len(seconds)) if seconds else None


def _middles(jobs: Sequence[list[tuple[float, str, float]]]) -> Usual | None:
    middles = [median(one[2] for one in times) for times in jobs if times]
    return Usual(Seconds(median(middles)), len(middles), alike=True) if middles else None
