"""`--rewrite`: write the expected output of the traces anew instead of comparing it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected output of tests/traces/autoscaler anew")
