"""Notices as signals: the handler sets a flag and nothing else, for a save inside a handler deadlocks in a collective.

SIGUSR1 (or what `RELUME_PREEMPT_SIGNAL` names) is the early notice; SIGTERM means that the grace is running already.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Callable

Handler = Callable[[signal.Signals], None]


class NotInMainThread(RuntimeError):
    """Python lets only the main thread install signal handlers."""


class SignalChannel:
    """Calls `heard` with the signal. Forked children (workers that load data) get neither handler nor notice."""

    def __init__(self, numbers: list[signal.Signals], heard: Handler) -> None:
        self._heard = heard
        self._before: dict[signal.Signals, object] = {}
        self._owner = os.getpid()
        for number in numbers:
            try:
                self._before[number] = signal.signal(number, self._handle)
            except ValueError as error:
                raise NotInMainThread(f"make the guard in the main thread of the program: {error}") from None
        os.register_at_fork(after_in_child=self._in_child)

    def close(self) -> None:
        """Give the signals back to whoever had them."""
        if os.getpid() == self._owner:
            for number, before in self._before.items():
                if signal.getsignal(number) == self._handle:
                    again = signal.SIG_DFL if before is None else before
                    signal.signal(number, again)  # type: ignore[arg-type]  # it takes what it gave
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        if os.getpid() == self._owner:
            self._heard(signal.Signals(number))

    def _in_child(self) -> None:
        """A worker must not die of the notice that a whole process group gets, and ends by SIGTERM as ever."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL if number is signal.SIGTERM else signal.SIG_IGN)
        self._before.clear()


def named(name: str) -> signal.Signals:
    """The signal of that name or number. Raises ValueError."""
    try:
        return signal.Signals[name] if not name.isdigit() else signal.Signals(int(name))
    except (KeyError, ValueError):
        raise ValueError(f"RELUME_PREEMPT_SIGNAL: {name!r} is no signal of this system; try SIGUSR1") from None
