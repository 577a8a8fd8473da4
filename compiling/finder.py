"""Finds the compiled modules of a checkout, where they were built from its sources as they are now.

A `.pth` file in the environment imports this at the start of Python (`compiling.build` writes it); nothing is looked at
before a module of the hot path is imported. The compiled files lie in `build/`, not beside the sources: an edited
source can so never be shadowed by what was compiled of it before. RELUME_PURE=1 turns it off.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

PACKAGES = ("runtime.", "coldstart.", "events.")
SHARED = "relume_hot__mypyc"
"""The extension that holds the code of all modules."""


class CompiledFinder:
    """Goes before the usual finders."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._looked = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The compiled form of a module; None: the usual one."""
        del path, target
        if not name.startswith(PACKAGES) and name != SHARED:
            return None
        if not self._looked:
            self._look()
        if self._folder is None:
            return None
        file = self._folder / (name + EXTENSION_SUFFIXES[0])
        if not file.is_file():
            return None
        return importlib.util.spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))

    def _look(self) -> None:
        self._looked = True
        from compiling.modules import usable  # noqa: PLC0415 - most processes of the environment never need it

        self._folder = usable()


def install() -> None:
    """Use it from now on."""
    if os.environ.get("RELUME_PURE", "") in {"", "0"}:
        sys.meta_path.insert(0, CompiledFinder())


install()
