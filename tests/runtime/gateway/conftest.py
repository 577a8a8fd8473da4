"""Tests of the data port: both event loops, and gateways that hold nothing after each test."""

from __future__ import annotations

from tests.support.gateway_fixtures import bounded, gateways
from tests.support.gateway_fixtures import loop_factories as pytest_asyncio_loop_factories

__all__ = ["bounded", "gateways", "pytest_asyncio_loop_factories"]
