"""MIG profiles by name: of which cards, how much they have, which stand beside each other. Without numpy: for checks of
documents and for adapters (`preemption.core.gpus.mig` has the tables for placement)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from preemption.core.gpus.mig_table import OTHER_NAMES, PRODUCTS, PROFILES, SLICES, Row
from preemption.core.gpus.shapes import MILLI

_NUMBERS: Final = re.compile(r"([0-9]{1,3})g\.([0-9]{1,4})")
_COMPUTE: Final = re.compile(r"([0-9]{1,3})g\..*")

MOST_SLICES: Final = (7, 8)
"""(compute slices, memory slices) of all cards but those in `SLICES`."""

SIZE_GAP: Final = 0.05
"""A card's memory may be this far from the size in the family's name (an H100 with "80 GB" reports 79.6 GiB)."""


def known_profiles() -> tuple[str, ...]:
    """All names of profiles, the small ones first."""
    return tuple(sorted({row[0] for rows in PROFILES.values() for row in rows} | set(OTHER_NAMES), key=_size))


def nearest_profile(name: str, among: Sequence[str] | None = None) -> str:
    """The known profile whose numbers are nearest, the compute slices first; where there are no numbers, whose name is
    most like this one. Of equals the smallest."""
    known = known_profiles() if among is None else tuple(among)
    plain = name.strip().lower().removeprefix("nvidia.com/mig-").replace(".me", "+me").replace("-", ".")
    if plain in known:
        return plain
    numbers = _NUMBERS.match(plain)
    if numbers is not None:
        compute, memory = int(numbers[1]), int(numbers[2])
        return min(known, key=lambda one: (abs(_size(one)[0] - compute), abs(_size(one)[1] - memory), len(one)))
    return (get_close_matches(plain, known, n=1, cutoff=0.0) or known[:1])[0]


def families_with(profile: str) -> tuple[str, ...]:
    """The kinds of cards that have this profile."""
    return tuple(name for name, rows in PROFILES.items() if any(row[0] == profile for row in rows))


def profile_bytes(family: str, profile: str) -> int:
    """What an instance of this profile has, 0 when unknown. KeyError: there is no such family."""
    return next((row[3] << 20 for row in PROFILES[family] if row[0] == profile), 0)


def starts_beside(family: str, profiles: Sequence[str]) -> tuple[int, ...]:
    """The first memory slices of instances of these profiles beside each other on one card. ValueError, as ``RULE;
    REMEDY``, where there is no such profile or they do not fit together. KeyError: there is no such family."""
    rows = {row[0]: row for row in PROFILES[family]}
    for name in profiles:
        if name not in rows:
            near = nearest_profile(name, tuple(rows))
            raise ValueError(f"{family} has no MIG profile {name}; write {near}, or another of {', '.join(rows)}")
    compute, slices = SLICES.get(family, MOST_SLICES)
    if sum(name.endswith("+me") for name in profiles) > 1:
        raise ValueError(f"one {family} has one set of media engines; write +me once")
    starts = _starts([rows[name] for name in profiles], 0, compute) if len(profiles) <= slices else None
    if starts is None:
        listed = ", ".join(profiles)
        raise ValueError(f"{listed} do not fit on one {family} ({compute} compute, {slices} memory slices); take fewer")
    return starts


def family_of(product: str, memory_bytes: int = 0) -> str | None:
    """The family of a card by its product's name; where the name leaves it open, by its memory. None: no MIG card."""
    known = PRODUCTS.get(product)
    if known is not None or "MIG" in product:
        return known
    return min((name for name in _named(product) if _size_gap(name, memory_bytes) <= SIZE_GAP),
               key=lambda name: _size_gap(name, memory_bytes), default=None)  # fmt: skip


def _named(product: str) -> Sequence[str]:
    """The families whose name stands in a product's."""
    words = product.replace("RTX PRO 6000", "RTX").split()
    return [name for name in PROFILES if name.partition("-")[0] in words]


def compute_part(product: str, profile: str) -> float:
    """Which part of its card's compute slices an instance of this profile has (``3g.20gb`` of an A100: 3/7; what the
    profile leaves to one of several programs, ``1c.3g.20gb``, is still that). Where the product is not known, of the
    cards that have the profile those with most slices. 1.0: no MIG instance."""
    found = _COMPUTE.search(profile)
    if found is None:
        return 1.0
    near = _named(product)[:1] or families_with(found[0])
    compute = max((SLICES.get(name, MOST_SLICES)[0] for name in near), default=MOST_SLICES[0])
    return min(1.0, int(found[1]) / compute)


@lru_cache(maxsize=256)
def instance_milli(profile: str) -> int:
    """Thousandths of a card that an instance counts as where only its profile is known, rounded down: so all that are
    beside each other are no more than their card."""
    return max(1, int(MILLI * compute_part("", profile)))


def named_bytes(family: str) -> int:
    """The memory of a card by its family's name."""
    return int(float(family.rsplit("-", 1)[1].removesuffix("GB")) * (1 << 30))


def _size(name: str) -> tuple[int, int, str]:
    """Compute slices, gigabytes, and the name itself."""
    compute, _, rest = name.partition("g.")
    return int(compute), int(rest.partition("gb")[0]), name


def _size_gap(name: str, memory_bytes: int) -> float:
    """How far a card's memory is from the GiB in the family's name, as a share of it."""
    return abs(memory_bytes - named_bytes(name)) / named_bytes(name)


def _starts(rows: Sequence[Row], used: int, compute: int) -> tuple[int, ...] | None:
    """Starts for all of them that overlap neither each other nor `used` (a bit a memory slice); None: there are
    none."""
    if not rows:
        return ()
    _, takes, size, _, able = rows[0]
    for start in able:
        bits = ((1 << size) - 1) << start
        if not used & bits and takes <= compute:
            rest = _starts(rows[1:], used | bits, compute - takes)
            if rest is not None:
                return start, *rest
    return None
