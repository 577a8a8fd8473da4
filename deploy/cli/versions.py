"""The version of the installed package."""

from __future__ import annotations

import importlib.metadata
import importlib.util


def hot_path() -> str:
    """Whether the data port runs ``compiled`` here, or ``uncompiled``: the same sources, at about twice the CPU."""
    spec = importlib.util.find_spec("runtime.gateway.exchange")
    return "uncompiled" if spec is None or str(spec.origin).endswith(".py") else "compiled"


def installed_version() -> str:
    """Such as 0.1.0."""
    return importlib.metadata.version("relume")
