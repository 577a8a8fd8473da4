"""How the cards of this machine reach each other, and which are split: read from what nvidia-smi and the kernel say.

NVLink is known from ``nvidia-smi topo -m`` alone; a card's NUMA node from the kernel (sysfs), else from there. What is
split with MIG is listed by ``nvidia-smi -L``. (NVML says the same through a package of NVIDIA's; nvidia-smi comes with
the driver, so it is of the driver's own version.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from events.types.replicas import Card
from preemption.core.gpus.mig_names import family_of, profile_bytes

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")  # some versions underline the header, also into a pipe
_GPU_LINE: Final = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9a-f-]+)\)")
_MIG_LINE: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[0-9a-zA-Z/-]+)\)")


@dataclass(frozen=True, slots=True)
class SeenCard:
    """A card with the index and the PCI address (may be empty) that nvidia-smi gives it."""

    index: int
    address: str
    card: Card


@dataclass(frozen=True, slots=True)
class Matrix:
    """By card's index: its NVLink island (of one card, where it has no NVLink), and its NUMA node. Nothing is known of
    cards that are not there."""

    links: Mapping[int, int]
    numas: Mapping[int, int]


def parse_matrix(text: str) -> Matrix:
    """The answer of ``nvidia-smi topo -m``; empty where it is none.

    Cards are in one island when each is joined to each by NVLink. Where that divides no cards into islands, as in a
    ring, a card is in the first island that it is fully joined to.
    """
    lines = [line.split() for line in _STYLE.sub("", text).splitlines()]
    header = next((at for at, line in enumerate(lines) if line[:1] == ["GPU0"]), None)
    if header is None or "CPU" not in lines[header]:
        return Matrix({}, {})
    columns, named = lines[header][: lines[header].index("CPU")], " ".join(lines[header])
    after = ("CPU Affinity" in named) + ("NUMA Affinity" in named) + ("GPU NUMA ID" in named)
    joined: dict[int, set[int]] = {}
    numas: dict[int, int] = {}
    for line in lines[header + 1 :]:
        if not line or not re.fullmatch(r"GPU\d+", line[0]) or len(line) <= len(columns):
            continue
        index, cells, rest = int(line[0][3:]), line[1 : 1 + len(columns)], line[1 + len(columns) :]
        joined[index] = {int(name[3:]) for name, cell in zip(columns, cells, strict=True)
                         if re.fullmatch(r"GPU\d+", name) and re.fullmatch(r"NV\d+", cell)}  # fmt: skip
        if "NUMA Affinity" in named and len(rest) == after and rest[1].isdigit():
            numas[index] = int(rest[1])
    return Matrix(_islands(joined), numas)


def parse_instances(text: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The (profile, UUID) of each MIG instance in the answer of ``nvidia-smi -L``, by the UUID of its card. Instances
    that are divided further (``1c.3g.20gb``) are left out."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    card = ""
    for line in text.splitlines():
        if gpu := _GPU_LINE.match(line):
            card = gpu[1]
        elif (instance := _MIG_LINE.match(line)) and card and "c." not in instance[1]:
            found[card] = (*found.get(card, ()), (instance[1], instance[2]))
    return found


def with_topology(seen: Sequence[SeenCard], matrix: Matrix, devices: Path = PCI_DEVICES) -> tuple[Card, ...]:
    """The cards, with what is known of how they reach each other."""
    cards = []
    for one in seen:
        numa = numa_of(one.address, devices)
        numa = matrix.numas.get(one.index) if numa is None else numa
        cards.append(replace(one.card, link=matrix.links.get(one.index), numa=numa))
    return tuple(cards)


def numa_of(address: str, devices: Path = PCI_DEVICES) -> int | None:
    """The NUMA node of a PCI device by nvidia-smi's address (``00000000:3B:00.0``); None: the kernel does not say."""
    domain, _, rest = address.lower().partition(":")
    if not re.fullmatch(r"[0-9a-f]{4,8}", domain) or not re.fullmatch(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", rest):
        return None
    try:
        text = (devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # -1: none


def split(card: Card, instances: Sequence[tuple[str, str]]) -> tuple[Card, ...]:
    """The MIG instances of a card, as cards; one that has none is itself."""
    family = family_of(card.product, card.memory_bytes)
    made = (
        replace(card, id=uuid, profile=profile, link=None,
                memory_bytes=0 if family is None else profile_bytes(family, profile))
        for profile, uuid in instances
    )  # fmt: skip
    return tuple(made) or (card,)


def _islands(joined: Mapping[int, set[int]]) -> dict[int, int]:
    """The island of each card, named by its first card; one without NVLink is alone in its own."""
    islands: list[list[int]] = []
    for index in sorted(joined):
        home = next((one for one in islands if all(other in joined[index] for other in one)), None)
        if home is None:
            islands.append([index])
        else:
            home.append(index)
    return {index: one[0] for one in islands for index in one}
