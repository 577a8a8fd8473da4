"""A make-believe cluster adapter for training jobs: does what a grant says, as the local one would, on a given clock.

Pure: `Trainer` says how its processes behave, `Run` is what became of them, `TrainingAdapter` answers grants.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from events.types.training import (
    CheckpointStatus,
    Ending,
    MemberStatus,
    NoticeMode,
    NoticeStatus,
    RunState,
    Stop,
    TrainingGranted,
    TrainingObserved,
)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a trainer behaves; seconds and steps. `every`: steps between its own checkpoints. `steps`: of the whole job.

    `hears`, `saves`: None: it never does. `exits`: from the commit to the end. `ends`: from SIGTERM; None: it ignores
    it. `dies`: from SIGKILL; None: it cannot be killed. `empties`: from the end to cards seen empty. `spoils`: whether
    a run cannot load the newest checkpoint and says so.
    """

    sdk: bool = True
    step_time: float = 1.0
    steps: int = 1_000_000
    every: int = 60
    load: float = 2.0
    hears: float | None = 0.2
    saves: float | None = 4.0
    exits: float = 0.3
    ends: float | None = 1.0
    dies: float | None = 0.2
    empties: float | None = 0.5
    spoils: bool = False


@dataclass
class Run:
    """One run of a job: what its processes are at."""

    grant: TrainingGranted
    began: float
    begins_at: int
    checkpoint: CheckpointStatus | None
    step: int
    ready_at: float
    heard_at: float | None = None
    saved_at: float | None = None
    saved_step: int | None = None
    continued_at: float | None = None
    told_at: float | None = None
    killed_at: float | None = None
    ended_at: float | None = None
    ending: Ending | None = None
    empty_at: float | None = None
    notice: str = ""
    noticed_at: float | None = None
    withdrawn: bool = False
    spoke: bool = False
    """Whether it has said anything: it has the SDK, and has loaded."""


