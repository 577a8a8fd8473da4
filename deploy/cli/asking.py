"""`relume explain`, `scale` and `version`."""

from __future__ import annotations

import json

import click

from deploy.cli.applying import DURATION
from deploy.cli.commands import command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.options import model_argument, output, talking
from deploy.cli.output import say, show_json


@command("explain", ("relume explain llama", "relume explain llama -o json"))
@model_argument
@output("text", "json")
@talking
def explain(connection: Connection, model: str, output: str) -> None:
    """Say why a model has the replicas that it has, in sentences with the numbers that were decided on."""
    answer = connection.get(f"/v1alpha1/models/{segment(model)}/explain")
    if output == "json":
        show_json(answer)
    else:
        click.echo("\n".join(answer["sentences"]))


@command("scale", (
    "relume scale llama 3 --for 10m         # three replicas for ten minutes, whatever the load",
    "relume scale llama 0 --for 1h          # off for an hour: requests are held or refused",
))  # fmt: skip
@model_argument
@click.argument("replicas", type=click.IntRange(0, 10_000), metavar="N")
@click.option("--for", "span", type=DURATION, required=True, metavar="DURATION", help="How long, such as 10m.")
@output("text", "json")
@talking
def scale(connection: Connection, model: str, replicas: int, span: float, output: str) -> None:
    """Set a model's replicas by hand for a while. Afterwards the autoscaler decides again."""
    from events.units import write_duration  # noqa: PLC0415 - beside its only use

    body = json.dumps({"replicas": replicas, "for": write_duration(span)}).encode()
    item = connection.ask(Question("PUT", f"/v1alpha1/models/{segment(model)}/scale", body=body))
    if output == "json":
        show_json(item)
    else:
        say(f"model {model}: {replicas} replicas by hand until {item['status']['override']['until']}")


@command("version", ("relume version", "relume version -o json"))
@output("text", "json")
@talking
def version(connection: Connection, output: str) -> None:
    """Print the version of this command, and of the relume that it talks to, if one answers."""
    from deploy.cli.main import installed_version  # noqa: PLC0415 - main imports this module by name

    try:
        server = str(connection.get("/healthz")["version"])
    except Refused:
        server = None
    if output == "json":
        show_json({"client": installed_version(), "server": server})
    else:
        click.echo(f"relume {installed_version()}")
        say(f"server: {server or 'none answers'}")
