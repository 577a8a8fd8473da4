"""`relume bench` and `relume demo`: commands whose work is elsewhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from deploy.cli.commands import command
from deploy.cli.failing import Refused


@command("bench", ("relume bench", "relume bench --help                    # what can be measured"),
         context_settings={"ignore_unknown_options": True, "help_option_names": []})  # fmt: skip
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: Sequence[str]) -> int:
    """Measure relume against its yardsticks in one run. Arguments go to the runner, `python -m bench`."""
    if importlib.util.find_spec("bench") is None:
        raise Refused(
            "the benchmarks are not installed", why="they are part of the source, not of the package",
            remedy="run it in a checkout of relume's source: make bench",
        )  # fmt: skip
    return subprocess.run([sys.executable, "-m", "bench", *arguments], check=False).returncode


@command("demo", ("relume demo", "relume demo --out report/ --weights my-model.gguf"))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="relume-demo", show_default=True,
              help="Folder of the report.")  # fmt: skip
@click.option("--weights", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A GGUF file instead of the small model (98 MB), which is fetched once.")  # fmt: skip
def demo(out: Path, weights: Path | None) -> int:
    """Show the main job with a real model: from zero, a stream, a burst, more replicas, back to zero; then a report."""
    from deploy.demo.run import DemoOptions, run  # noqa: PLC0415 - everything that the demo needs

    return run(DemoOptions(out=out, weights=weights))
