"""The MIG profiles of each card, as NVIDIA's MIG user guide (r580) and ``nvidia-smi mig -lgip``/``-lgipp`` give them.

A row is (profile, compute slices, memory slices, MiB that it has, starts). Starts and sizes are in memory slices. MiB
is 0 where no output that we know tells it. A name does not fix the slices: 1g.10gb is two memory slices of an A100 with
40 GB and one of an A100 with 80 GB, so profiles are always looked up by card.

`CONFIRMED` are the families whose starts were read from real ``-lgipp`` outputs; the others have the same chip layout
and are inferred. No MIG hardware was at hand: docs/flaws.md.
"""

from __future__ import annotations

from typing import Final

Row = tuple[str, int, int, int, tuple[int, ...]]

_ONES: Final = (0, 1, 2, 3, 4, 5, 6)
_TWOS: Final = (0, 2, 4)
_WIDE: Final = (0, 2, 4, 6)
_HALVES: Final = (0, 4)
_FOUR_ONES: Final = (0, 1, 2, 3)


def _seven(names: tuple[str, str, str, str, str], mebibytes: tuple[int, int, int, int]) -> tuple[Row, ...]:
    """The layout of all cards with seven compute and eight memory slices: the names of one slice, two, three, four and
    seven compute slices, and the MiB of one, two, four and eight memory slices."""
    one, two, three, four, all_ = names
    small, double, half, full = mebibytes
    wide = "1g." + two.partition(".")[2]
    return (
        (one, 1, 1, small, _ONES),
        (f"{one}+me", 1, 1, small, _ONES),
        (wide, 1, 2, double, _WIDE),
        (two, 2, 2, double, _TWOS),
        (three, 3, 4, half, _HALVES),
        (four, 4, 4, half, (0,)),
        (all_, 7, 8, full, (0,)),
    )


PROFILES: Final[dict[str, tuple[Row, ...]]] = {
    "A100-40GB": _seven(("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), (4864, 9856, 19968, 40192)),
    "A100-80GB": _seven(("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9856, 19968, 40192, 80384)),
    "H100-80GB": _seven(("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9984, 20091, 40448, 81152)),
    "H100-94GB": _seven(("1g.12gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"), (0, 0, 47493, 95355)),
    "H100-96GB": _seven(("1g.12gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"), (0, 0, 0, 0)),
    "H200-141GB": _seven(("1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"), (16384, 33280, 0, 143360)),
    "B200-180GB": _seven(("1g.23gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"), (0, 0, 0, 0)),
    "GB200-186GB": _seven(("1g.23gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"), (0, 0, 0, 0)),
    "GH200-144GB": _seven(("1g.18gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"), (0, 0, 0, 0)),
    "B300-269GB": _seven(("1g.34gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"), (0, 0, 0, 0)),
    "GB300-278GB": _seven(("1g.35gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"), (0, 0, 142336, 284672)),
    "A30-24GB": (
        ("1g.6gb", 1, 1, 5836, _FOUR_ONES),
        ("1g.6gb+me", 1, 1, 5836, _FOUR_ONES),
        ("2g.12gb", 2, 2, 11672, (0, 2)),
        ("2g.12gb+me", 2, 2, 11672, (0, 2)),
        ("4g.24gb", 4, 4, 23344, (0,)),
    ),
    "RTX-PRO-6000-96GB": (
        ("1g.24gb", 1, 1, 0, _FOUR_ONES),
        ("2g.48gb", 2, 2, 0, (0, 2)),
        ("4g.96gb", 4, 4, 0, (0,)),
    ),
}  # fmt: skip
"""By card family."""

SLICES: Final = {"A30-24GB": (4, 4), "RTX-PRO-6000-96GB": (4, 4)}
"""(compute slices, memory slices) of families that do not have (7, 8)."""

CONFIRMED: Final = frozenset({"A100-40GB", "A100-80GB", "H100-80GB", "H100-94GB", "A30-24GB"})
"""Families whose starts were read from real outputs (A100-80GB: same chip as A100-40GB)."""

OTHER_NAMES: Final = (
    "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me",
    "4g.96gb+gfx", "3g.95gb", "4g.95gb", "7g.189gb", "1g.31gb", "1g.31gb+me", "3g.126gb", "4g.126gb", "7g.251gb",
)  # fmt: skip
"""Names that cards have been seen with and that are not in the table: those of an RTX PRO 6000 with and without its
engines, of a GB200 by its real ``-lgip``, and of a GB300 under drivers of the series 610, whose names differ."""

PRODUCTS: Final = {
    "NVIDIA A100-SXM4-40GB": "A100-40GB", "NVIDIA A100-PCIE-40GB": "A100-40GB",
    "NVIDIA A100-SXM4-80GB": "A100-80GB", "NVIDIA A100 80GB PCIe": "A100-80GB",
    "NVIDIA H100 80GB HBM3": "H100-80GB", "NVIDIA H100 PCIe": "H100-80GB",
    "NVIDIA H100 NVL": "H100-94GB", "NVIDIA H800 NVL": "H100-94GB",
    "NVIDIA H100 SXM5 96GB": "H100-96GB", "NVIDIA GH200 480GB": "H100-96GB", "NVIDIA H20": "H100-96GB",
    "NVIDIA H200": "H200-141GB", "NVIDIA H200 NVL": "H200-141GB",
    "NVIDIA B200": "B200-180GB", "NVIDIA GB200": "GB200-186GB", "NVIDIA A30": "A30-24GB",
    "NVIDIA GH200 144G HBM3e": "GH200-144GB", "NVIDIA B300 SXM6 AC": "B300-269GB", "NVIDIA GB300": "GB300-278GB",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000-96GB",
}  # fmt: skip
"""Family by the product's name as nvidia-smi and NVML write it."""
