"""Traces that say, minute by minute, what was asked: their readers, and the accounting of a policy over them.

Accounting, as in the study whose results come with the FeMux trace: at the end of each minute a policy says from the
past alone how many replicas W of a model it holds ready through the next. Cold starts are max(0, needed - W). Memory is
W for the whole minute plus half a minute for each cold replica, times the model's memory.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

MINUTE: Final = 60.0

COLD_PART: Final = 0.5
"""Of the minute in which it was started a cold replica is there for so much."""


class BadTrace(ValueError):
    """The file is not the trace it is said to be. The message says what is missing."""


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
    header, rows = _table(path)
    name, memory = _column(header, "HashApp", path), _column(header, "AverageMemUsage_MB", path)
    first = _column(header, "m1", path)
    return MinuteTrace(
        tuple(row[name] for row in rows),
        np.array([[int(float(cell)) for cell in row[first:]] for row in rows], dtype=np.int64),
        np.array([float(row[memory]) / 1000 for row in rows]),
    )


def read_azure_functions(path: Path) -> MinuteTrace:
    """Invocations per minute; durations and memory from the files beside it. Raises BadTrace, OSError.

    Replicas needed in a minute: the time that its invocations take, divided by the minute, rounded up; so arrivals are
    taken to be spread evenly over their minute.
    """
    header, rows = _table(path)
    name = _column(header, "HashFunction", path)
    first = next((at for at, title in enumerate(header) if title.isdigit()), None)
    if first is None:
        raise BadTrace(f"{path}: no column is named after a minute (1, 2, …)")
    durations = _beside(path, "durations", "Average")
    sizes = _beside(path, "memory", "AverageAllocatedMb")
    calls = np.array([[float(cell) for cell in row[first:]] for row in rows])
    seconds = np.array([durations.get(row[name], 100.0) / 1000 for row in rows])
    needed = np.where(calls > 0, np.maximum(1, np.ceil(calls * seconds[:, None] / MINUTE)), 0).astype(np.int64)
    typical = float(np.median(list(sizes.values()))) if sizes else 128.0
    memory = np.array([sizes.get(row[name], typical) / 1000 for row in rows])
    return MinuteTrace(tuple(row[name] for row in rows), needed, memory, int(calls.sum()))


def _beside(path: Path, kind: str, column: str) -> dict[str, float]:
    other = path.with_name(path.name.replace("invocations", kind))
    if other == path or not other.exists():
        return {}
    header, rows = _table(other)
    name, value = _column(header, "HashFunction", other), _column(header, column, other)
    return {row[name]: float(row[value]) for row in rows}


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    with text_of(path) as file:
        table = csv.reader(file)
        header, rows = next(table, []), []
        for row in table:
            if row and len(row) != len(header):
                raise BadTrace(f"{path}, line {table.line_num}: {len(row)} cells under {len(header)} headings")
            if row:
                rows.append(row)
    if header and not rows:
        raise BadTrace(f"{path}: there are headings, and nothing below them")
    return header, rows


def _column(header: Sequence[str], title: str, path: Path) -> int:
    if title not in header:
        raise BadTrace(f"{path}: there is no column {title!r}; is this the right --format?")
    return list(header).index(title)


@contextmanager
def text_of(path: Path) -> Iterator[io.TextIOBase]:
    """Plain or gzipped, by its first bytes."""
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    if zipped:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield file
    else:
        with path.open(encoding="utf-8", newline="") as file:
            yield file
