"""Fixtures of the data port's tests: both event loops, and gateways that are checked to hold nothing after each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.support.gateway import Gateways


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The data port runs on either loop, so its tests do."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    """Starts gateways; after the test, nothing of them may be left."""
    made = Gateways()
    yield made
    await made.close()
