"""The services that a process's tests share, a broker and a control plane: each is ended when no test needs it for now.

An idle one takes three hundredths of a core, all along; a new one takes seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

MODULES: Final = {"kafka": "tests.support.kafka_broker", "kubernetes": "tests.support.kube_plane"}
"""Who starts one, by what tests say that they need; each has an `end_shared`."""


class Services:
    """Which files need which service."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        self._needed: dict[Path, set[str]] = {}
        for item in items:
            needs = {name for mark in item.iter_markers("needs") for name in mark.args}
            self._needed.setdefault(item.path, set()).update(needs & set(MODULES))

    def after(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """A test is over: end what the next file has no use for."""
        if following is not None and following.path == item.path:
            return
        wanted = self._needed.get(following.path, set()) if following is not None else set()
        for name in set(MODULES) - wanted:
            if (module := sys.modules.get(MODULES[name])) is not None:  # else nobody has started one
                module.end_shared()
