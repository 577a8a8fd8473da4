"""How relume's own server programs (`runtime.engines`) are started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import runtime
from runtime.ports import Launch

_ROOT = str(Path(runtime.__file__).resolve().parent.parent)


def program(module: str, flags: Mapping[str, object]) -> Launch:
    """``python -P -m module --flag value …``; a flag that is None or False is left out, a True one takes no value.

    ``-P`` keeps the working folder off the import path: a replica may run where a user's files lie. PYTHONPATH names
    the folder that holds relume, so that it also starts from a source tree that is not installed.
    """
    argv = [sys.executable, "-P", "-m", module]
    for name, value in flags.items():
        if value is None or value is False:
            continue
        argv.append(f"--{name}")
        if value is not True:
            argv.append(str(value))
    return Launch(argv=tuple(argv), env={"PYTHONPATH": _ROOT})
