"""A local cluster for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.local_cluster import Stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A started cluster with an empty log."""
    made = Stage(tmp_path / "data")
    await made.cluster.start()
    yield made
    await made.close()
