"""What a guard is told: by its caller, and by the environment in which relume starts a trainer."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from preemption.trainer.channels.signals import named
from preemption.trainer.report import TERMINATION_LOG

EX_TEMPFAIL = 75
"""Exit code "not finished, start me again" (sysexits.h). 0 would look finished, 143 like any death by SIGTERM."""

TERM_GRACE = 30.0
"""Seconds that a SIGTERM is taken to leave (Kubernetes' and torchrun's default)."""


@dataclass(frozen=True)
class Channels:
    """Where notices come in. Nothing is listened to that is not named here."""

    signals: list[signal.Signals] = field(default_factory=lambda: [signal.SIGUSR1, signal.SIGTERM])
    notice_file: Path | None = None
    annotations_file: Path | None = None
    http: tuple[str, int] | None = None
    http_token: str | None = None
    report_file: Path | None = None
    termination_log: Path = TERMINATION_LOG
    """Where the last word goes too, if that file is there."""


def from_environment(environment: Mapping[str, str] | None = None) -> Channels:
    """The channels that `RELUME_…` variables name. Raises ValueError for one that cannot be meant."""
    env = os.environ if environment is None else environment
    early = named(env.get("RELUME_PREEMPT_SIGNAL", "SIGUSR1"))
    return Channels(
        signals=[early] if early is signal.SIGTERM else [early, signal.SIGTERM],
        notice_file=_path(env, "RELUME_NOTICE_FILE"),
        annotations_file=_path(env, "RELUME_ANNOTATIONS_FILE"),
        http=_address(env.get("RELUME_NOTICE_LISTEN", "")),
        http_token=env.get("RELUME_NOTICE_TOKEN"),
        report_file=_path(env, "RELUME_REPORT_FILE"),
        termination_log=_path(env, "RELUME_TERMINATION_LOG") or TERMINATION_LOG,
    )


@dataclass(frozen=True)
class GuardSettings:
    """How often to save, how much to keep, how long to wait for other ranks."""

    every_steps: int | None = None
    """Save after so many steps; None: only when told."""
    keep: int = 2
    """Whole checkpoints kept; at least 2."""
    exit_code: int = EX_TEMPFAIL
    patience: float = 600.0
    """Seconds to wait for another rank at a meeting (a slow save included) before the run is given up."""
    verify_content: bool = False
    """At resume, compare the files' SHA-256 too, and not only their sizes: reads everything once."""

    def __post_init__(self) -> None:
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps: at least 1, or None to save only when told; not {self.every_steps}")
        if not 1 <= self.exit_code <= 255:
            raise ValueError(f"exit_code: 1 to 255, for 0 would look finished; not {self.exit_code}")


def _path(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(f"RELUME_NOTICE_LISTEN: HOST:PORT, such as 127.0.0.1:8090, not {text!r}")
    return (host or "127.0.0.1", int(port))
