"""`relume logs`: what replicas write."""

from __future__ import annotations

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import complete_replicas, talking
from deploy.cli.output import say
from deploy.cli.streams import Stream, lines_of, print_streams


@command("logs", (
    "relume logs llama                      # all replicas of a model",
    "relume logs llama-r1-0 -f              # one replica, and what it writes from now on",
    "relume logs llama --tail 1000",
))  # fmt: skip
@click.argument("name", metavar="REPLICA|MODEL", shell_complete=complete_replicas)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("--tail", type=click.IntRange(0, 10_000), default=100, show_default=True, help="The last so many lines.")
@talking
def logs(connection: Connection, name: str, tail: int, *, follow: bool) -> None:
    """Show what a replica writes, or all replicas of a model, each line with its replica."""
    replicas = _replicas(connection, name)
    print_streams(connection, {replica: _stream(replica) for replica in replicas}, tail, follow=follow)


def _replicas(connection: Connection, name: str) -> list[str]:
    """The replica of this name, or those of the model of this name."""
    items = connection.get("/v1alpha1/replicas")["items"]
    if any(item["metadata"]["name"] == name for item in items):
        return [name]
    try:
        model = connection.get(f"/v1alpha1/models/{segment(name)}")
    except Refused as refused:
        if refused.name != "model-not-found":
            raise
        return [_ended(connection, name, refused)]
    own = model["metadata"]["name"]
    replicas = [item["metadata"]["name"] for item in items if item["spec"]["model"] == own]
    start = model["status"]["lastStart"]
    if not replicas and start:
        say(f"model {own} has no replica now; this is its last one's log")
        return [start["replica"]]
    if not replicas:
        raise Refused(f"model {own} has had no replica yet", remedy="send it a request: that wakes it")
    return replicas


def _ended(connection: Connection, name: str, unknown: Refused) -> str:
    """The name of a replica that ended: its log is still there. Refused when there was none."""
    try:
        list(lines_of(connection, _stream(name), 0, follow=False))
    except Refused as refused:
        if refused.name != "replica-not-found":
            raise
        raise Refused(f"there is no model or replica named {name!r}", remedy=unknown.remedy) from refused
    return name


def _stream(replica: str) -> Stream:
    return Stream(f"/v1alpha1/replicas/{segment(replica)}/logs")
