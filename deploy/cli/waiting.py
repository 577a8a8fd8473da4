"""`--wait`: progress bars of starts, phase by phase, until models and training jobs have settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.output import moment, seconds
from events.clock import SystemClock

LOOK_EVERY: Final = 0.25
"""Seconds between two looks: for eyes; nothing is decided on it."""

Status = dict[str, Any]
Item = Mapping[str, Any]
Show = Callable[[str, Status], None]


PATHS: Final = {"Model": "models", "TrainingJob": "training"}
"""Where things of each kind are asked for."""

DESCRIBED: Final = {"Model": "relume describe model", "TrainingJob": "relume train describe"}

JOBS_SETTLED: Final = frozenset({"Running", "Finished", "Paused", "Cancelled"})


def wait_until_settled(connection: Connection, applied: Sequence[Item], timeout: float) -> None:
    """Return when each model is ready with its least replicas, or at zero where it may be, and each training job runs,
    has finished, or was paused; Refused when one fails. `applied`: answers about documents, with kind and metadata."""
    waiting = list(dict.fromkeys((one["kind"], one["metadata"]["name"]) for one in applied if one["kind"] in PATHS))
    clock = SystemClock()
    end = clock.now() + timeout
    with _display() as show:
        while waiting:
            for kind, name in list(waiting):
                item = connection.get(f"/v1alpha1/{PATHS[kind]}/{segment(name)}")
                show(name, item["status"])
                if settled(item) if kind == "Model" else job_settled(item):
                    waiting.remove((kind, name))
            if waiting and clock.now() >= end:
                raise Refused(
                    f"not settled within {seconds(timeout)}: {', '.join(name for _, name in waiting)}",
                    remedy=f"{DESCRIBED[waiting[0][0]]} {waiting[0][1]}",
                )
            if waiting:
                time.sleep(LOOK_EVERY)


def job_settled(item: dict[str, Any]) -> bool:
    """Whether there is nothing to wait for. Refused when the job failed for good."""
    status, name = item["status"], item["metadata"]["name"]
    if status["state"] == "Failed":
        raise Refused(f"training job {name} failed: {status['message'] or status['reason']}",
                      remedy=f"relume train logs {name}")  # fmt: skip
    return status["state"] in JOBS_SETTLED


def settled(item: dict[str, Any]) -> bool:
    """Whether there is nothing to wait for. Refused when the model failed."""
    status = item["status"]
    name = item["metadata"]["name"]
    if status["state"] == "Failed":
        raise Refused(f"model {name} failed: {status['message'] or status['reason']}",
                      remedy=f"relume logs {name}")  # fmt: skip
    least = item["spec"].get("scaling", {}).get("minReplicas", 0)
    if least:
        return bool(status["readyReplicas"] >= least)
    return status["state"] in {"Zero", "Ready"}


def progress_of(status: Status, now: datetime) -> tuple[float | None, str]:
    """How much of the start is done, 0 to 1 (None: nobody knows), and words: the phase, the time left.

    What a start takes is known from the last one of the model.
    """
    if "readyMembers" in status:  # a training job's: nobody knows how long it waits for GPUs
        return (1.0 if status["state"] in JOBS_SETTLED else None), status["message"] or status["state"]
    if status["state"] in {"Ready", "Zero"}:
        return 1.0, f"{status['state']}, {status['readyReplicas']} ready"
    start = status.get("lastStart")
    if not status["startingReplicas"] or not start:
        return None, status["message"] or status["state"]
    spent = (now - datetime.fromisoformat(start["phases"][0]["startedAt"])).total_seconds()
    phase = start["phases"][-1]["phase"]
    expected = status.get("expectedStartSeconds")
    if not expected:
        return None, f"{phase}, {seconds(spent)} so far"
    left = max(0.0, expected - spent)
    return min(0.99, spent / expected), f"{phase}, about {seconds(left)} left" if left else f"{phase}, any moment"


@contextmanager
def _display() -> Iterator[Show]:
    """Bars on a terminal; elsewhere a line whenever the words change. Both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last: dict[str, str] = {}

        def line(name: str, status: Status) -> None:
            words = f"{name}: {status['state']}{' - ' + status['message'] if status['message'] else ''}"
            if last.get(name) != words:
                last[name] = words
                console.print(words, markup=False, highlight=False, soft_wrap=True)

        yield line
        return
    names = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=12))
    words_column = TextColumn(
        "{task.fields[words]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    columns = (names, BarColumn(bar_width=20), TimeElapsedColumn(), words_column)
    with Progress(*columns, console=console, expand=True) as progress:
        tasks: dict[str, Any] = {}

        def bar(name: str, status: Status) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=1.0, words="")
            done, words = progress_of(status, moment())
            progress.update(tasks[name], total=None if done is None else 1.0, completed=done or 0.0, words=words)

        yield bar
