"""Parts of real cards: kept to their memory by a library where there is one, and by nothing otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import gpu_limits, inventory
from deploy.local.gpu_limits import limits_of
from events.types.replicas import Card
from events.types.shared import Resources
from tests.support.local_cluster import FAST, Stage, engine

GPU = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
CARDS = (
    Card(id=GPU, product="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30), Card(id="GPU-b"),
    Card(id="MIG-c", memory_bytes=5 << 30, profile="1g.5gb"),
    Card(id="virtual-0", memory_bytes=80 << 30, virtual=True),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_limits, "LOCKS", tmp_path / "locks")


@pytest.mark.parametrize(
    ("card", "wanted", "limit"),
    [(GPU, Resources(gpu_fraction=0.25), "20288m"), (GPU, Resources(gpu_fraction=1e-9), "81m"),
     (GPU, Resources(gpus=1), None),
     (GPU, Resources(gpu_bytes=30 << 30), "30720m"), ("GPU-b", Resources(gpu_fraction=0.5), None),
     ("MIG-c", Resources(mig_profile="1g.5gb"), None), ("virtual-0", Resources(gpu_fraction=0.5), None)],
)  # fmt: skip
def test_what_is_limited(tmp_path: Path, card: str, wanted: Resources, limit: str | None) -> None:
    """A part of a real card whose memory is known, of the 81,152 MiB that programs can have of it; the rest is told
    nothing, since nothing would keep it."""
    limits = limits_of(tmp_path / "libvgpu.so", tmp_path / "limits", CARDS)
    assert limits is not None
    made = limits.environment("m-r1-0", wanted, (card,), {"LD_PRELOAD": "/theirs.so"})
    assert made.get("CUDA_DEVICE_MEMORY_LIMIT") == limit
    assert bool(made) == (limit is not None)
    if made:
        assert made["LD_PRELOAD"] == f"{tmp_path}/libvgpu.so:/theirs.so"


def test_each_start_begins_with_a_file_of_its_own(tmp_path: Path) -> None:
    """What an earlier start with another limit left is gone."""
    limits = limits_of(tmp_path / "libvgpu.so", tmp_path / "limits", CARDS)
    assert limits is not None
    shared = Path(
        limits.environment("tune/0", Resources(gpu_fraction=0.5), (GPU,), {})["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    )
    assert (shared.parent, shared.exists(), (tmp_path / "locks").is_dir()) == (tmp_path / "limits", False, True)
    shared.write_text("old")
    limits.environment("tune/0", Resources(gpu_fraction=0.25), (GPU,), {})
    assert not shared.exists()
    assert limits_of(None, tmp_path, CARDS) is None


async def test_a_replica_is_started_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card that nvidia-smi tells of. (The library here is none: the loader says so and goes on.)"""
    tool, library = tmp_path / "nvidia-smi", tmp_path / "libvgpu.so"
    tool.write_text(f"#!/bin/sh\necho 0, {GPU}, NVIDIA H100 80GB HBM3, 81920, 00000000:3B:00.0\n")
    tool.chmod(0o755)
    library.touch()
    monkeypatch.setattr(inventory.shutil, "which", lambda _: str(tool))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stage = Stage(tmp_path / "data", replace(FAST, gpus=None, gpu_limiter=library))
    await stage.cluster.start()
    try:
        await stage.declare(engine("--tell-env", tmp_path / "env"))
        await stage.grant(0, gpus=(GPU,), resources=Resources(gpu_fraction=0.5, cpu=1.0))
        await stage.ready()
        env = json.loads((tmp_path / "env").read_text())
        assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT"]) == (GPU, "40576m")
        assert env["LD_PRELOAD"] == str(library)
    finally:
        await stage.close()
