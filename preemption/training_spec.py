"""Preemption's slice of a training job's declaration: what runs, on what, who may interrupt it, and how it is told."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from events.spec import Duration, Spec
from events.units import Seconds
from preemption.core.training import Channel, CheckpointPolicy, TrainingPolicy
from preemption.spec import Priority, ResourcesSpec

SIGNALS: Final = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGCONT", "SIGWINCH")
"""What a trainer can catch and may be told with: of POSIX, those that do not report a fault of the program itself."""

MOST_MEMBERS: Final = 1024
"""Members of one gang. Chosen: a grant names each, and must fit a record of the log (1 MiB) many times."""

OURS: Final = "RELUME_"
"""What the names of variables begin with that relume itself sets for a trainer."""


def _signal(name: str) -> str:
    if name in ("SIGKILL", "SIGSTOP"):
        raise ValueError(f"no program can catch {name}, so it would tell nothing; write SIGUSR1 or SIGUSR2")
    if name not in SIGNALS:
        raise ValueError(f"{name!r} is no signal to tell a trainer with; write one of {', '.join(SIGNALS)}")
    return name


def _folder(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("the folder is not absolute, and nothing says what it is relative to; begin it with /")
    return path


def _words(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command[0].strip():
        raise ValueError("the program's name is empty; write the program first, then its arguments")
    if any("\0" in word for word in command):
        raise ValueError("a word holds the character NUL, which no program can be given; remove it")
    return command


def _variables(environment: dict[str, str]) -> dict[str, str]:
    for name, text in environment.items():
        if name.startswith(OURS):
            raise ValueError(f"{name} is a name that relume sets by itself; choose one that does not begin with {OURS}")
        if "\0" in text:
            raise ValueError(f"{name} holds the character NUL, which no program can be given; remove it")
    return environment


def _once(channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    if len(set(channels)) < len(channels):
        raise ValueError("a channel is named twice; keep one")
    return channels


Signal = Annotated[str, AfterValidator(_signal), WithJsonSchema({"type": "string", "enum": list(SIGNALS)})]
"""The name of a signal that can be caught."""

Members = Annotated[int, Field(ge=1, le=MOST_MEMBERS)]
"""A number of processes."""

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ElasticitySpec(Spec):
    """Whether the job can go on with fewer members."""

    min_members: Members
    """With this many it goes on when others are taken from it; it is restarted with those that are left."""


class PreemptionSpec(Spec):
    """When the job may be made to yield."""

    protected: bool = False
    """true: it never has to yield, whatever needs its GPUs."""
    min_runtime: Duration = 0.0
    """How long each run is left alone at its beginning."""
    budget_per_hour: Annotated[int, Field(ge=1, le=3600)] = 6
    """How often within an hour it may have to yield."""


class CheckpointSpec(Spec):
    """The checkpoint contract: how the trainer is told, and how long its answers may take."""

    channels: Annotated[tuple[Channel, ...], AfterValidator(_once)] = (Channel.FILE, Channel.SIGNAL)
    """What carries the notice: file and http are read by the SDK; signal is for trainers that catch it themselves.
    Empty: the trainer learns of it by SIGTERM only, and its work since the start counts as lost."""
    signal: Signal = "SIGUSR1"
    """The signal of channel signal."""
    ack_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """From the notice to the trainer's first word; after it SIGTERM is sent."""
    save_timeout: Annotated[Duration, Field(gt=0)] = 120.0
    """From there to the committed checkpoint; after it SIGTERM is sent."""
    grace: Duration = 30.0
    """From SIGTERM to SIGKILL."""

    def resolve(self) -> CheckpointPolicy:
        """Plain numbers."""
        return CheckpointPolicy(
            channels=self.channels, signal=self.signal, ack=Seconds(self.ack_timeout),
            save=Seconds(self.save_timeout), grace=Seconds(self.grace),
        )  # fmt: skip


class TrainingSpec(Spec):
    """What a training job runs, and how it shares GPUs with models."""

    command: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_words)]
    """Program and arguments of one member, without a shell."""
    environment: Annotated[dict[VariableName, str], AfterValidator(_variables)] = Field(default_factory=dict)
    """Variables of its environment. Names that begin with RELUME_ are set by relume."""
    folder: Annotated[str, AfterValidator(_folder)] | None = None
    """Where its processes start, an absolute path. Absent: in a folder of the job's own."""
    resources: ResourcesSpec = ResourcesSpec()
    """What one member needs of the machine."""
    members: Members = 1
    """Processes of the gang: all run, or none."""
    elasticity: ElasticitySpec | None = None
    """Absent: the job runs with all its members or not at all."""
    priority: Priority = 0
    """Who goes first when there is too little; only strictly lower ones yield. Models have 100 by default."""
    preemption: PreemptionSpec = PreemptionSpec()
    """When it may be made to yield."""
    max_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """Failed runs in a row after which it is not started again by itself."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """How it is told to save, and how long that may take."""

    def resolve(self, job: str) -> TrainingPolicy:
        """Plain numbers of the job that is called `job`."""
        return TrainingPolicy(
            job=job,
            command=self.command,
            environment=self.environment,
            folder=self.folder or "",
            members=self.members,
            min_members=self.members if self.elasticity is None else self.elasticity.min_members,
            resources=self.resources.resolve(),
            priority=self.priority,
            protected=self.preemption.protected,
            min_run=Seconds(self.preemption.min_runtime),
            budget_per_hour=self.preemption.budget_per_hour,
            max_failures=self.max_failures,
            checkpoint=self.checkpoint.resolve(),
        )
