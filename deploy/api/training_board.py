"""The board of training: jobs and reclaims, folded from the log's states, for people who ask.

It holds one entry a job that is declared or has something left running, and a bounded number of reclaims that ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deploy.api.book import Book
from deploy.api.shapes import Metadata
from deploy.api.training_facts import JobCosts, JobFacts, leaves_something
from deploy.api.training_status import training_status
from deploy.api.trainingshapes import TrainingItem
from events.envelope import AnyEnvelope
from events.names import member_name
from events.types.accounts import TrainingAccounted
from events.types.reclaims import ReclaimChanged
from events.types.training import TrainingDeclared, TrainingGranted, TrainingObserved
from events.units import Instant
from preemption.core.attempts.states import State
from preemption.core.lending.case import Cause
from preemption.core.lending.granting import Because
from preemption.core.reclaim.goodput import Account, Parts, read_account, see, summed
from preemption.core.reclaim.usual import Usual, UsualTimes

MOST_ENDED: Final = 1000
"""Reclaims that ended and are still shown: the newest. Chosen: some megabytes; the log has all of them."""

BREATH: Final = 20
"""Jobs or reclaims after which the loop may do other things: some milliseconds, since requests run on it too."""

SPARED: Final = frozenset({
    State.SELECTED, State.NOTIFIED, State.SAVING, State.SAVED, State.CANCELLING, State.DRAINING_DONE,
    State.CONTINUED, State.FINISHED, State.SKIPPED,
})  # fmt: skip
"""States of a reclaim whose victim has not lost its cards to it: it may still go on, or has finished by itself."""


_WAITS: Final = frozenset({Because.LACKS, Because.BEHIND, Because.SETTLES, Because.SPENT})


@dataclass(slots=True)
class JobBoard:
    """What is known of one job."""

    declared: TrainingDeclared | None = None
    granted: TrainingGranted | None = None
    observed: TrainingObserved | None = None
    accounted: TrainingAccounted | None = None

    @property
    def gone(self) -> bool:
        """Deleted, and nothing of it runs or holds a card."""
        if self.declared is None or not self.declared.deleted:
            return False
        observed = self.observed
        return observed is None or observed.uid != self.declared.uid or not leaves_something(observed)


class TrainingBoard:
    """All training jobs, and the reclaims. `book`: the jobs' declarations."""

    def __init__(self, most_ended: int = MOST_ENDED) -> None:
        self.book = Book(_name_of, self._declare)
        self._jobs: dict[str, JobBoard] = {}
        self._open: dict[str, ReclaimChanged] = {}
        self._ended: dict[str, ReclaimChanged] = {}
        self._most_ended = most_ended
        self.usual = UsualTimes()
        """How long saves take, and coming back: of all jobs."""

    def apply(self, envelope: AnyEnvelope, offset: int) -> None:
        """Take in what happened; what is not about training is passed over."""
        data = envelope.data
        if isinstance(data, TrainingDeclared):
            self.book.hear(data, offset)
        elif isinstance(data, TrainingGranted):
            self._of(data.job).granted = data
        elif isinstance(data, TrainingObserved):
            entry = self._of(data.job)
            entry.observed = data
            self._forget_if_gone(entry)
        elif isinstance(data, TrainingAccounted):
            self._of(data.job).accounted = data
        elif isinstance(data, ReclaimChanged):
            self._reclaim(data)

    def entry(self, name: str) -> JobBoard | None:
        """What is known of a job that is declared, or deleted and still ending."""
        entry = self._jobs.get(name)
        return entry if entry and entry.declared and not entry.gone else None

    def failed_run(self, name: str) -> int:
        """The newest run of a job, if it has failed; 0: it has not."""
        entry = self.entry(name)
        seen = None if entry is None else entry.observed
        return seen.run if seen is not None and seen.failures else 0

    def copy(self) -> TrainingBoard:
        """As it stands now, for a reader in another thread."""
        other = TrainingBoard(self._most_ended)
        other._jobs = {name: replace(entry) for name, entry in self._jobs.items()}
        other._open, other._ended = dict(self._open), dict(self._ended)
        other.usual = self.usual.copy()
        return other

    def names(self) -> list[str]:
        """Jobs that are declared or still ending, in order."""
        return sorted(name for name in self._jobs if self.entry(name))

    def item(self, name: str, now: Instant) -> TrainingItem | None:
        """A job as the API shows it."""
        entry = self.entry(name)
        if entry is None or entry.declared is None:
            return None
        return self._item(entry, entry.declared, now, self.costs())

    async def items(self, now: Instant) -> AsyncIterator[TrainingItem]:
        """Every job as the API shows it, by name; after each `BREATH` of them the loop may do other things."""
        costs = self.costs()
        for count, name in enumerate(self.names(), 1):
            entry = self.entry(name)
            if entry is not None and entry.declared is not None:
                yield self._item(entry, entry.declared, now, costs)
            if count % BREATH == 0:
                await asyncio.sleep(0)

    def costs(self) -> Mapping[str, JobCosts]:
        """What reclaims have cost each job (by uid), of those that are shown; not what a person asked for."""
        costs: dict[str, JobCosts] = {}
        for one in self.reclaims():
            if one.shortage or one.cause not in ("", Cause.PERSON):
                of_job = costs.setdefault(one.job_uid, JobCosts())
                of_job.preemptions += bool(one.shortage) and one.state not in SPARED
                of_job.lost.update(one.ledger.lost)
        return costs

    async def goodput(self, now: Instant) -> Parts:
        """What all jobs that are listed did with the cards that they held."""
        whole: Parts = {}
        for count, name in enumerate(self.names(), 1):
            entry = self.entry(name)
            if entry is not None:
                whole = summed((whole, parts_of(entry, now)))
            if count % BREATH == 0:
                await asyncio.sleep(0)
        return whole

    def members(self, job: str) -> list[str]:
        """The members of a job that were granted or seen, in order; all that are declared before that."""
        entry = self.entry(job)
        if entry is None or entry.declared is None:
            return []
        seen = [one.member for one in entry.observed.members] if entry.observed else []
        granted = [one.member for one in entry.granted.members] if entry.granted else []
        count = entry.declared.spec.get("members")
        declared = [member_name(job, index) for index in range(count if isinstance(count, int) else 1)]
        return list(dict.fromkeys((*granted, *seen))) or declared

    def grants(self) -> Mapping[str, TrainingGranted]:
        """The newest grant of each job."""
        return {name: entry.granted for name, entry in self._jobs.items() if entry.granted}

    def observations(self) -> Mapping[str, TrainingObserved]:
        """What is seen of each job."""
        return {name: entry.observed for name, entry in self._jobs.items() if entry.observed}

    def waiting(self) -> list[tuple[str, int]]:
        """Jobs that wait for room, with their priorities."""
        found = []
        for name in self.names():
            entry = self._jobs[name]
            if entry.granted and not entry.granted.members and _WAITS & set(entry.granted.reasons) and entry.declared:
                priority = entry.declared.spec.get("priority")
                found.append((name, priority if isinstance(priority, int) else 0))
        return found

    def reclaims(self) -> Sequence[ReclaimChanged]:
        """Those that go on, then those that ended, the newest last."""
        return (*self._ended.values(), *self._open.values())

    def reclaim(self, name: str) -> ReclaimChanged | None:
        """One, by its id."""
        return self._open.get(name) or self._ended.get(name)

    def _item(
        self, entry: JobBoard, declared: TrainingDeclared, now: Instant, costs: Mapping[str, JobCosts]
    ) -> TrainingItem:
        facts = JobFacts(
            declared=declared, now=now, granted=entry.granted, observed=entry.observed,
            costs=costs.get(declared.uid, JobCosts()), parts=parts_of(entry, now),
            usual=self._usual_of(entry, declared.uid),
        )  # fmt: skip
        return TrainingItem(
            metadata=training_metadata(declared), spec=dict(declared.spec), status=training_status(facts)
        )

    def _usual_of(self, entry: JobBoard, uid: str) -> tuple[Usual | None, Usual | None]:
        members = entry.granted.members if entry.granted and entry.granted.uid == uid else ()
        takes = members[0].resources if members else None
        return self.usual.save(uid, takes), self.usual.back(uid, takes)

    def _of(self, job: str) -> JobBoard:
        return self._jobs.setdefault(job, JobBoard())

    def _declare(self, _: TrainingDeclared | None, declared: TrainingDeclared) -> None:
        entry = self._of(declared.job)
        entry.declared = declared
        self._forget_if_gone(entry)

    def _forget_if_gone(self, entry: JobBoard) -> None:
        """Of what is gone only the declaration is kept: the next one of this name goes on from its revision."""
        if entry.gone:
            entry.granted = entry.observed = entry.accounted = None

    def _reclaim(self, data: ReclaimChanged) -> None:
        if not data.ended:
            if data.id not in self._ended:  # what ended stays so
                self._open[data.id] = data
            return
        self._open.pop(data.id, None)
        self._ended[data.id] = data
        self.usual.see(data)
        while len(self._ended) > self._most_ended:
            del self._ended[min(self._ended, key=lambda name: self._ended[name].since)]


def parts_of(entry: JobBoard, now: Instant) -> Parts:
    """What a job did with the cards that it held: what is on record, and what was seen since."""
    if entry.declared is None:
        return {}
    job, uid = entry.declared.job, entry.declared.uid
    account = Account(job=job, uid=uid)
    if entry.accounted is not None and entry.accounted.uid == uid:
        account = read_account(entry.accounted)
    if entry.observed is not None and entry.observed.uid == uid:
        account = see(account, entry.observed, now)
    return account.parts(now)


def training_metadata(declared: TrainingDeclared) -> Metadata:
    """Who the declaration is about."""
    return Metadata(
        name=declared.job, labels=dict(declared.labels), annotations=dict(declared.annotations), uid=declared.uid,
        generation=declared.generation, revision=declared.revision,
    )  # fmt: skip


def _name_of(declared: TrainingDeclared) -> str:
    return declared.job
