"""An admin server on a free port over a log in memory, with fakes for the parts that other packages fulfil."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.admin import Admin, running_admin


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """A running admin server with its defaults."""
    async with running_admin() as running:
        yield running
