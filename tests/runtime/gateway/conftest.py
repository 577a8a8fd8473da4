"""Fixtures of the data port's tests: both event loops, and gateways that hold nothing after each test."""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

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


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """No test of the data port may hang: after 60 s the process writes all stacks and ends."""
    faulthandler.dump_traceback_later(25, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
