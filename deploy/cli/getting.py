"""`relume get`: lists of models, replicas and decisions."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import Kind, complete_replicas, output, talking
from deploy.cli.output import age, number, show_json, show_table, show_yaml, table_text

WATCH_EVERY: Final = 1.0
"""Seconds between two looks with --watch: for eyes; nothing is decided on it."""

Item = Mapping[str, Any]

KINDS: Final = {
    "models": "models", "model": "models", "replicas": "replicas", "replica": "replicas", "decisions": "decisions",
    "decision": "decisions",
}  # fmt: skip


@command("get", (
    "relume get models",
    "relume get models llama -o yaml        # as a file that apply takes",
    "relume get replicas --model llama -o wide",
    "relume get models -o json | jq '.items[] | {name: .metadata.name, state: .status.state}'",
    "relume get models -l team=ads          # only those with this label",
    "relume get models -w                   # a line whenever something changed",
))  # fmt: skip
@click.argument("kind", type=Kind(list(KINDS)), metavar="models|replicas|decisions")
@click.argument("name", required=False, shell_complete=complete_replicas)
@click.option("--model", help="Only this model's replicas or decisions.")
@click.option("-l", "--selector", metavar="LABEL=VALUE,...", help="Only models with all of these labels.")
@click.option("-w", "--watch", is_flag=True, help="Go on, and print what changed.")
@output("table", "wide", "json", "yaml")
@talking
def get(  # noqa: PLR0913 - one parameter an option
    connection: Connection, kind: str, name: str | None, model: str | None, *, selector: str | None, output: str,
    watch: bool,
) -> None:  # fmt: skip
    """List what there is.

    JSON is {"items": [{"metadata", "spec", "status"}]}, also for one name. YAML of models is what `relume apply` takes.
    """
    kind = KINDS[kind]
    if model and kind == "models":
        raise click.UsageError("--model goes with replicas and decisions; write: relume get models NAME")

    wanted = _labels(selector, kind)

    def fetch() -> list[Item]:
        items = _items(connection, kind, name, model)
        return [item for item in items if wanted.items() <= item["metadata"]["labels"].items()] if wanted else items

    if watch:
        _watch(fetch, kind, output)
    else:
        _show(fetch(), kind, output)


def _labels(selector: str | None, kind: str) -> dict[str, str]:
    """``team=ads,tier=1`` as labels."""
    if not selector:
        return {}
    if kind != "models":
        raise click.UsageError("--selector goes with models")
    pairs = [part.partition("=") for part in selector.split(",")]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.UsageError(f"--selector {selector!r} is not LABEL=VALUE,...; write for example -l team=ads")
    return {name: value for name, _, value in pairs}


def _items(connection: Connection, kind: str, name: str | None, model: str | None) -> list[Item]:
    if kind == "models" and name:
        return [connection.get(f"/v1alpha1/models/{segment(name)}")]
    if kind == "decisions":
        items: list[Item] = connection.get("/v1alpha1/decisions", {"model": model or name, "limit": 20})["items"]
        return items
    items = connection.get(f"/v1alpha1/{kind}", {"model": model} if kind == "replicas" else None)["items"]
    if name is None:
        return items
    found = [item for item in items if item["metadata"]["name"] == name]
    if not found:
        near = difflib.get_close_matches(name, [item["metadata"]["name"] for item in items], n=1)
        remedy = f"did you mean {near[0]}?" if near else "list them with: relume get replicas"
        raise Refused(f"there is no replica named {name!r}", remedy=remedy)
    return found


def _show(items: Sequence[Item], kind: str, output: str) -> None:
    if output == "json":
        show_json({"items": list(items)})
    elif output == "yaml":
        show_yaml([_document(item) for item in items] if kind == "models" else items)
    elif not items:
        click.echo(f"no {kind}", err=True)
    else:
        show_table(*_columns(items, kind, wide=output == "wide"))


def _document(item: Item) -> dict[str, Any]:
    """The document that declares a model."""
    metadata = {"name": item["metadata"]["name"]}
    metadata.update({part: item["metadata"][part] for part in ("labels", "annotations") if item["metadata"].get(part)})
    return {"apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": metadata, "spec": item["spec"]}


def _columns(items: Sequence[Item], kind: str, *, wide: bool) -> tuple[Sequence[str], list[list[str]]]:
    headers, row = {"models": _MODEL, "replicas": _REPLICA, "decisions": _DECISION}[kind]
    extra, more = {"models": _MODEL_WIDE, "replicas": _REPLICA_WIDE, "decisions": ((), _nothing)}[kind]
    if not wide:
        return headers, [row(item) for item in items]
    return (*headers, *extra), [[*row(item), *more(item)] for item in items]


def _model_row(item: Item) -> list[str]:
    status = item["status"]
    return [
        item["metadata"]["name"], status["state"], f"{status['readyReplicas']}/{status['replicas']}",
        number(status["wish"]), number(status["heldRequests"]), number(status["runningRequests"]), status["reason"],
    ]  # fmt: skip


def _model_wide(item: Item) -> list[str]:
    metadata, spec, status = item["metadata"], item["spec"], item["status"]
    return [
        number(status["granted"]), number(status["shortage"]), str(metadata["revision"]),
        spec.get("engine", {}).get("type", ""), ",".join(spec.get("aliases", [])), status["message"],
    ]  # fmt: skip


def _replica_row(item: Item) -> list[str]:
    status = item["status"]
    return [
        item["metadata"]["name"], item["spec"]["model"], status["state"], status["phase"] or "", str(status["slots"]),
        age(status["createdAt"]), status["reason"],
    ]  # fmt: skip


def _replica_wide(item: Item) -> list[str]:
    spec, status = item["spec"], item["status"]
    return [
        str(spec["revision"]), spec["node"], ",".join(spec["gpus"]), status["address"], number(status["pid"]),
        status["message"],
    ]  # fmt: skip


def _decision_row(item: Item) -> list[str]:
    return [item["time"], item["model"], str(item["replicas"]), ", ".join(item["reasons"])]


def _nothing(_: Item) -> list[str]:
    return []


Row = Callable[[Item], list[str]]

_MODEL: Final[tuple[Sequence[str], Row]] = (
    ("NAME", "STATE", "READY", "WISH", "HELD", "RUNNING", "REASON"), _model_row,
)  # fmt: skip
_MODEL_WIDE: Final[tuple[Sequence[str], Row]] = (
    ("GRANTED", "SHORTAGE", "REVISION", "ENGINE", "ALIASES", "MESSAGE"), _model_wide,
)  # fmt: skip
_REPLICA: Final[tuple[Sequence[str], Row]] = (
    ("NAME", "MODEL", "STATE", "PHASE", "SLOTS", "AGE", "REASON"), _replica_row,
)  # fmt: skip
_REPLICA_WIDE: Final[tuple[Sequence[str], Row]] = (
    ("REVISION", "NODE", "GPUS", "ADDRESS", "PID", "MESSAGE"), _replica_wide,
)  # fmt: skip
_DECISION: Final[tuple[Sequence[str], Row]] = (("TIME", "MODEL", "REPLICAS", "REASONS"), _decision_row)


def _watch(fetch: Callable[[], list[Item]], kind: str, output: str) -> None:
    """Print everything once, then each item that changed; ends with Ctrl-C."""
    if output == "yaml":
        raise click.UsageError("--watch goes with table, wide and json")
    last: dict[str, list[str]] = {}
    first = True
    while True:
        items = fetch()
        headers, rows = _columns(items, kind, wide=output == "wide") if items else ((), [])
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
