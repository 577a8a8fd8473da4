"""`relume logs`: what replicas write."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import complete_replicas, talking
from deploy.cli.output import say

MOST_FOLLOWED: Final = 32
"""Replicas that are followed at the same time, a thread and a connection each."""

WAITING_LINES: Final = 1000
"""Lines that wait to be printed; a reader that is slower than its replicas slows their streams."""


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
    if len(replicas) == 1:
        for line in _lines(connection, replicas[0], tail, follow=follow):
            click.echo(line)
    elif not follow:
        for replica in replicas:
            for line in _lines(connection, replica, tail, follow=False):
                click.echo(f"{replica} | {line}")
    else:
        _follow_all(connection, replicas, tail)


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
        list(_lines(connection, name, 0, follow=False))
    except Refused as refused:
        if refused.name != "replica-not-found":
            raise
        raise Refused(f"there is no model or replica named {name!r}", remedy=unknown.remedy) from refused
    return name


def _lines(connection: Connection, replica: str, tail: int, *, follow: bool) -> Iterator[str]:
    query = {"tail": tail, "follow": follow}
    path = f"/v1alpha1/replicas/{segment(replica)}/logs"
    for line in connection.lines(path, query, follow=follow):
        yield line.decode("utf-8", "replace")


def _follow_all(connection: Connection, replicas: Sequence[str], tail: int) -> None:
    """Follow several replicas at once until all have ended."""
    if len(replicas) > MOST_FOLLOWED:
        say(f"following the first {MOST_FOLLOWED} of {len(replicas)} replicas")
    lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)

    def read(replica: str) -> None:
        try:
            for line in _lines(connection, replica, tail, follow=True):
                lines.put(f"{replica} | {line}")
        except Refused as refused:
            lines.put(f"{replica} | [{refused.what}]")
        finally:
            lines.put(None)

    followed = replicas[:MOST_FOLLOWED]
    for replica in followed:
        threading.Thread(target=read, args=(replica,), daemon=True).start()
    left = len(followed)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            click.echo(line)
