"""`relume apply` and `relume delete`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.options import Kind, complete_listed, output, talking
from deploy.cli.output import say, show_json

if TYPE_CHECKING:
    from deploy.spec.kinds import Document


class _Duration(click.ParamType[float]):
    """``90s``, ``5m``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from events.units import parse_duration  # noqa: PLC0415 - only where a duration is given

        if isinstance(value, float):
            return value
        try:
            return float(parse_duration(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()


@command("apply", (
    "relume apply -f model.yaml",
    "relume apply -f models/ --dry-run      # models and training jobs; say what would change",
    "relume apply -f model.yaml --wait      # until it is ready, or at zero",
    "relume get models llama -o yaml | sed s/maxReplicas:.*/maxReplicas:\\ 8/ | relume apply -f -",
))  # fmt: skip
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="File, folder, or - .")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@click.option("--wait", is_flag=True, help="Wait until models are ready or at zero, and jobs run.")
@click.option("--timeout", type=DURATION, default="10m", show_default=True, help="Longest wait.")
@output("text", "json")
@talking
def apply(  # noqa: PLR0913 - one parameter an option
    connection: Connection, files: Sequence[str], output: str, timeout: float, *, dry_run: bool, wait: bool
) -> None:
    """Declare models, training jobs and pools: all documents of all files, or none."""
    result = declare(connection, files, dry_run=dry_run)
    if output == "json":
        show_json(result)
    else:
        for item in result["items"]:
            say(applied(item, dry_run=dry_run))
    if wait and not dry_run:
        from deploy.cli.waiting import wait_until_settled  # noqa: PLC0415 - only with --wait

        wait_until_settled(connection, result["items"], timeout)


def declare(connection: Connection, files: Sequence[str], *, dry_run: bool) -> dict[str, Any]:
    """Declare the documents of some files; the answer. Refused with every problem."""
    from deploy.cli.checking import read_files  # noqa: PLC0415 - reading files takes pydantic, `delete` does not

    return send_documents(connection, read_files(files), dry_run=dry_run)


def send_documents(connection: Connection, documents: Sequence[Document], *, dry_run: bool) -> dict[str, Any]:
    """Declare documents that were read; the answer."""
    plain = [one.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True) for one in documents]
    body = "\n---\n".join(json.dumps(document) for document in plain).encode()
    answer: dict[str, Any] = connection.ask(
        Question("POST", "/v1alpha1/apply", {"dryRun": dry_run}, body, "application/yaml")
    )
    return answer


@dataclass(frozen=True, slots=True)
class _Deletable:
    """A kind that can be deleted: where, what people call it, what follows, and how it is told that there is none."""

    path: str
    word: str
    follows: str
    none: str


_MODELS = _Deletable("models", "model", "its replicas drain", "model-not-found")
_TRAINING = _Deletable("training", "training job", "what runs of it ends", "training-job-not-found")
_POOLS = _Deletable("pools", "pool", "the defaults hold again", "pool-not-found")
_DELETABLE: Final = {
    "model": _MODELS, "models": _MODELS, "training": _TRAINING, "pool": _POOLS, "pools": _POOLS,
}  # fmt: skip


@command("delete", (
    "relume delete model llama",
    "relume delete model llama qwen --ignore-missing",
    "relume delete training tune",
    "relume delete pool default",
))  # fmt: skip
@click.argument("kind", type=Kind(list(_DELETABLE), "model"), metavar="model|training|pool")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_listed)
@click.option("--ignore-missing", is_flag=True, help="What is not declared is no error.")
@talking
def delete(connection: Connection, kind: str, names: Sequence[str], *, ignore_missing: bool) -> None:
    """Declare models, training jobs or pools no longer.

    Held requests of a model get 404; running ones finish; then its replicas stop. A training job is told to save, and
    ends; what it has saved stays where it is.
    """
    delete_all(connection, kind, names, ignore_missing=ignore_missing)


def delete_all(
    connection: Connection,
    kind: str,
    names: Sequence[str],
    *,
    ignore_missing: bool,
    query: Mapping[str, object] | None = None,
) -> None:
    """Delete each; say so. `query`: parameters of each request."""
    deletable = _DELETABLE[kind]
    for name in names:
        try:
            connection.ask(Question("DELETE", f"/v1alpha1/{deletable.path}/{segment(name)}", query))
        except Refused as refused:
            if not (ignore_missing and refused.name == deletable.none):
                raise
            continue
        say(f"{deletable.word} {name} deleted; {deletable.follows}")


def applied(item: dict[str, Any], *, dry_run: bool) -> str:
    """What became of one document."""
    metadata = item["metadata"]
    word = {"Model": "model", "TrainingJob": "training job", "GpuPool": "pool"}.get(item["kind"], item["kind"])
    would = " (dry run)" if dry_run else ""
    revision = f", revision {metadata['revision']}" if item["action"] != "unchanged" else ""
    return f"{word} {metadata['name']} {item['action']}{revision}{would}"
