"""The JSON shapes of training jobs and reclaims. As in `shapes`: unknown numbers are null, which is not zero."""

from __future__ import annotations

from enum import StrEnum

from pydantic import JsonValue

from deploy.api.shapes import Metadata, Shape


class TrainingState(StrEnum):
    """What a training job is doing."""

    PENDING = "Pending"
    """It has nothing to run on yet, or waits to be tried again after a failure."""
    STARTING = "Starting"
    RUNNING = "Running"
    SAVING = "Saving"
    """It was told to give its GPUs back, and saves."""
    PARKED = "Parked"
    """It gave its GPUs back and goes on when there are some again."""
    PAUSED = "Paused"
    FINISHED = "Finished"
    FAILED = "Failed"
    """It failed so often in a row that it is not started again by itself."""
    CANCELLED = "Cancelled"


class CheckpointShape(Shape):
    """The newest committed checkpoint."""

    step: int
    """All of so many completed steps are in it."""
    at: str
    path: str
    verified: bool
    """Its manifest and the sizes of its files were read and fit."""
    size: int
    """Bytes."""
    seconds: float
    """How long the save took."""


class NoticeShape(Shape):
    """What the job is told now, and what its trainer said to it."""

    id: str
    mode: str
    """save_and_exit or save_and_continue."""
    reason: str
    deadline: str
    heard_at: str | None
    eta: float | None
    """Seconds that the trainer thought its save would take."""
    progress: int | None
    """Bytes written so far."""
    saved_step: int | None
    failed: str


class MemberShape(Shape):
    """One process of the newest run."""

    name: str
    node: str
    gpus: list[str]
    pid: int | None
    exit_code: int | None
    """Minus the number of the signal that ended it."""


class Goodput(Shape):
    """What became of the GPU-seconds that training held."""

    ratio: float | None
    """The share that went into steps that are kept: committed, or of a run that goes on. Null when none were held."""
    held_gpu_seconds: float
    """All of them: the sum of the parts, exactly."""
    gpu_seconds: dict[str, float]
    """By part: kept, going; and lost to restore, since_commit, save, barrier, stop, drain."""


class UsualTime(Shape):
    """How long something usually takes: the middle of what was seen."""

    seconds: float
    seen: int
    """Of so many times; with `alike`, of so many jobs."""
    alike: bool
    """The job itself has not shown it yet: this is what jobs do whose members take the same of GPUs."""


class TrainingStatus(Shape):
    """What a training job is doing, and why."""

    state: TrainingState
    reason: str = ""
    """One word, where there is something to say."""
    message: str = ""
    """The same for people."""
    run: int
    """Counts up with each start of the whole gang, by name: a job declared under a deleted one's name goes on from its
    runs. 0: it was not started yet."""
    members: int
    """Processes that it is declared with."""
    granted_members: int | None
    """Processes that the allocator allows."""
    ready_members: int
    """Processes that run."""
    processes: list[MemberShape]
    step: int | None
    """Completed steps, as far as its trainer has told."""
    step_at: str | None
    resumed_step: int | None
    """Where this run began; null when it has not said."""
    reports: bool
    """Whether its trainer tells anything: without that, all work since its start counts as lost."""
    checkpoint: CheckpointShape | None
    notice: NoticeShape | None
    restarts: int
    """Starts after the first one, since it was declared."""
    failures: int
    """Runs that failed in a row."""
    retry_at: str | None
    """When it is tried again after a failure."""
    preemptions: int
    """How often it gave its GPUs away, of the reclaims that are still shown."""
    usual_save: UsualTime | None
    """How long a save that it is asked for usually takes; null: not seen yet, and what the pool assumes counts."""
    usual_restore: UsualTime | None
    """Likewise from being granted GPUs again to its first new step."""
    gpu_seconds_lost: dict[str, float]
    """What those have cost, by cause: since_commit, save, stop, drain, claim, restore."""
    goodput: Goodput
    """What it did with the GPUs that it held, since it was declared."""
    started_at: str | None
    """When the newest run began."""
    ended_at: str | None
    folder: str
    """Where its processes start, and what they save by a relative path is; empty: not known. If relume made it, it
    stays when the job is deleted, unless that is asked for (`purge`)."""
    empty_at: str | None
    """When its GPUs were seen free of it after that."""
    ending: str | None
    """How the newest run ended: finished, saved, failed, told or lost."""
    log_tail: list[str]
    """Last lines of a run that failed."""


class TrainingItem(Shape):
    """A declared training job."""

    metadata: Metadata
    spec: dict[str, JsonValue]
    status: TrainingStatus


class TrainingList(Shape):
    """Declared training jobs, by name."""

    items: list[TrainingItem]
    goodput: Goodput
    """Of all of them together."""


class ReclaimMetadata(Shape):
    """Which reclaim."""

    name: str
    """Its id."""


class ReclaimSpec(Shape):
    """Whose GPUs are taken, and for whom."""

    job: str
    run: int
    members: list[str]
    """Which of its gang yield: all, unless it shrinks."""
    shortage: str
    """The model that lacks them."""
    cards: list[str]


class ReclaimStepShape(Shape):
    """One change of state."""

    at: str
    happened: str
    state: str


class ReclaimVerdictShape(Shape):
    """Why one job was taken, or was not, with the numbers that said so."""

    job: str
    why: str
    numbers: dict[str, float]


class ReclaimLedgerShape(Shape):
    """What it has cost so far."""

    gpus: float
    lost: dict[str, float]
    """GPU-seconds by cause: since_commit, save, stop, drain, claim, restore."""
    stages: dict[str, float]
    """Seconds from the demand to the GPU usable, by stage: plan, ack, save, stop, drain, bind."""
    steps_lost: int | None


class ReclaimStatus(Shape):
    """How far a reclaim is, and what it cost."""

    state: str
    message: str
    job: str
    shortage: str
    cause: str
    """Why the job had to end: shortage, person (it was paused, cancelled, deleted or declared anew), grows (there is
    room for more of its members), or cards_gone."""
    shortage_since: str
    """Since when the model lacks what the cards are for."""
    cards: list[str]
    since: str
    """Since when it is in this state."""
    due: str
    """By when the cards are needed."""
    deadline: str | None
    """When this state has lasted long enough; null: for ever."""
    ended: bool
    checkpoint_step: int | None
    """Of the checkpoint that was proven; null: none."""
    manifest: str
    cost: float
    """What it was estimated to cost when it was planned, in A100-seconds."""
    ledger: ReclaimLedgerShape
    history: list[ReclaimStepShape]
    verdicts: list[ReclaimVerdictShape]


class ReclaimItem(Shape):
    """An attempt to take the GPUs of a training job for a model."""

    metadata: ReclaimMetadata
    spec: ReclaimSpec
    status: ReclaimStatus


class ReclaimList(Shape):
    """Reclaims, the newest last."""

    items: list[ReclaimItem]
    goodput: Goodput
    """Of all training jobs that are listed, together: reclaims are a part of what it lacks."""
    before: str | None
    """There are older ones since the time that was asked for: ask again with this as `until`. Null: there are not."""


class ReclaimExplanation(Shape):
    """A reclaim in sentences."""

    id: str
    sentences: list[str]
