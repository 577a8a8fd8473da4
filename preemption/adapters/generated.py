"""A cluster and a workload like the published ones, made from a seed, for those who do not have the public files.

The nodes are those of Alibaba's public GPU cluster (openb, 2023): 1,213 nodes with 6,212 cards, the same number of each
kind. Of the pods, the shares by cards asked for are the published ones (Weng et al., ATC 2023, table 1: 13.3 % none,
37.8 % a part of one, 48.0 % one, then 2, 4 and 8); what they ask of CPU and memory are the shapes that are frequent in
the public file, with rounded weights.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from preemption.adapters.openb import MEBIBYTE, POD_COLUMNS, write_nodes
from preemption.core.gpus.shapes import CardSpec, NodeSpec

NODES_FILE: Final = "nodes.csv"
PODS_FILE: Final = "pods.csv"
PODS: Final = 8152
"""As many as in the public file."""

_NODES: Final = (
    # nodes, cores, memory in MiB, cards, kind
    (549, 96, 393216, 8, "G2"), (39, 128, 786432, 8, "G3"), (387, 104, 524288, 2, "T4"), (17, 96, 393216, 4, "T4"),
    (21, 96, 786432, 8, "V100M32"), (9, 48, 376832, 4, "V100M32"), (7, 64, 262144, 8, "V100M16"),
    (1, 82, 344064, 8, "V100M16"), (28, 32, 131072, 4, "V100M16"), (19, 8, 32768, 1, "V100M16"),
    (107, 16, 122880, 2, "P100"), (22, 64, 262144, 2, "P100"), (3, 8, 61440, 1, "P100"), (2, 8, 61440, 2, "P100"),
    (2, 128, 1048576, 1, "A10"),
)  # fmt: skip

_BE: Final = "BE"
_LS: Final = "LS"

_PODS: Final = (
    # share of its kind, cpu_milli, memory in MiB, cards, thousandths of each, quality of service
    (13.3, (
        (5.4, 32000, 49152, 0, 0, _BE), (4.6, 8000, 30517, 0, 0, _BE), (1.1, 15400, 51200, 0, 0, _LS),
        (0.5, 16000, 32768, 0, 0, _BE), (0.5, 32000, 62500, 0, 0, _LS), (0.3, 8000, 31250, 0, 0, _LS),
        (0.3, 8000, 61035, 0, 0, _BE), (0.3, 16500, 51200, 0, 0, _LS), (0.2, 12500, 65536, 0, 0, _LS),
        (0.1, 20000, 65536, 0, 0, _LS),
    )),
    (37.8, (
        (9.0, 3152, 5600, 1, 810, _BE), (8.4, 8000, 30517, 1, 470, _BE), (4.6, 11908, 47104, 1, 470, _LS),
        (3.6, 3152, 5600, 1, 590, _BE), (1.4, 8000, 30517, 1, 650, _BE), (1.4, 8000, 30517, 1, 320, _BE),
        (1.3, 4000, 22888, 1, 320, _BE), (1.2, 4152, 10600, 1, 550, _BE), (1.1, 6000, 6144, 1, 460, _LS),
        (1.1, 6000, 12288, 1, 460, _LS), (1.0, 4152, 10600, 1, 810, _BE), (0.9, 4000, 15258, 1, 320, _BE),
        (0.8, 4000, 15258, 1, 220, _BE), (0.6, 4000, 22888, 1, 480, _BE), (0.5, 4000, 30517, 1, 230, _BE),
        (0.4, 4000, 15258, 1, 160, _BE), (0.4, 8000, 30517, 1, 220, _BE), (0.3, 11908, 47104, 1, 650, _LS),
        (0.2, 6000, 22888, 1, 160, _BE), (0.2, 4000, 15258, 1, 110, _LS), (0.1, 6000, 22888, 1, 50, _BE),
    )),
    (48.0, (
        (8.5, 3152, 5600, 1, 1000, _BE), (6.0, 15700, 58368, 1, 1000, _LS), (5.0, 11400, 48128, 1, 1000, _LS),
        (4.6, 16000, 32768, 1, 1000, _LS), (3.8, 11300, 49152, 1, 1000, _LS), (3.6, 18708, 64512, 1, 1000, _LS),
        (2.8, 14200, 58368, 1, 1000, _LS), (2.7, 12000, 16384, 1, 1000, _LS), (2.1, 12000, 24576, 1, 1000, _LS),
        (1.6, 4000, 24576, 1, 1000, _LS), (1.4, 24200, 93184, 1, 1000, _LS), (1.2, 8000, 32768, 1, 1000, _LS),
        (1.0, 11900, 77824, 1, 1000, _LS), (0.7, 8000, 16384, 1, 1000, _LS), (0.6, 4000, 31250, 1, 1000, _LS),
        (0.5, 11908, 47104, 1, 1000, _BE), (0.5, 9810, 41560, 1, 1000, _LS), (0.4, 16000, 65536, 1, 1000, _LS),
        (0.4, 11400, 77824, 1, 1000, _LS), (0.3, 12000, 15360, 1, 1000, _LS), (0.3, 16000, 49152, 1, 1000, _LS),
    )),
    (0.2, ((1.0, 16200, 66560, 2, 1000, _LS),)),
    (0.2, ((1.0, 32200, 132096, 4, 1000, _LS),)),
    (0.5, ((1.0, 88000, 327680, 8, 1000, "Burstable"),)),
)  # fmt: skip
"""By kind: its share in percent, then its shapes with their weights."""

Pod = tuple[int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Size:
    """How much to make: `scale` 1.0 is the published cluster, and as many pods."""

    scale: float = 1.0
    seed: int = 0


def make_nodes(size: Size) -> list[NodeSpec]:
    """The nodes, in an order that the seed draws."""
    if not 0 < size.scale <= 100:
        raise ValueError(f"scale is {size.scale}; it lies above 0 and up to 100")
    rows = [row[1:] for row in _NODES for _ in range(max(1, math.floor(row[0] * size.scale + 0.5)))]
    random.Random(size.seed).shuffle(rows)  # noqa: S311 - a repeatable draw, no secret
    return [_node(index, *row) for index, row in enumerate(rows)]


def make_pods(size: Size) -> list[Pod]:
    """The pods as (cpu_milli, memory in MiB, cards, thousandths, quality of service), drawn by the seed."""
    shapes = [shape for _, kind in _PODS for shape in kind]
    weights = [share * shape[0] / sum(one[0] for one in kind) for share, kind in _PODS for shape in kind]
    draw = random.Random(size.seed)  # noqa: S311 - a repeatable draw, no secret
    drawn = draw.choices(shapes, weights, k=max(1, round(PODS * size.scale)))
    return [shape[1:] for shape in drawn]


def generate(folder: Path, size: Size) -> tuple[Path, Path]:
    """Write both files into `folder` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes, pods = folder / NODES_FILE, folder / PODS_FILE
    write_nodes(nodes, make_nodes(size))
    _write_pods(pods, make_pods(size))
    return nodes, pods


def _node(index: int, cores: int, memory: int, cards: int, model: str) -> NodeSpec:
    name = f"node-{index:04d}"
    specs = tuple(CardSpec(id=f"{name}-gpu-{card}") for card in range(cards))
    return NodeSpec(
        name=name, cpu_milli=cores * 1000, memory_bytes=memory * MEBIBYTE, model=model, cards=specs
    )  # fmt: skip


def _write_pods(path: Path, pods: Sequence[Pod]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(POD_COLUMNS)
        for index, (cpu, memory, cards, milli, qos) in enumerate(pods):
            writer.writerow([f"pod-{index:04d}", cpu, memory, cards, milli, "", qos, "Running", index, "", index])
