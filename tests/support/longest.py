"""The order of the suite: the longest files first, so that no worker is left with one when the others are done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parent.parent
LONGEST: Final = (
    "e2e/test_inference_kafka.py",
    "simulation/test_whole.py",
    "e2e/test_parts_killed.py",
    "e2e/test_long_mixed.py",
    "e2e/test_kubernetes_faults.py",
    "e2e/test_lending.py",
    "e2e/test_faults_killed.py",
    "e2e/test_faults_signals.py",
    "e2e/test_kubernetes_training_faults.py",
    "faults/test_several_gateways.py",
    "deploy/kubernetes/test_running.py",
    "simulation/test_autoscaler_group.py",
    "faults/test_kafka_log.py",
)
"""The longest of all, `tests/architecture` says when one of them is no more."""


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those of `LONGEST`, then files with slow tests, those of whole relumes before others, then the rest; within a
    file as before."""
    items = list(items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    places = {TESTS / name: number for number, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        if item.path in places:
            return places[item.path]
        return len(places) + (2 if item.path not in slow else 0 if item.path.parent.name == "e2e" else 1)

    return sorted(items, key=place)
