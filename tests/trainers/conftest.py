"""These tests need the frameworks, which the ordinary suite's environment has not: `make trainers` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out, unless it is run with its own settings."""
    return None if config.inipath == HERE / "pytest.ini" else True
