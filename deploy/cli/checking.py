"""`relume validate` and `relume schema`: the declaration without a running relume."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from deploy.cli.commands import command
from deploy.cli.failing import Refused
from deploy.cli.options import output
from deploy.cli.output import say, show_json
from deploy.spec.kinds import Document
from deploy.spec.load import load_files
from deploy.spec.pool import GpuPool
from deploy.spec.problem import SpecProblem, shown
from deploy.spec.training import TrainingJob


@command("validate", (
    "relume validate -f model.yaml",
    "relume validate -f models/ -o json     # every problem with file, line, path, rule and remedy",
    "cat model.yaml | relume validate -f -",
))  # fmt: skip
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="File, folder, or - .")
@output("text", "json")
def validate(files: Sequence[str], output: str) -> int:
    """Check declarations without applying them. Exit code 1 when there is any problem."""
    loaded = load_files(files, sys.stdin.buffer)
    if output == "json":
        show_json({
            "valid": not loaded.problems,
            "models": [model.metadata.name for model in loaded.models],
            "training": [job.metadata.name for job in loaded.documents if isinstance(job, TrainingJob)],
            "pools": [pool.metadata.name for pool in loaded.documents if isinstance(pool, GpuPool)],
            "problems": [_plain(problem) for problem in loaded.problems],
        })  # fmt: skip
    elif loaded.problems:
        raise refused_files(loaded.problems)
    else:
        names = ", ".join(document.metadata.name for document in loaded.documents)
        say(f"valid: {names}")
    return 1 if loaded.problems else 0


@command("schema", (
    "relume schema > model.schema.json",
    "relume schema training > training.schema.json",
    "# in an editor with yaml-language-server, as the first line of a file:",
    "# yaml-language-server: $schema=./model.schema.json",
))  # fmt: skip
@click.argument("kind", type=click.Choice(["model", "training", "pool"]), default="model")
def schema(kind: str) -> None:
    """Print the JSON Schema of a declaration, of a model, a training job or a pool, for editors and other programs."""
    from deploy.spec.schema import model_schema, pool_schema, training_schema  # noqa: PLC0415 - `validate` does not need it

    show_json({"model": model_schema, "training": training_schema, "pool": pool_schema}[kind]())


def read_files(files: Sequence[str]) -> tuple[Document, ...]:
    """The documents of some files; Refused with every problem."""
    loaded = load_files(files, sys.stdin.buffer)
    if loaded.problems:
        raise refused_files(loaded.problems)
    return loaded.documents


def refused_files(problems: Sequence[SpecProblem]) -> Refused:
    """The answer that tells every problem of the files."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return Refused(f"{count} in the declaration", why="\n".join(str(problem) for problem in problems))


def _plain(problem: SpecProblem) -> dict[str, object]:
    return {
        "file": problem.file, "line": problem.line, "path": problem.path,
        "value": None if problem.value is None else shown(problem.value), "rule": problem.rule,
        "remedy": problem.remedy,
    }  # fmt: skip
