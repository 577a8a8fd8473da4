"""The version of the installed package."""

from __future__ import annotations

import importlib.metadata


def installed_version() -> str:
    """Such as 0.1.0."""
    return importlib.metadata.version("relume")
