"""What `relume gpus` can do beside showing them: plan moves, keep a card out of use, say that one is empty."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.options import output, talking
from deploy.cli.output import say, show_json, show_table

_COLUMNS: Final = ("MOVE", "FROM", "TO", "GAINED", "PRICE", "HOW")


@command("defragment", (
    "relume gpus defragment                 # which moves would help, and what they make room for",
    "relume gpus defragment -o json | jq .moves",
))  # fmt: skip
@output("table", "json")
@talking
def defragment(connection: Connection, output: str) -> None:
    """Plan moves that make what is free of use again, in the order in which they would have to be made.

    GAINED is in GPUs that become of use, PRICE in A100-seconds of work: a cold start of a replica; what a training job
    would do again, and its save and restore. A move is planned only where its gain is worth more than that within half
    an hour. Replicas that start or drain, gangs, and jobs without a checkpoint stay where they are. Nothing is moved.
    """
    plan = connection.get("/v1alpha1/gpus/moves")
    if output == "json":
        show_json(plan)
        return
    if plan["moves"]:
        show_table(_COLUMNS, [_row(move) for move in plan["moves"]])
    else:
        say(f"no move: {plan['message']}")
    before, after = 100 * plan["fragmentationBefore"], 100 * plan["fragmentationAfter"]
    say(f"GPUs that are free and of no use: {before:.1f} % now" + (f", {after:.1f} % then" if plan["moves"] else ""))
    for room in plan["makesRoomFor"]:
        if room["after"] != room["before"]:
            say(f"room for {room['after']} more with {room['needs']} each, instead of {room['before']}")


def _row(move: Mapping[str, Any]) -> list[str]:
    return [
        move["name"], _place(move["source"]), _place(move["target"]), f"{move['gainedGpus']:g}",
        f"{move['price']:.0f}", move["how"],
    ]  # fmt: skip


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['node']}/{','.join(place['gpus'])}"


@command("cordon", (
    "relume gpus cordon n1/gpu-0 --reason 'ECC errors'",
    "relume gpus cordon gpu-0               # where only one node has a card of this name",
))  # fmt: skip
@click.argument("cards", nargs=-1, required=True, metavar="CARD...")
@click.option("--reason", default="", help="Why; shown by relume gpus.")
@output("text", "json")
@talking
def cordon(connection: Connection, cards: Sequence[str], reason: str, output: str) -> None:
    """Place nothing new on these cards (NODE/CARD). What is there stays; training on them is not told to go."""
    _each(connection, cards, ("PUT", json.dumps({"reason": reason}).encode()), output)


@command("uncordon", ("relume gpus uncordon n1/gpu-0",))
@click.argument("cards", nargs=-1, required=True, metavar="CARD...")
@output("text", "json")
@talking
def uncordon(connection: Connection, cards: Sequence[str], output: str) -> None:
    """Say that these cards (NODE/CARD) may be used.

    It is your word that nothing is on them of training runs that have ended: relume stops waiting to see them empty,
    also where it gave up, because a process could not be killed. Look first (nvidia-smi).
    """
    _each(connection, cards, ("DELETE", None), output)


def _each(connection: Connection, cards: Sequence[str], how: tuple[str, bytes | None], output: str) -> None:
    method, body = how
    nodes = connection.get("/v1alpha1/gpus")["nodes"]
    known = [(str(node["node"]), str(card["id"])) for node in nodes for card in node["cards"]]
    answers = []
    for named in cards:
        node, card = _which(named, known)
        path = f"/v1alpha1/gpus/{segment(node)}/{segment(card)}/cordon"
        answers.append(connection.ask(Question(method, path, body=body)))
        if output != "json":
            words = "cordoned: nothing new is placed on it" if method == "PUT" else "may be used, and counts as empty"
            say(f"GPU {node}/{card} {words}")
    if output == "json":
        show_json({"items": answers})


def _which(named: str, known: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """NODE/CARD, or a card's id that only one node has."""
    node, slash, card = named.partition("/")
    if slash:
        return node, card
    found = [one for one in known if one[1] == named]
    if len(found) == 1:
        return found[0]
    what = "there is no such GPU" if not found else f"{len(found)} nodes have one"
    raise Refused(f"{named}: {what}", remedy="name it as NODE/CARD; relume gpus lists them")
