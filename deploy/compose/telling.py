"""What the admin port asks of the process, answered: explanations, readiness, numbers, and what other processes do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from autoscaler.explain import Records, explain
from deploy.api.board import Board, ModelBoard
from deploy.api.ports import Explanation, ModelTraffic, Reading, Traffic
from deploy.api.problem import ProblemError, refuse
from deploy.compose.eventlog import OpenLog
from deploy.compose.part import Part, readings
from events.clock import Clock
from events.types.requests import Levels
from events.units import Instant, Seconds

FRESH = Seconds(5.0)
"""A gateway unseen for so long is dead and leaves the sums (design §4)."""


class BoardExplainer:
    """Explains from the records that the admin port's board holds; `board` is asked for late, since it holds us."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self._board = board

    def explain(self, model: str) -> Explanation | None:
        """See `deploy.api.ports.Explainer`."""
        entry = self._board().entry(model)
        if entry is None or entry.wish is None:
            return None
        told = explain(Records(entry.wish, entry.grant, entry.observed, entry.declared))
        return Explanation(sentences=told.sentences, facts=told.facts)


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests of one model, over all gateways that live."""

    model: str
    running: int
    held: int


class AllTraffic:
    """Requests that run and are held, over all gateways: those of our own gateway as it counts them now, those of
    others as their newest windows say (at most a second old).

    Without a gateway of our own nothing is known until some gateway has been heard for a second: by then each window
    that there is has come.
    """

    def __init__(self, board: Callable[[], Board], clock: Clock, own: Traffic | None = None, name: str = "") -> None:
        self._board = board
        self._clock = clock
        self._own = own
        self._name = name

    def statuses(self) -> Sequence[ModelTraffic]:
        """See `deploy.api.ports.Traffic`."""
        board, now = self._board(), self._clock.now()
        others = board.gateways_alive(now, FRESH) - {self._name}
        if self._own is not None:
            own = self._own.statuses()
            return [self._with(board, one, now) for one in own] if others else own
        if not others:
            return []
        levels = ((name, _levels(board.entry(name), now, "")) for name in board.names())
        return [Counted(name, level.running, level.waiting) for name, level in levels]

    def _with(self, board: Board, own: ModelTraffic, now: Instant) -> ModelTraffic:
        others = _levels(board.entry(own.model), now, self._name)
        return Counted(own.model, own.running + others.running, own.held + others.waiting)


def _levels(entry: ModelBoard | None, now: Instant, but: str) -> Levels:
    """What the newest windows say, except that of one gateway."""
    running = waiting = 0
    for gateway, window in entry.windows.items() if entry is not None else ():
        if gateway != but and now - window.ended_at <= FRESH:
            running += window.now.running
            waiting += window.now.waiting
    return Levels(running=running, waiting=waiting)


class LogsElsewhere:
    """For a process that runs no replicas: their output is with the process that does. Both raise ProblemError."""

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:  # noqa: ARG002 - the port's shape
        """See `deploy.api.ports.ReplicaLogs`."""
        raise _elsewhere(replica)

    def follow(self, replica: str, lines: int) -> AsyncIterator[str]:  # noqa: ARG002 - the port's shape
        """See `deploy.api.ports.ReplicaLogs`."""
        raise _elsewhere(replica)


def _elsewhere(replica: str) -> ProblemError:
    return refuse(
        HTTPStatus.MISDIRECTED_REQUEST, "not-here", f"this process does not run {replica}: it has no output of it",
        remedy="ask the relume cluster of its node: give --admin its admin port",
    )  # fmt: skip


class PartsReadiness:
    """Ready when each part has read what stood in the log."""

    def __init__(self, log: OpenLog, parts: Sequence[Part]) -> None:
        self._log = log
        self._parts = parts

    def missing(self) -> Sequence[str]:
        """See `deploy.api.ports.Readiness`."""
        return [sentence for part in self._parts for sentence in part.missing()]

    def troubles(self) -> Sequence[str]:
        """See `deploy.api.ports.Readiness`."""
        why = self._log.trouble
        return [f"the event log takes nothing, so nothing is scaled; what is warm serves on ({why})"] if why else []


class PartsReadings:
    """The counts of the log and of each part as ``relume_ROLE_FIELD``; counters end in ``_total``."""

    def __init__(self, log: OpenLog, parts: Sequence[Part]) -> None:
        self._log = log
        self._parts = parts

    def read(self) -> Iterable[Reading]:
        """See `deploy.api.ports.Readings`."""
        yield from readings("log", self._log.stats())
        yield Reading("log_failing", "1 while the event log cannot be written, else 0.", float(bool(self._log.trouble)))
        for part in self._parts:
            yield from part.read()
