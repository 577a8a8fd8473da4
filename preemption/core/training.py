"""What a training job is, in plain numbers: what its declaration comes to. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from events.types.shared import Resources
from events.units import Seconds


class Channel(StrEnum):
    """How a notice reaches a trainer."""

    FILE = "file"
    """A file that the SDK looks at several times a second."""
    HTTP = "http"
    SIGNAL = "signal"
    """The declared signal; for trainers that handle it themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """The checkpoint contract: what a trainer is told with, and how long each answer may take (seconds).

    `ack`: from the notice to the first word. `save`: from there to the commit. `grace`: from SIGTERM to SIGKILL.
    """

    channels: tuple[Channel, ...] = (Channel.FILE, Channel.SIGNAL)
    signal: str = "SIGUSR1"
    ack: Seconds = Seconds(10.0)
    save: Seconds = Seconds(120.0)
    grace: Seconds = Seconds(30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPolicy:
    """A training job as declared.

    `members` processes, each with `resources`, all or none; with at least `min_members` it goes on when others are
    taken from it (equal to `members`: it is not elastic). `min_run`: seconds that a run is left alone at the beginning.
    `budget_per_hour`: how often it may have to yield. `protected`: it never has to. `max_failures`: failed runs in a
    row after which it is not started again by itself. `folder`: where its processes start; empty: in one of their own.
    """

    job: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    members: int = 1
    min_members: int = 1
    resources: Resources = field(default_factory=Resources)
    priority: int = 0
    protected: bool = False
    min_run: Seconds = Seconds(0.0)
    budget_per_hour: int = 6
    max_failures: int = 5
    checkpoint: CheckpointPolicy = field(default_factory=CheckpointPolicy)
