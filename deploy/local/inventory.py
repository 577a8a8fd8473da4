"""What this machine has for replicas: cores, memory, GPUs.

Cores and memory are what the kernel lets this process use: its CPU affinity, and the limits of its cgroup and those
above it (version 1 or 2), so that relume in a container counts the container. GPUs are those that `nvidia-smi` lists,
or the number that was declared, as virtual cards, on a machine without one.
"""

from __future__ import annotations

import asyncio
import csv
import logging
import os
import platform
import re
import shutil
from collections.abc import Sequence
from math import floor
from pathlib import Path
from typing import Final

import psutil

from deploy.local.topology import SeenCard, parse_instances, parse_matrix, split, with_topology
from events.types.replicas import Card, CardsObserved

logger = logging.getLogger(__name__)

NVIDIA_QUERY: Final = ("--query-gpu=index,uuid,name,memory.total,pci.bus_id", "--format=csv,noheader,nounits")
NVIDIA_BOUND: Final = 20.0
"""Seconds for nvidia-smi: it loads the driver, which takes seconds when nothing else holds it."""
RESERVED: Final = 512 << 20
"""Bytes kept for relume itself, but at most a tenth of all."""

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")


class InventoryFailed(Exception):
    """nvidia-smi is there and does not tell what it has."""


async def take_inventory(node: str, gpus: int | None) -> CardsObserved:
    """What there is. `gpus` None: the real ones; N: at most N of them or, when there is none, N virtual ones."""
    real = () if gpus == 0 else await _nvidia_cards(os.environ.get("CUDA_VISIBLE_DEVICES"))
    cards = real if gpus is None else real[:gpus]
    if not real and gpus:
        cards = tuple(Card(id=f"virtual-{index}", product="virtual", virtual=True) for index in range(gpus))
    memory = usable_memory()
    return CardsObserved(
        node=node, cpu=usable_cores(), memory_bytes=memory - min(RESERVED, memory // 10), cards=tuple(cards)
    )


def node_name() -> str:
    """This machine's name as a DNS label."""
    label = re.sub(r"[^a-z0-9-]+", "-", platform.node().split(".")[0].lower()).strip("-")[:63].strip("-")
    return label or "local"


async def _nvidia_cards(visible: str | None) -> tuple[Card, ...]:
    """The cards that are visible, with how they reach each other where that can be known; of one that is split its MIG
    instances."""
    seen = parse_nvidia(await ask_nvidia(NVIDIA_QUERY))
    if not seen:
        return ()
    listed, matrix = await asyncio.gather(ask_nvidia(("-L",)), _matrix() if len(seen) > 1 else _nothing())
    cards, instances = with_topology(seen, parse_matrix(matrix)), parse_instances(listed)
    return visible_cards(
        [split(card, instances.get(card.id, ())) for card in cards], [card.id for card in cards], visible
    )


async def _matrix() -> str:
    try:
        return await ask_nvidia(("topo", "-m"))
    except InventoryFailed as error:  # virtual machines and old drivers; the cards can be used all the same
        logger.warning("how the GPUs reach each other is not known: %s", error)
        return ""


async def _nothing() -> str:
    return ""


async def ask_nvidia(query: Sequence[str]) -> str:
    """What nvidia-smi answers; empty where there is none, or no driver. Raises InventoryFailed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    asked = await asyncio.create_subprocess_exec(
        program, *query, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(NVIDIA_BOUND):
            output, errors = await asked.communicate()
    except TimeoutError as error:
        raise InventoryFailed(f"nvidia-smi did not answer within {NVIDIA_BOUND:g} s; try --gpus 0") from error
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()
    text = output.decode(errors="replace")
    if asked.returncode != 0 and "No devices were found" not in text:
        said = (errors.decode(errors="replace").strip() or text.strip())[:300]
        if "couldn't communicate with the NVIDIA driver" in said:  # the tool without a driver: a machine without a GPU
            return ""
        raise InventoryFailed(f"nvidia-smi failed ({asked.returncode}): {said}; try --gpus 0")
    return text


def parse_nvidia(text: str) -> tuple[SeenCard, ...]:
    """The cards in the answer to `NVIDIA_QUERY`. Unified-memory machines say ``[N/A]`` for the memory: 0, not known."""
    cards = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) in (4, 5) and row[1].startswith("GPU-") and row[0].strip().isdigit():
            mebibytes = row[3].strip()
            memory = (int(mebibytes) << 20) if mebibytes.isdigit() else 0
            card = Card(id=row[1].strip(), product=row[2].strip(), memory_bytes=memory)
            cards.append(SeenCard(int(row[0]), row[4].strip() if len(row) == 5 else "", card))
    return tuple(cards)


def visible_cards(parts: Sequence[Sequence[Card]], ids: Sequence[str], visible: str | None) -> tuple[Card, ...]:
    """What CUDA_VISIBLE_DEVICES leaves to this process of cards with these `ids`, of which each is itself or its MIG
    instances: unset, all; indices or UUIDs, those, in that order.

    CUDA stops at the first entry it does not know, and so does this.
    """
    if visible is None:
        return tuple(card for cards in parts for card in cards)
    chosen: list[Card] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdigit() and int(entry) < len(parts):
            chosen += parts[int(entry)]
            continue
        named = [cards for cards, known in zip(parts, ids, strict=True) if entry and known.startswith(entry)]
        named += [[card] for cards in parts for card in cards if card.profile and entry and card.id.startswith(entry)]
        if len(named) != 1:
            break
        chosen += named[0]
    return tuple(dict.fromkeys(chosen))


def usable_cores() -> float:
    """Cores that this process may use: affinity and cgroup quotas."""
    cores = float(psutil.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    quotas = [quota for folder in cgroup_folders("cpu") if (quota := cpu_quota(folder)) is not None]
    return max(0.1, floor(min([cores, *quotas]) * 100) / 100)


def usable_memory() -> int:
    """Bytes of memory that this process and its children may use: the machine's, and cgroup limits."""
    limits = [limit for folder in cgroup_folders("memory") if (limit := memory_limit(folder)) is not None]
    return min([psutil.virtual_memory().total, *limits])


def cpu_quota(folder: Path) -> float | None:
    """The quota of one cgroup in cores, version 2 (``cpu.max``) or 1; None: unlimited."""
    words = _read(folder / "cpu.max").split()
    if not words:
        words = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None  # "max", "-1", or no such file


def memory_limit(folder: Path) -> int | None:
    """The limit of one cgroup in bytes, version 2 (``memory.max``) or 1; None: unlimited."""
    text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    if not text.isdigit() or int(text) >= 1 << 60:  # version 1 writes "unlimited" as the largest page multiple
        return None
    return int(text)


def cgroup_folders(controller: str, root: Path = CGROUPS, table: Path = OWN_CGROUPS) -> list[Path]:
    """The folders of this process's cgroup and all above it, for a controller; empty where there are none."""
    found: list[Path] = []
    for line in _read(table).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [root / controller] if controllers else [root, root / "unified"]
        for mount in mounts:
            below = mount / path.lstrip("/")
            found += [folder for folder in (below, *below.parents) if folder.is_relative_to(mount)]
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
