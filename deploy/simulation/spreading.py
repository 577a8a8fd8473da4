"""Work spread over processes that live no longer than who asked for it.

Each has a line of its own, so that one that dies in the middle of a word is seen to be gone. All of them hold the end
of one more pipe, whose other end is here: when this process dies, however it dies, they end in the middle of whatever
they do. Ctrl-C is for this process alone. What they print goes to standard error: standard output is for answers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TypeVar

Task = TypeVar("Task")
Done = TypeVar("Done")


class ProcessDied(Exception):
    """One of the processes was ended from outside, for its memory most likely, or by what it ran."""


@contextmanager
def spread(
    do: Callable[[Task], Done], tasks: Sequence[Task], processes: int, begin: Callable[[], None] | None = None
) -> Iterator[Iterator[tuple[int, Done]]]:
    """What came of each task, with its place among them, as they are done. `begin` is called first in each process.
    Raises what `do` raises, and ProcessDied. On leaving, what still runs is ended."""
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    started, lines = [], []
    try:
        with _uninterrupted():  # what is started here is never interrupted: it inherits that
            for _ in range(min(processes, len(tasks))):
                line, end = context.Pipe()
                lines.append(line)
                process = context.Process(target=_work, args=(do, begin, end, theirs))
                process.start()
                started.append(process)
                end.close()
        theirs.close()
        yield _done(tasks, lines)
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.join()
        for line in (*lines, ours, theirs):
            line.close()


def _done(tasks: Sequence[Task], lines: Sequence[Connection]) -> Iterator[tuple[int, Done]]:
    """Give each line a task, and another one with each answer."""
    waiting = deque(enumerate(tasks))
    try:
        for line in lines:
            line.send(waiting.popleft())
        for _ in tasks:
            ready = wait(lines)[0]
            assert isinstance(ready, Connection)
            at, error, answer = ready.recv()
            if waiting and error is None:
                ready.send(waiting.popleft())
            if error is not None:
                raise error
            yield at, answer
    except (EOFError, ConnectionError) as error:
        raise ProcessDied("a process of the replay was ended, for its memory or by a policy of one's own") from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    resource_tracker.ensure_running()  # which would end what begins here
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(do: Callable[[Task], Done], begin: Callable[[], None] | None, line: Connection, life: Connection) -> None:
    """What each process does."""
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # nothing is left in a buffer
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    if begin is not None:
        begin()
    while True:
        try:
            at, task = line.recv()
        except EOFError:
            return
        try:
            told = (at, None, do(task))
        except Exception as error:  # noqa: BLE001 - it is raised where the task came from
            error.add_note(traceback.format_exc())
            line.send((at, error, None))
        else:
            line.send(told)


def _end_with(life: Connection) -> None:
    """Nothing is ever sent: there is something to read only when the other end is closed."""
    life.poll(None)
    os._exit(0)
