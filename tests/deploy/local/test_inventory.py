"""What the machine has: cgroups, nvidia-smi's answers, virtual cards."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from deploy.local import inventory
from deploy.local.inventory import (
    InventoryFailed,
    cgroup_folders,
    cpu_quota,
    memory_limit,
    node_name,
    parse_nvidia,
    take_inventory,
    usable_cores,
    usable_memory,
    visible_cards,
)
from events.types.replicas import Card

A = Card(id="GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", product="NVIDIA H200", memory_bytes=143771 << 20)
B = Card(id="GPU-a16a2b41-9f0c-4f3b-8c56-0c2b1f6f7d11", product="NVIDIA GH200, 480GB", memory_bytes=0)
PARTS = (Card(id="MIG-a1", profile="1g.18gb"), Card(id="MIG-b2", profile="3g.71gb"))
"""What `A` is split into, where it is."""
ANSWER = """0, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, NVIDIA H200, 143771
1, GPU-a16a2b41-9f0c-4f3b-8c56-0c2b1f6f7d11, "NVIDIA GH200, 480GB", [N/A]
"""
"""In the form of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits` (its manual page); memory may be [N/A]."""


def test_answer_of_nvidia_smi() -> None:
    """Ids, products and memory are read; memory that is not told is 0, and other lines are not cards."""
    assert [one.card for one in parse_nvidia(ANSWER)] == [A, B]
    assert parse_nvidia("No devices were found\n") == ()


@pytest.mark.parametrize(
    ("visible", "cards"),
    [(None, (A, B)), ("", ()), ("1", (B,)), ("1,0", (B, A)), ("GPU-a16", (B,)), ("0,7,1", (A,)), ("-1", ()),
     ("0,0", (A,))],
)  # fmt: skip
def test_visible_cards(visible: str | None, cards: tuple[Card, ...]) -> None:
    """CUDA_VISIBLE_DEVICES of relume itself bounds what its replicas may have, read as CUDA reads it."""
    assert visible_cards(((A,), (B,)), (A.id, B.id), visible) == cards


@pytest.mark.parametrize(
    ("visible", "cards"),
    [(None, (*PARTS, B)), ("0", PARTS), ("1,0", (B, *PARTS)), ("GPU-5d5", PARTS), ("MIG-b", (PARTS[1],)),
     ("MIG-", ()), (f"{PARTS[1].id},0", (PARTS[1], PARTS[0]))],
)  # fmt: skip
def test_visible_instances(visible: str | None, cards: tuple[Card, ...]) -> None:
    """A split card is all its instances; one of them can be named."""
    assert visible_cards((PARTS, (B,)), (A.id, B.id), visible) == cards


@pytest.mark.parametrize(
    ("files", "cores"),
    [({"cpu.max": "150000 100000\n"}, 1.5), ({"cpu.max": "max 100000\n"}, None), ({}, None),
     ({"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, 0.5),
     ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None)],
)  # fmt: skip
def test_cpu_quota(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    """Quotas of both versions of cgroups, and none."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == cores


@pytest.mark.parametrize(
    ("files", "limit"),
    [({"memory.max": "1073741824\n"}, 1 << 30), ({"memory.max": "max\n"}, None), ({}, None),
     ({"memory.limit_in_bytes": "536870912\n"}, 1 << 29), ({"memory.limit_in_bytes": "9223372036854771712\n"}, None)],
)  # fmt: skip
def test_memory_limit(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    """Limits of both versions of cgroups, and none."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path) == limit


def test_cgroups_above_count_too(tmp_path: Path) -> None:
    """A limit may be set at any level, so all folders from ours to the top are looked at, in either version."""
    for folder in ("memory/a/b", "unified/c"):
        (tmp_path / folder).mkdir(parents=True)
    table = tmp_path / "table"
    table.write_text("4:memory:/a/b\n3:cpu,cpuacct:/x\n0::/c\n")
    found = [str(one.relative_to(tmp_path)) for one in cgroup_folders("memory", tmp_path, table)]
    assert found == ["memory/a/b", "memory/a", "memory", ".", "unified/c", "unified"]
    assert cgroup_folders("memory", tmp_path, tmp_path / "none") == []


def test_this_machine() -> None:
    """Here too there is something, and never more than the machine has."""
    assert 0 < usable_cores() <= (psutil.cpu_count() or 1)
    assert 0 < usable_memory() <= psutil.virtual_memory().total
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", node_name())


def fake_tool(folder: Path, script: str) -> str:
    """A nvidia-smi that does this."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return str(tool)


@pytest.mark.parametrize(
    ("script", "gpus", "ids"),
    [
        (f"cat <<'END'\n{ANSWER}END", None, (A.id, B.id)),
        (f"cat <<'END'\n{ANSWER}END", 1, (A.id,)),
        (f"cat <<'END'\n{ANSWER}END", 0, ()),
        (None, 2, ("virtual-0", "virtual-1")),
        (None, None, ()),
        ("echo No devices were found; exit 6", 1, ("virtual-0",)),
        ('echo "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver."; exit 9', None, ()),
    ],
    ids=["real", "fewer", "none wanted", "virtual", "none", "tool without cards", "tool without driver"],
)
async def test_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, gpus: int | None, ids: tuple[str, ...]
) -> None:
    """Real cards if there are any, else the declared number of virtual ones."""
    tool = None if script is None else fake_tool(tmp_path, script)
    monkeypatch.setattr(inventory.shutil, "which", lambda _: tool)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards = (await take_inventory("local", gpus)).cards
    assert tuple(card.id for card in cards) == ids
    assert all(card.virtual == card.id.startswith("virtual") for card in cards)


async def test_broken_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that is there and fails stops the start with what it said: cards must not vanish silently."""
    tool = fake_tool(tmp_path, "echo Unable to determine the device handle >&2; exit 255")
    monkeypatch.setattr(inventory.shutil, "which", lambda _: tool)
    with pytest.raises(InventoryFailed, match="Unable to determine the device handle"):
        await take_inventory("local", None)
