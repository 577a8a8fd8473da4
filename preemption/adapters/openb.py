"""Cluster files in the openb format (Alibaba's public GPU cluster trace of 2023): a CSV of nodes, a CSV of pods.

Nodes have the columns ``sn, cpu_milli, memory_mib, gpu, model``; pods ``name, cpu_milli, memory_mib, num_gpu,
gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time, scheduled_time``, of which everything after
``num_gpu`` may be missing. Rows are taken in the order of the file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from preemption.core.gpus.shapes import MILLI, CardSpec, NodeSpec, Task

MEBIBYTE: Final = 1 << 20
MOST_CARDS: Final = 64
"""Of one node."""
MOST_ROWS: Final = 1_000_000
"""Of one file: a bound on memory."""

NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip

_NOTHING: Final = frozenset({"", "nan", "NaN", "None"})


class BadFile(ValueError):
    """A cluster file cannot be read: which line, which column, what to write instead."""


def read_nodes(path: Path) -> list[NodeSpec]:
    """The nodes of a file. BadFile names what is wrong."""
    nodes: dict[str, NodeSpec] = {}
    for line in _rows(path, NODE_COLUMNS[:4]):
        name = line.text("sn") or f"node-{len(nodes)}"
        if name in nodes:
            raise line.wrong("sn", "is there twice; give each node a name of its own")
        cards = tuple(CardSpec(id=f"{name}-gpu-{index}") for index in range(line.whole("gpu", MOST_CARDS)))
        nodes[name] = NodeSpec(
            name=name, cpu_milli=line.whole("cpu_milli"), memory_bytes=line.whole("memory_mib") * MEBIBYTE,
            model=line.text("model"), cards=cards,
        )  # fmt: skip
    if not nodes:
        raise BadFile(f"{path}: has no nodes")
    return list(nodes.values())


def read_pods(path: Path) -> list[Task]:
    """The pods of a file, as tasks. BadFile names what is wrong."""
    tasks = [_task(line) for line in _rows(path, POD_COLUMNS[1:4])]
    if not tasks:
        raise BadFile(f"{path}: has no pods")
    return tasks


def write_nodes(path: Path, nodes: list[NodeSpec]) -> None:
    """Nodes as a file in this format."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(NODE_COLUMNS)
        for node in nodes:
            writer.writerow([node.name, node.cpu_milli, node.memory_bytes // MEBIBYTE, len(node.cards), node.model])


def _task(line: _Line) -> Task:
    gpus = line.whole("num_gpu", MOST_CARDS)
    milli = line.whole("gpu_milli", MILLI) if gpus == 1 and line.text("gpu_milli") else MILLI
    return Task(
        cpu_milli=line.whole("cpu_milli"), memory_bytes=line.whole("memory_mib") * MEBIBYTE, gpus=gpus,
        milli=milli or MILLI, models=tuple(part for part in line.text("gpu_spec").split("|") if part),
    )  # fmt: skip


class _Line:
    """One row, which knows where it stands."""

    def __init__(self, path: Path, number: int, cells: Mapping[str, str | None]) -> None:
        self._path, self._number, self._cells = path, number, cells

    def text(self, column: str) -> str:
        cell = (self._cells.get(column) or "").strip()
        return "" if cell in _NOTHING else cell

    def whole(self, column: str, most: int = 1 << 50) -> int:
        cell = self.text(column)
        if not (cell.isascii() and cell.isdigit()) or int(cell) > most:
            raise self.wrong(column, f"must be a whole number from 0 to {most}")
        return int(cell)

    def wrong(self, column: str, rule: str) -> BadFile:
        return BadFile(f"{self._path}, line {self._number}: {column} is {self.text(column)!r}; it {rule}")


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[_Line]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [column for column in needed if column not in (reader.fieldnames or ())]
            if missing:
                raise BadFile(
                    f"{path}: has no column {' and none '.join(missing)}; the first line must name the columns"
                )
            for count, cells in enumerate(reader):
                if count >= MOST_ROWS:
                    raise BadFile(f"{path}: has more than {MOST_ROWS} rows; split it")
                yield _Line(path, reader.line_num, cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFile(f"{path}: cannot be read: {error}") from error
