"""`relume top`: the load of models and nodes, live."""

from __future__ import annotations

import time
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deploy.cli.applying import DURATION
from deploy.cli.commands import command
from deploy.cli.connection import Connection
from deploy.cli.options import output, talking
from deploy.cli.output import number, seconds, show_json, table_text

_COLUMNS: Final = ("MODEL", "STATE", "READY", "WISH", "HELD", "RUNNING", "REQ/S", "TOKENS/S", "P50", "P95")
_NODES: Final = ("NODE", "CPU", "MEMORY", "GPUS")
_COLOURS: Final = {"Ready": "green", "Starting": "yellow", "Draining": "yellow", "Failed": "red", "Zero": "cyan"}

LEAST_INTERVAL: Final = 0.2
"""Seconds: faster than eyes read, it would only be load."""


@command("top", ("relume top", "relume top --interval 5s", "relume top --once -o json"))
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="Time between two looks.")
@click.option("--once", is_flag=True, help="Look once. So it is also when the output is no terminal.")
@output("table", "json")
@talking
def top(connection: Connection, interval: float, output: str, *, once: bool) -> None:
    """Watch the load of models and nodes. P50 and P95 are the time to the first byte in the last second."""
    console = Console()
    if output == "json":
        show_json(connection.get("/v1alpha1/top"))
    elif once or not console.is_terminal:
        load = connection.get("/v1alpha1/top")
        click.echo(table_text(_COLUMNS, [_row(one) for one in load["models"]]))
        click.echo("\n" + table_text(_NODES, [_node(one) for one in load["nodes"]]))
    else:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_screen(connection.get("/v1alpha1/top")), refresh=True)
                time.sleep(max(LEAST_INTERVAL, interval))


def _screen(load: dict[str, Any]) -> Group:
    models = Table(*_COLUMNS, box=None, pad_edge=False)
    for one in load["models"]:
        row = [Text(cell) for cell in _row(one)]
        row[1].stylize(_COLOURS.get(one["state"], ""))
        models.add_row(*row)
    nodes = Table(*_NODES, box=None, pad_edge=False)
    for one in load["nodes"]:
        nodes.add_row(*_node(one))
    return Group(Text(f"relume top  {load['at']}  (Ctrl-C ends)\n", style="dim"), models, Text(), nodes)


def _row(one: dict[str, Any]) -> list[str]:
    return [
        one["model"], one["state"], f"{one['readyReplicas']}/{one['replicas']}", number(one["wish"]),
        number(one["heldRequests"]), number(one["runningRequests"]), number(one["arrivalsPerSecond"]),
        number(one["tokensOutPerSecond"]), seconds(one["firstByteP50Seconds"]), seconds(one["firstByteP95Seconds"]),
    ]  # fmt: skip


def _node(one: dict[str, Any]) -> list[str]:
    from events.units import format_quantity  # noqa: PLC0415 - beside its only use

    return [
        one["node"], f"{one['cpuGranted']:g}/{one['cpu']:g}",
        f"{format_quantity(one['memoryGrantedBytes'])}/{format_quantity(one['memoryBytes'])}",
        f"{one['gpusGranted']:g}/{one['gpus']:g}",
    ]  # fmt: skip
