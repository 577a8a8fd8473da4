"""Makes each training job's processes match its grant: looks, plans, does; counts failures; tells what is.

Everything here runs on the event loop without waiting, except the lives of the runs, which have a task each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic

from deploy.local import backoff
from deploy.local.alarms import Alarms
from deploy.local.declared import Reason
from deploy.local.publisher import Publisher
from deploy.local.training.lives import Hands, R
from deploy.local.training.plan import Actual, Begin, Command, End, Give, Skip, Withdraw, plan
from deploy.local.training.starting import shape_of
from deploy.local.training.story import Story
from deploy.local.training.view import JobView, TrainingView
from events.envelope import AnyEnvelope
from events.types.training import Ending, RunState, TrainingGranted, TrainingObserved
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
LIVED: Final = Seconds(600.0)
"""A run that failed after so long, or that committed a checkpoint, had got on: its failure is the first of a new row.
(Ten minutes are Kubernetes' time after which a container's back-off is forgotten.)"""


@dataclass(slots=True)
class Job(Generic[R]):
    """What exists of a job. `last`: its newest run, as it was told when nothing of that was left any more; or that it
    could not be begun. `begun`: the newest run that was begun, of `uid`."""

    uid: str = ""
    begun: int = 0
    runs: list[R] = field(default_factory=list)
    last: TrainingObserved | None = None
    failures: int = 0
    retry_at: Instant | None = None


class Jobs(Generic[R]):
    """All jobs' runs. `spawn` runs their lives."""

    def __init__(
        self, hands: Hands[R], view: TrainingView, alarms: Alarms[str], publisher: Publisher[str], spawn: Spawn
    ) -> None:
        self.jobs: dict[str, Job[R]] = {}
        self.started = 0
        self.failed = 0
        self.notices = 0
        self._hands = hands
        self._view = view
        self._alarms = alarms
        self._publisher = publisher
        self._spawn = spawn
        self._lives: set[asyncio.Task[None]] = set()
        self._closing = False

    def runs(self) -> list[R]:
        """All of which something is left."""
        return [run for job in self.jobs.values() for run in job.runs]

    def lives(self) -> frozenset[asyncio.Task[None]]:
        """Their tasks: each ends when its run's cards were seen empty."""
        return frozenset(self._lives)

    def close(self) -> None:
        """Begin nothing any more, and follow no plan."""
        self._closing = True

    def look(self, name: str) -> None:
        """Make one job as it should be, as far as that can be ordered now."""
        self._publisher.mark(name)
        if self._closing:
            return
        job, view = self.jobs.setdefault(name, Job()), self._view.jobs.get(name, JobView())
        if view.uid != job.uid and not job.runs:  # what the last one of the other declaration held must stay told
            self.jobs[name] = job = Job(uid=view.uid, last=job.last)
        for run in job.runs:
            run.epoch = view.epoch
        if job.uid == view.uid and job.begun <= view.forgiven:  # a person has it tried again
            job.failures, job.retry_at = 0, None
        if view.purges and _is_over(job, view.purges):
            view.purges.clear()
            self._spawn(self._hands.purge(name, "" if view.deleted else view.uid))
        grant = self._view.granted(name)
        made = plan(grant, _actual(job, view.uid), self._hands.clock.now())
        for command in made.commands:
            self._do(name, job, command)
        # once more: a run that was begun now may have a notice already, and a failure a new instant
        made = plan(grant, _actual(job, view.uid), self._hands.clock.now())
        for command in made.commands:
            if not isinstance(command, Begin):
                self._do(name, job, command)
        self._alarms.set(name, made.again_at)
        if view.deleted and not job.runs:
            self._spawn(self._forget(name))

    def _do(self, name: str, job: Job[R], command: Command) -> None:
        runs = {run.shape.run: run for run in job.runs}
        match command:
            case Begin():
                self._begin(name, job, command.grant)
            case Skip():
                self._skip(job, command.grant)
            case Give():
                self.notices += 1
                runs[command.run].give(command.notice)
                logger.info("run %d of %s is told: %s", command.run, name, command.notice.mode)
            case Withdraw():
                runs[command.run].withdraw()
            case End():
                logger.info("run %d of %s is told to end (%s): %s", command.run, name, command.stop, command.why)
                runs[command.run].end(command.stop, command.why)

    def _begin(self, name: str, job: Job[R], grant: TrainingGranted) -> None:
        policy = self._view.jobs[name].revisions.get(grant.revision)
        if policy is None:
            logger.warning("%s is granted, but its revision %d is not known (yet)", name, grant.revision)
            return  # its declaration wakes us
        now = self._hands.clock.now()
        job.uid, job.begun = grant.uid, grant.run
        if isinstance(policy, str):
            self._cannot_begin(job, grant, policy, now)
            return
        checkpoint = job.last.checkpoint if job.last is not None and job.last.uid == grant.uid else None
        self.started += 1
        logger.info("run %d of %s starts with %d processes", grant.run, name, len(grant.members))
        run = self._hands.make(shape_of(grant, policy), Story(began_at=now, checkpoint=checkpoint), self._changed)
        run.epoch = self._view.jobs[name].epoch
        self.go_on(run)

    def _cannot_begin(self, job: Job[R], grant: TrainingGranted, why: str, now: Instant) -> None:
        self._count_failure(job, now)
        failed = _never_begun(job, grant, Ending.FAILED, now)
        job.last = replace(failed, reason=str(Reason.INVALID_SPEC), message=why)

    def _skip(self, job: Job[R], grant: TrainingGranted) -> None:
        job.last = _never_begun(job, grant, Ending.TOLD, self._hands.clock.now())
        job.uid, job.begun = grant.uid, grant.run

    async def _forget(self, name: str) -> None:
        """A deleted job of which nothing is left, once that is on record."""
        await self._publisher.record(name)
        job, view = self.jobs.get(name), self._view.jobs.get(name)
        if job is not None and view is not None and view.deleted and not job.runs:
            del self.jobs[name]
            self._view.forget(name)

    def go_on(self, run: R) -> None:
        """Let a run live: a new one, or one that outlived another relume."""
        self.jobs.setdefault(run.shape.policy.job, Job()).runs.append(run)
        life = self._spawn(self._live(run))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        self._changed(run)

    def restore(self, observed: TrainingObserved) -> None:
        """What an earlier relume knew of a job: its newest run begins no second time, and its failures count."""
        self.jobs[observed.job] = Job(
            uid=observed.uid, begun=observed.run, last=observed, failures=observed.failures,
            retry_at=None if observed.retry_at is None else Instant(observed.retry_at),
        )  # fmt: skip
        if observed.state is RunState.ENDED and observed.empty_at is None:
            self._spawn(self._prove(observed))

    async def _prove(self, observed: TrainingObserved) -> None:
        """Its run had ended when relume did, and nobody saw its cards empty."""
        await self._hands.prove(observed)
        job = self.jobs.get(observed.job)
        if job is not None and job.last is observed:
            job.last = replace(observed, empty_at=self._hands.clock.now())
            self.look(observed.job)

    async def _live(self, run: R) -> None:
        name = run.shape.policy.job
        job = self.jobs[name]
        await run.live()
        self._judge(job, run)
        await self._publisher.record(name)
        run.settled = True
        self.look(name)  # nothing of it runs any more: another may begin on other cards
        await run.prove_empty()
        await self._publisher.record(name)
        if job.runs[-1] is run:
            job.last = self._observed(job, run)
        job.runs.remove(run)
        self.look(name)

    def _judge(self, job: Job[R], run: R) -> None:
        """What its end means for the next run."""
        assert run.ending is not None
        name, (reason, message) = run.shape.policy.job, run.trouble()
        logger.info("run %d of %s has ended: %s%s", run.shape.run, name, run.ending, f" ({message})" if message else "")
        if not run.failed:
            job.failures, job.retry_at = 0, None
        elif not run.told_to_end:
            now = self._hands.clock.now()
            logger.warning("run %d of %s failed: %s: %s", run.shape.run, name, reason, message)
            if run.got_on or now - run.started_at >= LIVED:
                job.failures = 0
            self._count_failure(job, now)

    def _count_failure(self, job: Job[R], now: Instant) -> None:
        self.failed += 1
        job.failures += 1
        job.retry_at = Instant(now + backoff.delay(job.failures))

    def _changed(self, run: R) -> None:
        self._publisher.mark(run.shape.policy.job)

    def state(self, name: str) -> tuple[TrainingObserved, AnyEnvelope | None] | None:
        """A job's state now, and the grant that led to it; None: no run of it ever was."""
        job = self.jobs.get(name)
        if job is None:
            return None
        view = self._view.jobs.get(name, JobView())
        if job.runs:
            observed = self._observed(job, job.runs[-1])
        elif job.last is not None:
            observed = replace(job.last, failures=job.failures, retry_at=job.retry_at)
        else:
            return None
        return replace(observed, grant_epoch=max(view.epoch, observed.grant_epoch)), view.grant

    def _observed(self, job: Job[R], run: R) -> TrainingObserved:
        shape, story, (reason, message) = run.shape, run.story, run.trouble()
        return TrainingObserved(
            job=shape.policy.job, uid=shape.uid, revision=shape.revision, run=shape.run, state=run.state,
            members=run.statuses(), started_at=run.started_at, ended_at=run.ended_at, empty_at=run.empty_at,
            ending=run.ending, reports=story.reports, step=story.step, step_at=story.step_at,
            resumed_step=story.resumed_step, restore_bad=story.restore_bad, checkpoint=story.checkpoint,
            notice=story.notice, blocked=run.blocked, failures=job.failures, retry_at=job.retry_at, reason=reason,
            message=message, log_tail=run.log_tail, folder=self._hands.folder(shape),
        )  # fmt: skip


def _is_over(job: Job[R], uids: Collection[str]) -> bool:
    """Whether nothing of these declarations is left that could write into a folder."""
    last = job.last
    proven = last is None or last.uid not in uids or last.empty_at is not None
    return proven and not any(run.shape.uid in uids for run in job.runs)


def _never_begun(job: Job[R], grant: TrainingGranted, ending: Ending, now: Instant) -> TrainingObserved:
    """A run of which there never was a process."""
    before = job.last if job.last is not None and job.last.uid == grant.uid else None
    return TrainingObserved(
        job=grant.job, uid=grant.uid, revision=grant.revision, run=grant.run, state=RunState.ENDED, ended_at=now,
        empty_at=now, ending=ending, checkpoint=None if before is None else before.checkpoint,
    )  # fmt: skip


def _actual(job: Job[R], uid: str) -> Actual:
    mine = job.uid == uid
    return Actual(
        tuple(run.actual() for run in job.runs), job.begun if mine else 0, job.retry_at if mine else None, uid
    )  # fmt: skip