@dataclass
class SimulatedJob:
    """A job on the adapter: its trainer, its newest run, what it committed."""

    name: str
    trainer: Trainer
    run: Run | None = None
    failures: int = 0
    retry_at: float | None = None
    checkpoint: CheckpointStatus | None = None
    signals: list[tuple[int, str]] = field(default_factory=list)
    """(run, what its processes were really told): notice, withdrawn, terminate, kill."""
    budget: str = ""
    """Why it must not be ended by force; empty: it may."""
    blocked: str = ""
    """What was told of that, when somebody tried."""

    def take(self, grant: TrainingGranted, now: float) -> None:
        """Make it so. Being told again changes nothing."""
        run = self.run
        if grant.members and (run is None or grant.run > run.grant.run):
            self.run = run = self._begin(grant, now)
        if run is None or grant.run < run.grant.run:
            return
        if not grant.members and run.ended_at is None:
            self._kill(run, now)
        if grant.run == run.grant.run:
            run.grant = grant if grant.members else run.grant
            self._tell(run, grant, now)

    def move(self, now: float) -> None:
        """What its processes have done until now."""
        run = self.run
        if run is None:
            return
        if run.ended_at is None:
            run.spoke = run.spoke or (self.trainer.sdk and now >= run.ready_at)
            self._train(run, now)
            self._follow_notice(run, now)
            self._end(run, now)
        trainer = self.trainer
        if run.ended_at is not None and run.empty_at is None and trainer.empties is not None:
            run.empty_at = run.ended_at + trainer.empties if now >= run.ended_at + trainer.empties else None

    def crash(self, now: float, ending: Ending = Ending.FAILED) -> None:
        """Its processes end by themselves."""
        if self.run is not None and self.run.ended_at is None:
            self._ended(self.run, now, ending)

    def observed(self) -> TrainingObserved | None:
        """What the adapter says of it."""
        run = self.run
        if run is None:
            return None
        grant = run.grant
        state = RunState.RUNNING if run.ended_at is None else RunState.ENDED
        members = tuple(
            MemberStatus(member=m.member, node=m.placement.node, gpus=m.placement.gpus, resources=m.resources)
            for m in grant.members
        )
        return TrainingObserved(
            job=self.name, uid=grant.uid, revision=grant.revision, run=grant.run, state=state, members=members,
            started_at=run.began, ended_at=run.ended_at, empty_at=run.empty_at, ending=run.ending, reports=run.spoke,
            step=run.step if run.spoke else None, step_at=run.began + 0.001 if run.spoke else None,
            resumed_step=run.begins_at if run.spoke else None, checkpoint=self.checkpoint, notice=_notice(run),
            failures=self.failures, retry_at=self.retry_at, blocked=self.blocked,
            restore_bad=self.trainer.spoils and run.spoke and run.begins_at > 0,
        )  # fmt: skip

    def _begin(self, grant: TrainingGranted, now: float) -> Run:
        at = 0 if self.checkpoint is None else self.checkpoint.step
        return Run(grant, now, at, self.checkpoint, at, now + self.trainer.load)

    def _tell(self, run: Run, grant: TrainingGranted, now: float) -> None:
        if run.ended_at is not None:
            return
        notice = grant.notice
        if notice is not None and notice.mode is NoticeMode.WITHDRAWN:
            if run.notice == notice.id and not run.withdrawn:
                run.withdrawn = True
                self.signals.append((grant.run, "withdrawn"))
                run.continued_at = now if run.saved_at is None and self.trainer.hears is not None else None
        elif notice is not None and notice.id != run.notice:
            run.notice, run.noticed_at, run.withdrawn = notice.id, now, False
            run.heard_at = run.saved_at = run.saved_step = run.continued_at = None
            self.signals.append((grant.run, "notice"))
        if grant.stop is not Stop.NOT and self.budget:
            self.blocked = self.budget
            return
        if grant.stop is not Stop.NOT and run.told_at is None:
            run.told_at = now
            self.signals.append((grant.run, "terminate"))
        if grant.stop is Stop.KILL:
            self._kill(run, now)

    def _kill(self, run: Run, now: float) -> None:
        if run.killed_at is None:
            run.killed_at = now
            self.signals.append((run.grant.run, "kill"))

    def _train(self, run: Run, now: float) -> None:
        """Steps are made until it saves for a notice, or is told to end."""
        trainer = self.trainer
        halted = run.heard_at if run.heard_at is not None and not run.withdrawn else None
        until = min(now, now if halted is None else halted, now if run.told_at is None else run.told_at)
        made = max(0, int((until - run.ready_at) / trainer.step_time))
        step = min(trainer.steps, max(run.step, run.begins_at + made))
        if trainer.sdk and trainer.every and step // trainer.every > run.step // trainer.every:
            self._commit(run, step // trainer.every * trainer.every, now)
        run.step = step

    def _follow_notice(self, run: Run, now: float) -> None:
        trainer = self.trainer
        if run.noticed_at is None or trainer.hears is None or not trainer.sdk or run.withdrawn:
            return
        heard = max(run.noticed_at, run.ready_at) + trainer.hears
        if run.heard_at is None and now >= heard:
            run.heard_at = heard
        if run.heard_at is None or run.saved_at is not None or trainer.saves is None or run.told_at is not None:
            return
        if now >= run.heard_at + trainer.saves:
            run.saved_at, run.saved_step = run.heard_at + trainer.saves, run.step
            self._commit(run, run.step, now)

    def _end(self, run: Run, now: float) -> None:
        trainer = self.trainer
        if run.saved_at is not None and now >= run.saved_at + trainer.exits:
            self._ended(run, run.saved_at + trainer.exits, Ending.SAVED)
        elif run.killed_at is not None and trainer.dies is not None and now >= run.killed_at + trainer.dies:
            self._ended(run, run.killed_at + trainer.dies, Ending.TOLD)
        elif run.told_at is not None and trainer.ends is not None and now >= run.told_at + trainer.ends:
            self._ended(run, run.told_at + trainer.ends, Ending.TOLD)
        elif run.step >= trainer.steps:
            self._ended(run, now, Ending.FINISHED)

    def _ended(self, run: Run, at: float, ending: Ending) -> None:
        run.ended_at, run.ending = at, ending
        self.failures = self.failures + 1 if ending is Ending.FAILED else 0
        self.retry_at = at + 2.0**self.failures if self.failures else None

    def _commit(self, run: Run, step: int, now: float) -> None:
        if self.checkpoint is None or step >= self.checkpoint.step:
            self.checkpoint = CheckpointStatus(
                step=step, at=now, path=f"/ckpt/{step}", manifest=f"m{step}", seconds=self.trainer.saves or 1.0,
                verified=True,
            )  # fmt: skip


def _notice(run: Run) -> NoticeStatus | None:
    if not run.notice or run.noticed_at is None:
        return None
    return NoticeStatus(
        id=run.notice, heard_at=run.heard_at, progress_at=run.heard_at, saved_step=run.saved_step,
        continued_at=run.continued_at,
    )  # fmt: skip


class TrainingAdapter:
    """All jobs of the make-believe cluster."""

    def __init__(self) -> None:
        self.jobs: dict[str, SimulatedJob] = {}
        self.epoch = 0

    def add(self, name: str, trainer: Trainer) -> None:
        self.jobs[name] = SimulatedJob(name, trainer)

    def change(self, name: str, **fields: object) -> None:
        job = self.jobs[name]
        job.trainer = replace(job.trainer, **fields)  # type: ignore[arg-type]  # tests name real fields

    def take(self, grant: TrainingGranted, epoch: int, now: float) -> None:
        """Follow a grant, unless a deposed leader wrote it."""
        if epoch >= self.epoch:
            self.epoch = epoch
            self.jobs[grant.job].take(grant, now)

    def move(self, now: float) -> list[TrainingObserved]:
        """What is seen now of all jobs."""
        for job in self.jobs.values():
            job.move(now)
        return [seen for job in self.jobs.values() if (seen := job.observed()) is not None]
