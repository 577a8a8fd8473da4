"""A trace of single requests: when each came, to which model, how large it was or how long it took."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """Requests in order of arrival, one entry each in all arrays.

    `arrived`: seconds since the trace began. `model`: an index into `names`. `tokens_in`, `tokens_out`: sizes; where
    the trace tells seconds instead, `seconds` has them, and NaN elsewhere.
    """

    names: tuple[str, ...]
    arrived: NDArray[np.float64]
    model: NDArray[np.int32]
    tokens_in: NDArray[np.int64]
    tokens_out: NDArray[np.int64]
    seconds: NDArray[np.float64]

    def __len__(self) -> int:
        return int(self.arrived.size)

    @property
    def span(self) -> float:
        """Seconds from the beginning to the last arrival."""
        return float(self.arrived[-1]) if len(self) else 0.0


@dataclass(frozen=True, slots=True)
class Rows:
    """What a reader gathers: a list a column."""

    arrived: list[float]
    model: list[str]
    tokens_in: list[int]
    tokens_out: list[int]
    seconds: list[float]

    @classmethod
    def empty(cls) -> Rows:
        """None yet."""
        return cls([], [], [], [], [])

    def add(self, arrived: float, model: str, tokens: tuple[int, int], seconds: float = float("nan")) -> None:
        """One request."""
        self.arrived.append(arrived)
        self.model.append(model)
        self.tokens_in.append(tokens[0])
        self.tokens_out.append(tokens[1])
        self.seconds.append(seconds)

    def trace(self) -> RequestTrace:
        """In order of arrival, which begins at zero; of equal arrivals in the order of the file."""
        names = tuple(dict.fromkeys(self.model))
        index = {name: at for at, name in enumerate(names)}
        arrived = np.array(self.arrived, dtype=np.float64)
        order = np.argsort(arrived, kind="stable")
        first = float(arrived[order[0]]) if arrived.size else 0.0
        return RequestTrace(
            names,
            arrived[order] - first,
            np.array([index[name] for name in self.model], dtype=np.int32)[order],
            np.array(self.tokens_in, dtype=np.int64)[order],
            np.array(self.tokens_out, dtype=np.int64)[order],
            np.array(self.seconds, dtype=np.float64)[order],
        )


def joined(traces: Sequence[RequestTrace]) -> RequestTrace:
    """Several traces at once, each of which begins at zero."""
    rows = Rows.empty()
    for trace in traces:
        for at in range(len(trace)):
            rows.add(
                float(trace.arrived[at]), trace.names[int(trace.model[at])],
                (int(trace.tokens_in[at]), int(trace.tokens_out[at])), float(trace.seconds[at]),
            )  # fmt: skip
    return rows.trace()


def first_seconds(trace: RequestTrace, seconds: float) -> RequestTrace:
    """Its beginning."""
    kept = int(np.searchsorted(trace.arrived, seconds, side="right"))
    return RequestTrace(
        trace.names, trace.arrived[:kept], trace.model[:kept], trace.tokens_in[:kept], trace.tokens_out[:kept],
        trace.seconds[:kept],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """Of a trace, what came from `begin` on for `length` seconds (None: to its end), and one of `thin` requests."""

    begin: float = 0.0
    length: float | None = None
    thin: int = 1

    @property
    def end(self) -> float:
        """Before it what is kept ends."""
        return float("inf") if self.length is None else self.begin + self.length


WHOLE = Part()


def part_of(trace: RequestTrace, part: Part, seed: int) -> RequestTrace:
    """What is left, as a trace of its own, with the models in it. Which of `thin` stay is drawn by the seed."""
    if part == WHOLE:
        return trace
    rows, draws = Rows.empty(), random.Random(seed)  # noqa: S311 - a simulation, not a secret
    stays = [not draws.randrange(part.thin) for _ in range(len(trace))]
    for at in np.flatnonzero((trace.arrived >= part.begin) & (trace.arrived < part.end) & np.array(stays, dtype=bool)):
        rows.add(
            float(trace.arrived[at]), trace.names[int(trace.model[at])],
            (int(trace.tokens_in[at]), int(trace.tokens_out[at])), float(trace.seconds[at]),
        )  # fmt: skip
    return rows.trace()
