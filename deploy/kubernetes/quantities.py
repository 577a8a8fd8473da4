"""Kubernetes' quantities: ``100m``, ``2``, ``16Gi``, ``1e3``. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")
_UNITS: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10**3), "M": Decimal(10**6),
    "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    **{f"{letter}i": Decimal(1 << 10 * power) for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip
_MEBIBYTES: Final = re.compile(r"[0-9]{1,18}")
MOST_MEBIBYTES: Final = 1 << 24
"""Of a card's memory; many times what any has."""


def read_quantity(text: str | float) -> float:
    """The number. Raises ValueError."""
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, unit = found.groups()
    return float(Decimal(number + (exponent or "")) * _UNITS.get(unit or "", Decimal(1)))


def write_cpu(cores: float) -> str:
    """Thousandths of a core, rounded up."""
    milli = -(-round(cores * 1_000_000) // 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def card_memory(mebibytes: str) -> int | None:
    """Bytes of a card's memory, as labels and annotations tell it; None: that is no number, or no card's (16 TiB and
    more)."""
    return int(mebibytes) << 20 if _MEBIBYTES.fullmatch(mebibytes) and int(mebibytes) < MOST_MEBIBYTES else None
