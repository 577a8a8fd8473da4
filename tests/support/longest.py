"""The order of the suite: the longest files first, so that no worker is left with one when the others are done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parent.parent
LONGEST: Final = ()
"""Files that take longer than half a minute, the longest first (measured)."""


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those of `LONGEST`, then files with slow tests, then the rest; within a file as before."""
    items = list(items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    places = {TESTS / name: number for number, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        return places.get(item.path, len(places) + (item.path not in slow))

    return sorted(items, key=place)
