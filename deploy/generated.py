"""Files that are made of the code: ``--write`` writes one anew, ``--check`` fails when it is out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_or_check(module: str, file: Path, text: str, arguments: Sequence[str] | None) -> int:
    """The command line of a module that makes one file; its exit status: 1 when --check finds the file stale."""
    name = file.relative_to(ROOT)
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"Make {name} of the code.")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help=f"write {name}")
    choice.add_argument("--check", action="store_true", help=f"fail when {name} is out of date")
    if parser.parse_args(arguments).write:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return 0
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{name} is out of date; run python -m {module} --write\n")
    return 1
