"""`relume apply` and `relume delete`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.options import Kind, complete_models, output, talking
from deploy.cli.output import say, show_json


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
    "relume apply -f models/ --dry-run      # say what would change",
    "relume apply -f model.yaml --wait      # until it is ready, or at zero",
    "relume get models llama -o yaml | sed s/maxReplicas:.*/maxReplicas:\\ 8/ | relume apply -f -",
))  # fmt: skip
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="File, folder, or - .")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@click.option("--wait", is_flag=True, help="Wait until the models have settled: ready, or at zero.")
@click.option("--timeout", type=DURATION, default="10m", show_default=True, help="Longest wait.")
@output("text", "json")
@talking
def apply(  # noqa: PLR0913 - one parameter an option
    connection: Connection, files: Sequence[str], output: str, timeout: float, *, dry_run: bool, wait: bool
) -> None:
    """Declare models: all documents of all files, or none."""
    from deploy.cli.checking import read_files  # noqa: PLC0415 - reading files takes pydantic, `delete` does not

    models = read_files(files)
    documents = [
        model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True) for model in models
    ]
    body = "\n---\n".join(json.dumps(document) for document in documents).encode()
    question = Question("POST", "/v1alpha1/models", {"dryRun": dry_run}, body, "application/yaml")
    result = connection.ask(question)
    if output == "json":
        show_json(result)
    else:
        for item in result["items"]:
            say(_applied(item, dry_run=dry_run))
    if wait and not dry_run:
        from deploy.cli.waiting import wait_until_settled  # noqa: PLC0415 - only with --wait

        wait_until_settled(connection, [item["metadata"]["name"] for item in result["items"]], timeout)


@command("delete", ("relume delete model llama", "relume delete model llama qwen --ignore-missing"))
@click.argument("kind", type=Kind(["model", "models"], "model"), metavar="model")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_models)
@click.option("--ignore-missing", is_flag=True, help="A model that is not declared is no error.")
@talking
def delete(connection: Connection, kind: str, names: Sequence[str], *, ignore_missing: bool) -> None:  # noqa: ARG001 - there is one kind
    """Declare models no longer. Held requests get 404; running ones finish; then the replicas stop."""
    for name in names:
        try:
            connection.ask(Question("DELETE", f"/v1alpha1/models/{segment(name)}"))
        except Refused as refused:
            if not (ignore_missing and refused.name == "model-not-found"):
                raise
            continue
        say(f"model {name} deleted; its replicas drain")


def _applied(item: dict[str, Any], *, dry_run: bool) -> str:
    metadata = item["metadata"]
    would = " (dry run)" if dry_run else ""
    revision = f", revision {metadata['revision']}" if item["action"] != "unchanged" else ""
    return f"model {metadata['name']} {item['action']}{revision}{would}"
