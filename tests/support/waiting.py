"""Waiting for what other callbacks, threads or processes bring about, without an event to wait on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK = 0.01
"""Seconds between two looks."""


async def until(holds: Callable[[], object], within: float = 15.0, told: Callable[[], object] = lambda: "") -> None:
    """Return once it holds; AssertionError with what `told` says when it does not within so many seconds."""
    try:
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110 - see above
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise AssertionError(f"not within {within} s; {told()}") from None
