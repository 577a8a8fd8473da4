"""Which modules are compiled, and whether a build is of the sources as they are now. The standard library only."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

MODULES: Final = (
    *(f"runtime.gateway.{name}" for name in (
        "answer", "budgets", "chunks", "client_connection", "context", "exchange", "ids", "json_body", "last_head",
        "outbox", "pool", "request", "request_head", "response_head", "routing", "settings", "sse", "states", "turns",
        "upstream", "wheel",
    )),
    *(f"runtime.core.{name}" for name in (
        "authority", "commands", "holder", "ledger", "meter", "model_slots", "records", "sketch", "slots",
    )),
    "runtime.desk.desk",
    "runtime.desk.shared",
    "runtime.ports",
    "events.clock",
    "coldstart.core.hold",
)  # fmt: skip
"""What a request on a warm connection passes, and what inherits from it: a class of a compiled module can have no
subclass in one that is not."""

_IMPORT: Final = re.compile(
    r"^(?:from ((?:events|coldstart|runtime)[\w.]*) import ([\w, ()\n]+)|import ([\w.]+))", re.MULTILINE
)


def source(module: str) -> Path:
    """Its file."""
    return ROOT / (module.replace(".", "/") + ".py")


def digest() -> str:
    """Of all sources that the compiled code depends on, of this interpreter, and of how it is built.

    A module that a compiled one imports counts too: its constants and types are compiled in.
    """
    found = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.platform}".encode())
    for path in sorted({*map(source, MODULES), *_imported(), *Path(__file__).parent.glob("*.py")}):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def _imported() -> set[Path]:
    """The first-party modules that compiled ones import."""
    paths: set[Path] = set()
    for module in MODULES:
        for found in _IMPORT.finditer(source(module).read_text(encoding="utf-8")):
            package, names = found[1], found[2]
            if package is None:
                continue
            paths.add(source(package))
            paths |= {source(f"{package}.{name.strip(' ()')}") for name in names.split(",")}
    return {path for path in paths if path.is_file()}


def built_into() -> Path:
    """Where this interpreter's build lies."""
    return ROOT / "build" / "compiled" / str(sys.implementation.cache_tag)


def usable() -> Path | None:
    """The folder of a build of exactly these sources, or None."""
    folder = built_into()
    try:
        stamp = json.loads((folder / "stamp.json").read_text(encoding="utf-8"))
        return folder if stamp["digest"] == digest() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
