"""A local cluster with training jobs, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.training_stage import QUICK, TrainingStage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[TrainingStage]:
    """A started cluster with an empty log."""
    made = TrainingStage(tmp_path / "data", QUICK)
    await made.cluster.start()
    yield made
    await made.close()
