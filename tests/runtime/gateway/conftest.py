"""Fixtures of the data port's tests: a gateway that is drained, and checked to hold nothing, after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import Gateways


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    """Starts gateways; after the test, nothing of them may be left."""
    made = Gateways()
    yield made
    await made.close()
