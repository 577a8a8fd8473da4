"""`relume get`: lists of models, replicas, decisions, training jobs, reclaims and pools."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Sequence
from typing import Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import Kind, complete_listed, output, talking
from deploy.cli.output import show_json, show_table, show_yaml, table_text
from deploy.cli.tables import TABLES, Item

WATCH_EVERY: Final = 1.0
"""Seconds between two looks with --watch: for eyes; nothing is decided on it."""

KINDS: Final = {
    "models": "models", "model": "models", "replicas": "replicas", "replica": "replicas", "decisions": "decisions",
    "decision": "decisions", "training": "training", "reclaims": "reclaims", "reclaim": "reclaims", "pools": "pools",
    "pool": "pools",
}  # fmt: skip
"""What may be typed, and which table is meant."""

OF_A_MODEL: Final = frozenset({"replicas", "decisions", "reclaims"})
"""What `--model` goes with."""


@command("get", (
    "relume get models",
    "relume get models llama -o yaml        # as a file that apply takes",
    "relume get replicas --model llama -o wide",
    "relume get training -o wide            # jobs, with steps and checkpoints",
    "relume get reclaims --model llama      # whose GPUs it was given, and what that cost",
    "relume get models -o json | jq '.items[] | {name: .metadata.name, state: .status.state}'",
    "relume get pools -o wide               # how GPUs are lent, and how often training may still yield",
    "relume get models -l team=ads          # only those with this label",
    "relume get models -w                   # a line whenever something changed",
))  # fmt: skip
@click.argument("kind", type=Kind(list(KINDS)), metavar="models|replicas|decisions|training|reclaims|pools")
@click.argument("name", required=False, shell_complete=complete_listed)
@click.option("--model", help="Only this model's replicas, decisions or reclaims.")
@click.option("-l", "--selector", metavar="LABEL=VALUE,...", help="Only models or jobs with all of these labels.")
@click.option("-w", "--watch", is_flag=True, help="Go on, and print what changed.")
@output("table", "wide", "json", "yaml")
@talking
def get(  # noqa: PLR0913 - one parameter an option
    connection: Connection, kind: str, name: str | None, model: str | None, *, selector: str | None, output: str,
    watch: bool,
) -> None:  # fmt: skip
    """List what there is.

    JSON is {"items": [{"metadata", "spec", "status"}]}, also for one name. YAML of models, training jobs and pools
    is what `relume apply` takes.
    """
    kind = KINDS[kind]
    if model and kind not in OF_A_MODEL:
        raise click.UsageError(f"--model goes with {', '.join(sorted(OF_A_MODEL))}; write: relume get {kind} NAME")

    wanted = _labels(selector, kind)

    def fetch() -> list[Item]:
        items = _items(connection, kind, name, model)
        return [item for item in items if wanted.items() <= item["metadata"]["labels"].items()] if wanted else items

    if watch:
        _watch(fetch, kind, output)
    else:
        show_items(fetch(), kind, output)


def show_items(items: Sequence[Item], kind: str, output: str) -> None:
    """Print a list in one of the forms."""
    table = TABLES[kind]
    if output == "json":
        show_json({"items": list(items)})
    elif output == "yaml":
        show_yaml([table.document_of(item) for item in items] if table.document else items)
    elif not items:
        click.echo(f"no {kind}", err=True)
    else:
        show_table(*table.rows(items, wide=output == "wide"))


def _labels(selector: str | None, kind: str) -> dict[str, str]:
    """``team=ads,tier=1`` as labels."""
    if not selector:
        return {}
    if not TABLES[kind].document:
        raise click.UsageError("--selector goes with models, training and pools")
    pairs = [part.partition("=") for part in selector.split(",")]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.UsageError(f"--selector {selector!r} is not LABEL=VALUE,...; write for example -l team=ads")
    return {name: value for name, _, value in pairs}


def _items(connection: Connection, kind: str, name: str | None, model: str | None) -> list[Item]:
    if TABLES[kind].single and name:
        return [connection.get(f"/v1alpha1/{kind}/{segment(name)}")]
    if kind == "decisions":
        items: list[Item] = connection.get("/v1alpha1/decisions", {"model": model or name, "limit": 20})["items"]
        return items
    items = connection.get(f"/v1alpha1/{kind}", {"model": model} if kind in OF_A_MODEL else None)["items"]
    if name is None:
        return items
    found = [item for item in items if item["metadata"]["name"] == name]
    if not found:
        near = difflib.get_close_matches(name, [item["metadata"]["name"] for item in items], n=1)
        remedy = f"did you mean {near[0]}?" if near else "list them with: relume get replicas"
        raise Refused(f"there is no replica named {name!r}", remedy=remedy)
    return found


def _watch(fetch: Callable[[], list[Item]], kind: str, output: str) -> None:
    """Print everything once, then each item that changed; ends with Ctrl-C."""
    if output == "yaml":
        raise click.UsageError("--watch goes with table, wide and json")
    last: dict[str, list[str]] = {}
    first = True
    while True:
        items = fetch()
        headers, rows = TABLES[kind].rows(items, wide=output == "wide") if items else ((), [])
        keys = [str(item.get("id") or item["metadata"]["name"]) for item in items]
        changed = [index for index, key in enumerate(keys) if last.get(key) != _without_age(headers, rows[index])]
        if output == "json":
            for index in changed:
                click.echo(json.dumps(items[index], ensure_ascii=False))
        elif changed:
            text = table_text(headers, [rows[index] for index in changed])
            click.echo(text if first else text.split("\n", 1)[1])
            first = False
        last = {key: _without_age(headers, row) for key, row in zip(keys, rows, strict=True)}
        time.sleep(WATCH_EVERY)


def _without_age(headers: Sequence[str], row: list[str]) -> list[str]:
    return [cell for header, cell in zip(headers, row, strict=True) if header != "AGE"]
