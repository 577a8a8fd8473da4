"""`relume explain`, `scale` and `version`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from deploy.cli import recorded
from deploy.cli import what_if as whatif
from deploy.cli.applying import DURATION
from deploy.cli.commands import command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.options import model_argument, output, talking
from deploy.cli.output import replicas as count_of
from deploy.cli.output import say, show_json
from deploy.cli.versions import hot_path, installed_version

MOST: Final = 500
"""The most replicas of a model (`events.types.replicas.MAX_REPLICAS`, whose import takes a tenth of a second)."""


@command("explain", (
    "relume explain llama",
    "relume explain llama -o json",
    "relume explain llama --at 2026-11-30T18:00:00Z    # the decision that stood then",
    "relume explain llama --what-if policy.yaml        # what another policy would have said all along",
))  # fmt: skip
@model_argument
@click.option("--at", metavar="TIME", help="The decision that stood at this RFC 3339 time.")
@click.option(
    "--what-if", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="YAML of spec.scaling: decide what is on record by it instead.",
)  # fmt: skip
@output("text", "json")
@talking
def explain(connection: Connection, model: str, at: str | None, file: Path | None, output: str) -> None:
    """Say why a model has the replicas that it has, in sentences with the numbers that were decided on.

    With --what-if another policy is replayed (up to --at) over what the log has of the model: its requests, the numbers
    from outside, and its replicas as they were. What its wishes would have changed of demand and replicas is not known:
    `relume tune` simulates that. Of decisions older than the log's requests only what each saw is decided anew.
    """
    if file is None and at is None:
        answer = connection.get(f"/v1alpha1/models/{segment(model)}/explain")
        _show(answer, answer["sentences"], output)
        return
    items = recorded.recorded(connection, model)
    until = None if at is None else recorded.instant_of(at)
    if until is not None:
        items = recorded.until(items, until)
    if file is None:
        assert until is not None
        answer = recorded.explained(connection, items[-1], until)
        _show(answer, answer["sentences"], output)
        return
    answer = whatif.what_if(connection, items, file, until)
    facts = {
        "model": items[0]["model"], "decisions": answer.rows, "unread": len(items) - len(answer.rows),
        "changes": answer.changes, "notes": answer.notes,
        "replicaSeconds": answer.seconds and {"was": answer.seconds[0], "wouldBe": answer.seconds[1]},
    }  # fmt: skip
    _show(facts, whatif.sentences(answer), output)


def _show(answer: object, sentences: Sequence[str], output: str) -> None:
    if output == "json":
        show_json(answer)
    else:
        click.echo("\n".join(sentences))


@command("scale", (
    "relume scale llama 3 --for 10m         # three replicas for ten minutes, whatever the load",
    "relume scale llama 0 --for 1h          # off for an hour",
    "relume scale llama auto                # let the autoscaler decide again",
))  # fmt: skip
@model_argument
@click.argument("replicas", metavar="N|auto")
@click.option("--for", "span", type=DURATION, metavar="DURATION", help="How long, such as 10m; at most 30d.")
@output("text", "json")
@talking
def scale(connection: Connection, model: str, replicas: str, span: float | None, output: str) -> None:
    """Set a model's replicas by hand for a while. Afterwards, or with `auto`, the autoscaler decides again."""
    path = f"/v1alpha1/models/{segment(model)}/scale"
    if replicas == "auto":
        if span is not None:
            raise click.UsageError("auto is at once and for good; leave --for out")
        item, words = connection.ask(Question("DELETE", path)), "the autoscaler decides"
    else:
        item = connection.ask(Question("PUT", path, body=_by_hand(replicas, span)))
        override = item["status"]["override"]
        words = f"{count_of(override['replicas'])} by hand until {override['until']}"
    if output == "json":
        show_json(item)
    else:
        say(f"model {model}: {words}")


def _by_hand(replicas: str, span: float | None) -> bytes:
    from events.units import write_duration  # noqa: PLC0415 - beside its only use

    if not (replicas.isascii() and replicas.isdigit() and int(replicas) <= MOST):
        raise click.UsageError(f"{replicas!r} is no number of replicas; write 0 to {MOST}, or auto")
    if span is None:
        raise click.UsageError("a number by hand needs its time; add --for 10m, or write auto instead of the number")
    return json.dumps({"replicas": int(replicas), "for": write_duration(span)}).encode()


@command("version", ("relume version", "relume version -o json"))
@output("text", "json")
@talking
def version(connection: Connection, output: str) -> None:
    """Print the version of this command, and of the relume that it talks to, if one answers."""
    try:
        server = str(connection.get("/healthz")["version"])
    except Refused:
        server = None
    if output == "json":
        show_json({"client": installed_version(), "hotPath": hot_path(), "server": server})
    else:
        click.echo(f"relume {installed_version()}")
        say(f"hot path: {hot_path()}")
        say(f"server: {server or 'none answers'}")
