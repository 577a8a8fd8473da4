"""`python -m bench`: run benchmarks, print one table. See docs/benchmarks.md."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from bench import report
from bench.catalog import BENCHMARKS
from bench.figures import Effort, Figure, Verdict

RESULTS = Path("bench-results.json")


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: measured (whatever the verdicts); 1: a benchmark failed; 2: wrong use."""
    options = _parser().parse_args(arguments)
    if options.list:
        for name, about in BENCHMARKS.items():
            print(f"{name:12} {about.what}")
        return 0
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    quick: bool = options.quick
    seconds: float = options.seconds or (0.3 if quick else 2.0)
    effort = Effort(quick, seconds, options.rounds or (1 if quick else 3))
    failed: list[str] = []
    results = {name: _run(name, effort, failed) for name in options.names or BENCHMARKS}
    if options.output == "json":
        print(report.as_json(results, effort), end="")
    else:
        report.table(results, Console(width=None if sys.stdout.isatty() else 180))
    if options.save:
        RESULTS.write_text(report.as_json(results, effort), encoding="utf-8")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure relume against its yardsticks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benchmarks; default: all")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, the numbers mean little")
    parser.add_argument("--seconds", type=_positive, help="length of one timed stretch (default 2)")
    parser.add_argument("--rounds", type=int, choices=range(1, 21), metavar="N", help="rounds, interleaved (default 3)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="json: for machines")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS} too")
    parser.add_argument("--list", action="store_true", help="say what there is")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number <= 600:
        raise argparse.ArgumentTypeError("seconds lie above 0 and up to 600")
    return number


def _run(name: str, effort: Effort, failed: list[str]) -> Sequence[Figure]:
    began = time.monotonic()
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    try:
        module = importlib.import_module(BENCHMARKS[name].module)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures: Sequence[Figure] = runner.run(module.run(effort))
    except Exception as error:  # noqa: BLE001 - the other benchmarks go on; the exit code and the table tell of this one
        traceback.print_exc()
        failed.append(name)
        figures = [Figure(what=BENCHMARKS[name].what, why=f"it failed: {type(error).__name__}: {error}")]
    missed = sum(figure.verdict is Verdict.MISSED for figure in figures)
    print(f"{time.monotonic() - began:.0f} s{f', {missed} missed' if missed else ''}", file=sys.stderr)
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
