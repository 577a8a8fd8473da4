"""How cards reach each other, and which are split: real answers of nvidia-smi from public reports, and the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local import inventory
from deploy.local.inventory import take_inventory
from deploy.local.topology import Matrix, numa_of, parse_instances, parse_matrix

H100 = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PIX     NODE    0-23,96-119     0               N/A
GPU1    NV18     X      NV18    NV18    NV18    NV18    NV18    NV18    NODE    PIX     0-23,96-119     0               N/A
GPU2    NV18    NV18     X      NV18    NV18    NV18    NV18    NV18    NODE    NODE    0-23,96-119     0               N/A
GPU3    NV18    NV18    NV18     X      NV18    NV18    NV18    NV18    SYS     SYS     24-47,120-143   1               N/A
GPU4    NV18    NV18    NV18    NV18     X      NV18    NV18    NV18    SYS     SYS     48-71,144-167   2               N/A
GPU5    NV18    NV18    NV18    NV18    NV18     X      NV18    NV18    SYS     SYS     48-71,144-167   2               N/A
GPU6    NV18    NV18    NV18    NV18    NV18    NV18     X      NV18    SYS     SYS     48-71,144-167   2               N/A
GPU7    NV18    NV18    NV18    NV18    NV18    NV18    NV18     X      SYS     SYS     72-95,168-191   3               N/A
NIC0    PIX     NODE    NODE    SYS     SYS     SYS     SYS     SYS      X      NODE

Legend:

  X    = Self
"""  # noqa: E501 - as it was answered
"""An HGX board (sgl-project/sglang#13973; seven of its nine network cards left out)."""

DESKTOP = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      SYS     SYS     SYS     SYS     8-15,24-31      1               N/A
GPU1    SYS      X      PHB     NODE    NODE    0-7,16-23       0               N/A
GPU2    SYS     PHB      X      NODE    NODE    0-7,16-23       0               N/A
GPU3    SYS     NODE    NODE     X      PHB     0-7,16-23       0               N/A
GPU4    SYS     NODE    NODE    PHB      X      0-7,16-23       0               N/A
"""
"""Five cards without NVLink on two NUMA nodes (noonghunna/club-3090#46)."""

UNKNOWN = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\t0-7,16-23\t\tN/A\t\tN/A\nGPU1\tSYS\t X \t8-15,24-31\t1\t\tN/A\n"  # noqa: E501 - as it was answered
"""A card whose NUMA node is not known (noonghunna/club-3090#178)."""

OLD = """\
        GPU0    GPU1    GPU2    GPU3    mlx4_0  CPU Affinity
GPU0     X      PIX     PHB     PHB     PHB     0-9,20-29
GPU1    PIX      X      PHB     PHB     PHB     0-9,20-29
GPU2    PHB     PHB      X      PIX     PHB     0-9,20-29
GPU3    PHB     PHB     PIX      X      PHB     0-9,20-29
"""
"""An answer of 2017 (kubernetes/kubernetes#53497, four of eight cards): no NUMA nodes."""

BRIDGES = """\
\x1b[4m        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity\x1b[0m
GPU0     X      NV4     NODE    NODE    0-31    0
GPU1    NV4      X      NODE    NODE    0-31    0
GPU2    NODE    NODE     X      NV4     0-31    0
GPU3    NODE    NODE    NV4      X      0-31    0
"""
"""Two bridges, in the form of the others; the header underlined as some versions do."""

MIG = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.40gb     Device  0: (UUID: MIG-7089d0f3-293f-58c9-8f8c-5ea666eedbde)
  MIG 1c.3g.40gb  Device  1: (UUID: MIG-56c30729-347f-5dd6-8da0-c3cf59cfdd0e)
  MIG 1g.10gb     Device  2: (UUID: MIG-9bd4c9f5-9b3a-5f8d-8e6e-0e6c6f5f9b11)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-a16a2b41-9f0c-4f3b-8c56-0c2b1f6f7d11)
"""
"""In the form of NVIDIA's MIG user guide (`nvidia-smi -L`)."""


