"""Traces that say, minute by minute, what was asked: their readers, and the accounting of a policy over them.

Accounting, as in the study whose results come with the FeMux trace: at the end of each minute a policy says from the
past alone how many replicas W of a model it holds ready through the next. Cold starts are max(0, needed - W). Memory is
W for the whole minute plus half a minute for each cold replica, times the model's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deploy.simulation.reading import BadTrace, Row, column, lines_of, number_of, table_of

MINUTE: Final = 60.0

COLD_PART: Final = 0.5
"""Of the minute in which it was started a cold replica is there for so much."""


COUNT_MOST: Final = 1e9
"""Of one model in one minute, of whatever is counted. Chosen."""

MEGABYTES_MOST: Final = 1e9
"""Of one replica. Chosen."""

MILLISECONDS_MOST: Final = 1e10
"""Of one invocation: a third of a year."""


@dataclass(frozen=True, slots=True)
class MinuteTrace:
    """`needed`: models x minutes, replicas that were needed at once. `memory_gb`: of one replica of each model.
    `requests`: how many there were; None where the trace does not say."""

    names: tuple[str, ...]
    needed: NDArray[np.int64]
    memory_gb: NDArray[np.float64]
    requests: int | None = None

    @property
    def minutes(self) -> int:
        """How long it is."""
        return int(self.needed.shape[1])


@dataclass(frozen=True, slots=True)
class MinuteTotals:
    """What a policy did over a trace. `memory_gb_seconds`: held; `needed_gb_seconds`: what was in use of it."""

    cold_starts: int
    memory_gb_seconds: float
    needed_gb_seconds: float
    replica_seconds: float
    idle_replica_seconds: float


def account(trace: MinuteTrace, held: NDArray[np.int64]) -> MinuteTotals:
    """The totals of holding `held` (models x minutes) replicas ready."""
    cold = np.maximum(0, trace.needed - held)
    seconds = held * MINUTE + cold * MINUTE * COLD_PART
    used = np.minimum(trace.needed, held) * MINUTE + cold * MINUTE * COLD_PART
    return MinuteTotals(
        cold_starts=int(cold.sum()),
        memory_gb_seconds=float((seconds * trace.memory_gb[:, None]).sum()),
        needed_gb_seconds=float((used * trace.memory_gb[:, None]).sum()),
        replica_seconds=float(seconds.sum()),
        idle_replica_seconds=float((np.maximum(0, held - trace.needed) * MINUTE).sum()),
    )


def only(trace: MinuteTrace, names: Sequence[str]) -> MinuteTrace:
    """These models of it, in its order. Raises BadTrace when it has none of them."""
    wanted = set(names)
    rows = [row for row, name in enumerate(trace.names) if name in wanted]
    if not rows:
        raise BadTrace(f"the trace has none of the {len(wanted)} models that were named")
    requests = None if len(rows) < len(trace.names) else trace.requests
    return MinuteTrace(tuple(trace.names[row] for row in rows), trace.needed[rows], trace.memory_gb[rows], requests)


def read_femux(path: Path) -> MinuteTrace:
    """Containers needed per minute (HashApp, AverageMemUsage_MB, m1, m2, …). Raises BadTrace, OSError."""
    names, counts, memory = [], [], []
    with lines_of(path) as lines:
        header, rows = table_of(lines, path)
        name, megabytes = column(header, "HashApp", path), column(header, "AverageMemUsage_MB", path)
        first = column(header, "m1", path)
        for row in rows:
            names.append(row[1][name])
            memory.append(_cell(row, megabytes, header, path, MEGABYTES_MOST) / 1000)
            counts.append(_counts(row, first, header, path).astype(np.int64))
    _need_rows(names, path)
    return MinuteTrace(tuple(names), np.array(counts, dtype=np.int64), np.array(memory))


def read_azure_functions(path: Path) -> MinuteTrace:
    """Invocations per minute; durations and memory from the files beside it. Raises BadTrace, OSError.

    Replicas needed in a minute: the time that its invocations take, divided by the minute, rounded up; so arrivals are
    taken to be spread evenly over their minute.
    """
    names, counts = [], []
    with lines_of(path) as lines:
        header, rows = table_of(lines, path)
        name = column(header, "HashFunction", path)
        first = next((at for at, title in enumerate(header) if title.isdigit()), None)
        if first is None:
            raise BadTrace(f"{path}: no column is named after a minute (1, 2, …)")
        for row in rows:
            names.append(row[1][name])
            counts.append(_counts(row, first, header, path))
    _need_rows(names, path)
    durations = _beside(path, "durations", "Average", MILLISECONDS_MOST)
    sizes = _beside(path, "memory", "AverageAllocatedMb", MEGABYTES_MOST)
    calls = np.array(counts)
    seconds = np.array([durations.get(one, 100.0) / 1000 for one in names])
    needed = np.where(calls > 0, np.maximum(1, np.ceil(calls * seconds[:, None] / MINUTE)), 0).astype(np.int64)
    typical = float(np.median(list(sizes.values()))) if sizes else 128.0
    memory = np.array([sizes.get(one, typical) / 1000 for one in names])
    return MinuteTrace(tuple(names), needed, memory, int(calls.sum()))


def _beside(path: Path, kind: str, title: str, most: float) -> dict[str, float]:
    other = path.with_name(path.name.replace("invocations", kind))
    if other == path or not other.exists():
        return {}
    with lines_of(other) as lines:
        header, rows = table_of(lines, other)
        name, value = column(header, "HashFunction", other), column(header, title, other)
        return {row[1][name]: _cell(row, value, header, other, most) for row in rows}


def _counts(row: Row, first: int, header: Sequence[str], path: Path) -> NDArray[np.float64]:
    """A number for each minute of a line."""
    try:
        counts = np.array(row[1][first:], dtype=np.float64)
    except ValueError:
        counts = np.array([np.nan])
    if not bool(((counts >= 0.0) & (counts <= COUNT_MOST)).all()):  # said of the first cell that is none
        counts = np.array([_cell(row, at, header, path, COUNT_MOST) for at in range(first, len(header))])
    return counts


def _cell(row: Row, at: int, header: Sequence[str], path: Path, most: float) -> float:
    return number_of(row[1][at], header[at], f"{path}, line {row[0]}", most)


def _need_rows(names: Sequence[str], path: Path) -> None:
    if not names:
        raise BadTrace(f"{path}: there are headings, and nothing below them")
