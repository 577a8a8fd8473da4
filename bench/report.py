"""The table for people and the JSON for machines."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench import machine
from bench.figures import Effort, Figure, Verdict

_STYLES = {Verdict.MISSED: "red", Verdict.NOT_MEASURED: "yellow", Verdict.GOAL: "green", Verdict.REACHED: "green"}


def table(results: Mapping[str, Sequence[Figure]], console: Console) -> None:
    """One table; remarks below it."""
    shown = Table(show_lines=False, pad_edge=False)
    for title in ("what", "measured", "yardstick", "ratio", "target", "verdict"):
        shown.add_column(title, overflow="fold", justify="right" if title == "ratio" else "left")
    for name, figures in results.items():
        shown.add_section()
        for figure in figures:
            cells = figure.cells()
            shown.add_row(f"{name}: {cells[0]}", *cells[1:], style=_STYLES.get(figure.verdict))
    console.print(shown)
    for name, figures in results.items():
        for figure in figures:
            if figure.why:
                console.print(f"{name}: {figure.what}: {figure.why}", markup=False)
    console.print(f"CPU figures are the proxy's process alone. Measured on {machine.in_words()}.", markup=False)


def as_json(results: Mapping[str, Sequence[Figure]], effort: Effort) -> str:
    """All figures, how they were measured, and on what."""
    said = {
        "machine": machine.in_words(),
        "measuredAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": effort.quick,
        "seconds": effort.seconds,
        "rounds": effort.rounds,
        "benchmarks": {name: [figure.as_json() for figure in figures] for name, figures in results.items()},
    }
    return json.dumps(said, indent=2) + "\n"
