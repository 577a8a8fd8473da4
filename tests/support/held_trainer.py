"""Holds a small trainer in one state of a reclaim while a test looks: it is never a matter of who is faster."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.small_trainer import HOLDS_SAVE
from tests.support.standing_still import freeze

SMALL = Path(__file__).with_name("small_trainer.py")


@contextlib.contextmanager
def held_in(state: str, folder: Path) -> Iterator[None]:
    """While inside, the reclaim of the trainer of `folder` does not leave this state by the trainer's doing:
    `notified`: it stands still and hears nothing; `saving`: its save does not end. Others are not the trainer's."""
    hold = {"notified": _deaf, "saving": _saves}.get(state, contextlib.nullcontext)
    with hold(folder):
        yield


@contextlib.contextmanager
def _deaf(folder: Path) -> Iterator[None]:
    wanted = [str(SMALL), str(folder)]
    found = [one.pid for one in psutil.process_iter(["cmdline"]) if (one.info["cmdline"] or [])[1:3] == wanted]
    assert found, f"no trainer of {folder} runs"
    for pid in found:
        freeze(pid)
    try:
        yield
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _saves(folder: Path) -> Iterator[None]:
    hold = folder / HOLDS_SAVE
    hold.touch()
    try:
        yield
    finally:
        hold.unlink()
