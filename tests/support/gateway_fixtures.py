"""Fixtures of the data port's tests, for the conftest of each folder that has such tests."""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest
import uvloop

from tests.support.gateway import Gateways

_LONGEST = 300.0  # seconds; a minute was reached at a load of forty


def loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The data port runs on either loop, so its tests do."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    """Starts gateways; after the test, nothing of them may be left."""
    made = Gateways()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """No test of the data port may hang: after five minutes the process writes all stacks and ends."""
    faulthandler.dump_traceback_later(_LONGEST, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
