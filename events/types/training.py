"""Training jobs: what users declared, what may run, and what is. States of key ``training/NAME``."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Annotated

from annotated_types import Ge
from pydantic import JsonValue  # the type only: pydantic's name for "anything JSON can say"

from events.kinds import event, value
from events.names import Topic
from events.types.grants import Placement
from events.types.shared import Amount, At, Count, Resources


@event("relume.training.declared", Topic.MODELS)
class TrainingDeclared:
    """The declaration of a training job, whole.

    `uid` is new whenever a name is declared anew; `revision` counts up when what its processes are made of changes:
    then the next run has it, the present one goes on. `paused`: it must checkpoint and give its cards back until it is
    resumed. `cancelled`: it must end, but stays listed, and may be resumed. `deleted`: it must end for good, and is
    forgotten. `forgiven`: failures of runs up to this one count no more, since a person has it tried again. `purge`:
    with `deleted`, the folders that jobs of this name have of their own go too, with the checkpoints in them.
    """

    job: str
    uid: str
    revision: Annotated[int, Ge(1)]
    generation: Annotated[int, Ge(1)]
    spec: dict[str, JsonValue]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    paused: bool = False
    cancelled: bool = False
    deleted: bool = False
    forgiven: Count = 0
    purge: bool = False
    further: dict[str, JsonValue] = field(default_factory=dict)
    """Not on the wire: fields of a later release, kept for whoever writes this again (`events.further`)."""


class NoticeMode(StrEnum):
    """What a trainer is asked to do (the wire words of `preemption.trainer`)."""

    SAVE_AND_EXIT = "save_and_exit"
    SAVE_AND_CONTINUE = "save_and_continue"
    WITHDRAWN = "withdrawn"
    """The notice with this id no longer holds."""


class Stop(StrEnum):
    """How hard the processes of a run are told to end."""

    NOT = "not"
    TERMINATE = "terminate"
    """SIGTERM; the grace is running."""
    KILL = "kill"


@value
class NoticeGiven:
    """The notice that stands for a run. Equal `id`: the same one, however often it is told."""

    id: str
    deadline: At
    """By when a checkpoint must be committed."""
    mode: NoticeMode = NoticeMode.SAVE_AND_EXIT
    reason: str = ""


@value
class MemberGrant:
    """One process of the gang that may run. `member` is ``JOB-INDEX``; its rank is its place in the grant."""

    member: str
    placement: Placement
    resources: Resources


@event("relume.training.granted", Topic.GRANTS)
class TrainingGranted:
    """All that a training job may run now; the adapter makes the machine match it, and nothing else.

    `run` counts up with each start of the whole gang: what still runs of an earlier run must end. No members: nothing
    may run. `stop` and `notice` are of this run, and stand until the grant says otherwise: telling them again means
    nothing new. `reasons` are enum values of the allocator; `message` says in a sentence why it waits. `first_run`: the
    first run of this `uid`, or what that will be, since runs are counted by name; 0: not known (older records).
    """

    job: str
    uid: str
    revision: Count
    run: Count
    members: tuple[MemberGrant, ...] = ()
    notice: NoticeGiven | None = None
    stop: Stop = Stop.NOT
    reasons: tuple[str, ...] = ()
    message: str = ""
    first_run: Count = 0


class RunState(StrEnum):
    """The life of a run."""

    STARTING = "Starting"
    """Told to start; not all processes exist yet."""
    RUNNING = "Running"
    ENDED = "Ended"
    """No process of it is left that we know of. Its cards may still be in use: see `empty_at`."""


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    """It said that it is done, or, without the SDK, ended with code 0."""
    SAVED = "saved"
    """Code 75: it left behind a checkpoint, and goes on when it is started again."""
    FAILED = "failed"
    """Any other end, also code 0 of a trainer with the SDK that did not say that it had finished."""
    TOLD = "told"
    """It ended by the signal that we sent, without a checkpoint of after the notice."""
    LOST = "lost"
    """Its processes are not there any more and nobody knows how they ended."""


@value
class MemberStatus:
    """One process of a run, or what it held while its cards are not seen empty."""

    member: str
    node: str
    gpus: tuple[str, ...] = ()
    resources: Resources = Resources()
    pid: Count | None = None
    exit_code: int | None = None
    """Minus the number of the signal that ended it."""


@value
class CheckpointStatus:
    """A committed checkpoint: all of `step` completed steps are in it. `verified`: its manifest and sizes were read and
    fit (empty `manifest`: a trainer's bare word)."""

    step: Count
    at: At
    path: str = ""
    manifest: str = ""
    size: Count = 0
    seconds: Amount = 0.0
    """How long the save took."""
    verified: bool = False


@value
class NoticeStatus:
    """What the trainer said to the notice `id`. `eta`: seconds that it thought its save would take. `progress`: bytes
    written so far. `saved_step`: of the checkpoint that was committed after the notice; it counts once it was verified.
    """

    id: str
    heard_at: At | None = None
    eta: Amount | None = None
    progress: Count = 0
    progress_at: At | None = None
    saved_step: Count | None = None
    failed: str = ""
    """Why it could not save; empty when it did not say so."""
    continued_at: At | None = None
    """When it went on, after a withdrawal or after `save_and_continue`."""


@event("relume.training.observed", Topic.REPLICAS)
class TrainingObserved:
    """A training job as the cluster adapter sees it: its newest run.

    `empty_at`: when, after the end, its cards were seen free of every process of it; until then nobody may get them.
    `step`: completed steps, the newest that was told. `resumed_step`: where this run began (0: at the beginning);
    None: it has not said. `restore_bad`: this run could not load a checkpoint and fell back. `reports`: whether it has
    said anything at all, so whether it has the SDK. `blocked`: why it cannot be made to end by force now, such as a
    disruption budget; empty: it can, as far as is known. `failures` counts runs that failed in a row; while above zero,
    `retry_at` is when another one makes sense. `folder`: where its processes start, if that is known here.
    """

    job: str
    uid: str
    revision: Count
    run: Count
    state: RunState
    members: tuple[MemberStatus, ...] = ()
    started_at: At | None = None
    ended_at: At | None = None
    empty_at: At | None = None
    ending: Ending | None = None
    reports: bool = False
    step: Count | None = None
    step_at: At | None = None
    resumed_step: Count | None = None
    restore_bad: bool = False
    checkpoint: CheckpointStatus | None = None
    notice: NoticeStatus | None = None
    blocked: str = ""
    failures: Count = 0
    retry_at: At | None = None
    reason: str = ""
    message: str = ""
    log_tail: tuple[str, ...] = ()
    folder: str = ""
    grant_epoch: Count = 0


@event("relume.checkpoint.committed", Topic.PHASES)
class CheckpointCommitted:
    """A training job has committed a checkpoint. `notice`: the id of the notice that asked for it, or empty."""

    job: str
    run: Count
    checkpoint: CheckpointStatus
    notice: str = ""


@event("relume.checkpoint.failed", Topic.PHASES)
class CheckpointFailed:
    """A training job could not save, or a checkpoint that it told of is not whole."""

    job: str
    run: Count
    step: Count
    message: str
    notice: str = ""
