"""A process that imports a framework once, and forks a training for each order: so a start takes no seconds of imports.

python -m tests.trainers.nursery MODULE, orders as JSON lines on its standard input, an answer each on its output:

    {"start": {…job…}, "environment": {…}, "log": PATH}   → its process id
    {"wait": ID, "seconds": S}                            → its exit code as `subprocess` has it; null: it still runs

At the end of the input whatever still runs is killed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from types import ModuleType
from typing import Any

from tests.trainers.jobs.job import Job

LOOK = 0.005


class Born(Exception):
    """Raised in the child, to leave the loop of its parent: what it is to do."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job


def serve() -> None:
    """Obey orders until there are no more. Raises Born in each child."""
    running: set[int] = set()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            answer = start(order, running) if "start" in order else wait(order["wait"], order["seconds"], running)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    except Born:
        running.clear()
        raise
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)


def start(order: dict[str, Any], running: set[int]) -> int:
    """Fork. Raises Born in the child."""
    child = os.fork()
    if child:
        running.add(child)
        return child
    os.environ.update(order["environment"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    raise Born(Job(**order["start"]))


def wait(child: int, seconds: float, running: set[int]) -> int | None:
    """The exit code, if it comes in time."""
    for _ in range(max(1, int(seconds / LOOK))):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            running.discard(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(LOOK)
    return None


def main(module: ModuleType) -> None:
    job: Job | None = None
    try:
        serve()
    except Born as born:
        job = born.job
    if job is not None:
        module.run(job)


if __name__ == "__main__":
    main(importlib.import_module(sys.argv[1]))