@pytest.mark.parametrize(
    ("text", "links", "numas"),
    [
        pytest.param(H100, dict.fromkeys(range(8), 0), {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 2, 6: 2, 7: 3}, id="switch"),
        pytest.param(DESKTOP, {at: at for at in range(5)}, {0: 1, 1: 0, 2: 0, 3: 0, 4: 0}, id="no-nvlink"),
        pytest.param(UNKNOWN, {0: 0, 1: 1}, {1: 1}, id="unknown-numa"),
        pytest.param(OLD, {at: at for at in range(4)}, {}, id="old"),
        pytest.param(BRIDGES, {0: 0, 1: 0, 2: 2, 3: 2}, dict.fromkeys(range(4), 0), id="bridges"),
        pytest.param("No devices were found\n", {}, {}, id="none"),
        pytest.param("GPU0 X\nGPU1", {}, {}, id="cut-off"),
    ],
)
def test_the_matrix(text: str, links: dict[int, int], numas: dict[int, int]) -> None:
    """Islands are named by their first card; a card without NVLink is alone; what is not told is in neither."""
    assert parse_matrix(text) == Matrix(links, numas)


def test_a_cube_mesh_is_two_islands() -> None:
    """Eight cards of which each reaches four others by NVLink (an older DGX): the halves that are fully joined."""
    joined = {0: "1234", 1: "0235", 2: "0136", 3: "0127", 4: "0567", 5: "1467", 6: "2457", 7: "3456"}
    rows = [
        f"GPU{at} " + " ".join("X" if to == at else "NV1" if str(to) in joined[at] else "SYS" for to in range(8))
        for at in range(8)
    ]
    header = " ".join(f"GPU{at}" for at in range(8)) + " CPU Affinity"
    links = parse_matrix("\n".join([header, *(f"{row} 0-39" for row in rows)])).links
    assert links == {0: 0, 1: 0, 2: 0, 3: 0, 4: 4, 5: 4, 6: 4, 7: 4}


def test_instances_are_listed() -> None:
    """By card; what is divided further than MIG itself does is left out."""
    assert parse_instances(MIG) == {
        "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77": (
            ("3g.40gb", "MIG-7089d0f3-293f-58c9-8f8c-5ea666eedbde"),
            ("1g.10gb", "MIG-9bd4c9f5-9b3a-5f8d-8e6e-0e6c6f5f9b11"),
        )
    }


def test_the_kernel_knows_the_numa_node(tmp_path: Path) -> None:
    """By the PCI address as nvidia-smi writes it; -1 and what is not there are unknown."""
    for address, text in (("0000:3b:00.0", "1\n"), ("0000:5e:00.0", "-1\n")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(text)
    assert numa_of("00000000:3B:00.0", tmp_path) == 1
    assert [numa_of(one, tmp_path) for one in ("00000000:5E:00.0", "00000000:AF:00.0", "", "../x")] == [None] * 4


async def test_the_inventory_has_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards with their islands; of a split one its instances, which CUDA takes by their UUIDs. A tool that cannot tell
    how cards reach each other still tells of cards."""
    rows = "\n".join(
        f"{at}, GPU-{uuid}, NVIDIA A100-SXM4-80GB, 81920, 00000000:{at}0:00.0"
        for at, uuid in enumerate(("5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "a16a2b41-9f0c-4f3b-8c56-0c2b1f6f7d11"))
    )
    pair = BRIDGES.replace("GPU2    GPU3", "").split("GPU2")[0].replace("NODE    NODE", "")
    tool = tmp_path / "nvidia-smi"
    for topo in (f"cat <<'END'\n{pair}END", "echo failed >&2; exit 3"):
        listed, queried = f"cat <<'END'\n{MIG}END\n", f"cat <<'END'\n{rows}\nEND\n"
        tool.write_text(f'#!/bin/sh\ncase "$1" in -L) {listed};; topo) {topo}\n;; *) {queried};; esac\n')
        tool.chmod(0o755)
        monkeypatch.setattr(inventory.shutil, "which", lambda _: str(tool))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        three, one, whole = (await take_inventory("local", None)).cards
        assert [card.profile for card in (three, one, whole)] == ["3g.40gb", "1g.10gb", ""]
        assert (three.id[:8], three.memory_bytes >> 20, three.virtual) == ("MIG-7089", 40192, False)
        assert (whole.link, whole.numa) == ((0, 0) if "cat" in topo else (None, None))
