"""`relume prewarm`, `relume coldstart report`, `relume cache nodes`: weights and cold starts of a running relume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.options import model_argument, output, talking
from deploy.cli.output import UNKNOWN, number, say, show_json, show_table


@command("prewarm", ("relume prewarm llama", "relume prewarm llama --admin http://gpu-1:8081 -o json"))
@model_argument
@output("text", "json")
@talking
def prewarm(connection: Connection, model: str, output: str) -> int:
    """Have a model's weights on the node before anybody asks for the model.

    They are fetched behind whatever a start waits for, and count for an hour like those of a model that never goes to
    zero. Exit code 1: its weights do not go through the cache. How far it is: relume cache nodes.
    """
    question = Question("POST", f"/v1alpha1/models/{segment(model)}/prewarm", body=b"{}")
    answer = connection.ask(question)
    if output == "json":
        show_json(answer)
    if not answer["source"]:
        if output != "json":
            say(f"the weights of {answer['model']} lie on the node already, or it has none")
        return 1
    if output != "json":
        say(f"{answer['source']} is counted on for an hour")
    return 0


@click.group("coldstart", cls=LazyGroup, lazy={
    "report": Lazy("deploy.cli.weights:report", "Say which cold starts kept their promise, and why not."),
}, examples=("relume coldstart report", "relume coldstart report -o json"))  # fmt: skip
def coldstart() -> None:
    """Cold starts against their promise."""


_REPORT: Final = (
    "MODEL",
    "PROMISE",
    "STARTS",
    "MET",
    "MISSED",
    "IMPOSSIBLE",
    "BY",
    "P50",
    "P95",
    "LEAST",
    "PHASES (P50)",
)


@command("report", ("relume coldstart report", "relume coldstart report --model llama -o json | jq '.items[0].phases'"))
@click.option("--model", metavar="MODEL", help="Only this model's.")
@click.option("--since", metavar="TIME", help="Only those since this RFC 3339 time. [default: all that the log has]")
@output("table", "json")
@talking
def report(connection: Connection, model: str | None, since: str | None, output: str) -> None:
    """Say which cold starts kept their promise (coldStart.sla), and which phase broke it.

    MISSED could have been kept: the phase under BY took most beyond its quickest. IMPOSSIBLE could not: what has to be
    brought from where it was, at the speeds that were measured, and the engine at its quickest, take longer (LEAST).
    """
    answer = connection.get("/v1alpha1/coldstarts", {"model": model, "since": since})
    if output == "json":
        show_json(answer)
    elif answer["items"]:
        show_table(_REPORT, [_row(item) for item in answer["items"]])
    else:
        say("no cold start is in the log")


def _row(item: Mapping[str, Any]) -> list[str]:
    by = ", ".join(f"{phase} {count}" for phase, count in item["missedBy"].items())
    phases = " ".join(f"{one['phase']} {one['p50']:.2f}s" for one in item["phases"])
    least = UNKNOWN if item["leastSeconds"] is None else f"{item['leastSeconds']:.2f}s"
    return [
        item["model"], f"{item['slaSeconds']:g}s", *(str(item[name]) for name in ("starts", "met", "missed")),
        str(item["impossible"]), by, f"{item['p50']:.2f}s", f"{item['p95']:.2f}s", least, phases,
    ]  # fmt: skip


@command("nodes", ("relume cache nodes", "relume cache nodes gpu-1 -o json"))
@click.argument("node", required=False)
@output("table", "json")
@talking
def nodes(connection: Connection, node: str | None, output: str) -> None:
    """List the weights of all nodes, or of one: contents, fetches, and how far models are from a token."""
    items = connection.get("/v1alpha1/caches")["items"]
    found = [item for item in items if node in (None, item["metadata"]["name"])]
    if node is not None and not found:
        known = ", ".join(item["metadata"]["name"] for item in items) or "none"
        raise Refused(f"no node named {node!r} tells of weights", remedy=f"these do: {known}")
    if output == "json":
        show_json({"items": found})
        return
    show_table(("NODE", "SOURCE", "SIZE", "STATE", "MODELS"), [row for item in found for row in _contents(item)])
    warmth = [row for item in found for row in _warmth(item)]
    if warmth:
        click.echo()
        show_table(("NODE", "MODEL", "WEIGHTS", "TO FIRST TOKEN"), warmth)


def _contents(item: Mapping[str, Any]) -> list[list[str]]:
    from events.units import format_quantity  # noqa: PLC0415 - beside its only use

    node, status = item["metadata"]["name"], item["status"]
    rows = [
        [node, one["source"], format_quantity(one["bytes"]), _state(one), ", ".join(one["models"])]
        for one in status["contents"]
    ]
    for one in status["fetching"]:
        rate = "" if one["rate"] is None else f" at {format_quantity(int(one['rate']))}/s"
        share = f"{100 * one['done'] / one['bytes']:.0f} %" if one["bytes"] else UNKNOWN
        state = f"{one['why']}: {share}{rate}" + (f", {one['waiting']} wait" if one["waiting"] else "")
        rows.append([node, one["source"], format_quantity(one["bytes"]), state, ""])
    return rows


def _state(one: Mapping[str, Any]) -> str:
    words = [word for word, holds in (("in use", one["inUse"]), ("pinned", one["pinned"])) if holds]
    return ", ".join(words) or "here"


def _warmth(item: Mapping[str, Any]) -> list[list[str]]:
    return [
        [item["metadata"]["name"], one["model"], one["tier"], _seconds(one["seconds"])]
        for one in item["status"]["models"]
    ]


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{number(round(value, 1))}s"
