"""Frameworks are imported when an adapter is, and never by the SDK itself."""

from __future__ import annotations

import importlib
from types import ModuleType


def need(module: str, extra: str) -> ModuleType:
    """The module. Raises ImportError that says which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] == module.partition(".")[0]:
            raise ImportError(
                f"{module} is not installed: pip install 'relume-trainer[{extra}]' (or 'relume[{extra}]')",
                name=error.name,
            ) from None
        raise
