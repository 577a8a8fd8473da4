"""`relume gpus`: cards, holders, what is free, fragmentation; as a table and as a picture. What can be done to cards:
`deploy.cli.gpus_doing`."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import click

from deploy.cli.commands import Lazy, LazyGroup
from deploy.cli.connection import Connection
from deploy.cli.options import output, talking
from deploy.cli.output import UNKNOWN, say, show_json, show_table

PARTS: Final = 8
"""Characters of one card in the picture: each is an eighth."""

_FREE: Final = "·"
_OTHERS: Final = "#"
"""The mark of models beyond those that have a letter."""

_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase


@click.group("gpus", cls=LazyGroup, invoke_without_command=True, lazy={
    "defragment": Lazy("deploy.cli.gpus_doing:defragment", "Plan moves that make free GPUs of use again."),
    "cordon": Lazy("deploy.cli.gpus_doing:cordon", "Place nothing new on a card."),
    "uncordon": Lazy("deploy.cli.gpus_doing:uncordon", "Say that a card is empty and may be used."),
}, examples=(
    "relume gpus",
    "relume gpus -o picture                 # one block a card, one letter a model",
    "relume gpus -o json | jq .fragmentation",
    "relume gpus defragment",
))  # fmt: skip
@output("table", "picture", "json")
@talking
def gpus(connection: Connection, output: str) -> None:
    """Show the GPUs: who holds them, what is free, and how much of that is of no use.

    Fragmentation is the share of all GPUs that is free and that the typical replica here could not use: too small a
    part of a card, too few cards on one node, or cards without cores.

    Where the agent of a node sees its GPUs, they are shown once more as their driver and the kubelet know them: which
    pods have them, memory in use, which are sick, and which are in use by somebody whom no pod accounts for.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    inventory = connection.get("/v1alpha1/gpus")
    if output == "json":
        show_json(inventory)
        return
    if output == "picture":
        click.echo("\n".join(picture(inventory)))
    else:
        show_table(_COLUMNS, [_row(node, card) for node in inventory["nodes"] for card in node["cards"]])
        seen = [_seen(node, one) for node in inventory["nodes"] for one in node.get("devices") or ()]
        if seen:
            show_table(_SEEN, seen)
    lost = 100 * inventory["fragmentation"]
    say(f"{inventory['free']:g} of {inventory['total']:g} GPUs are free; {lost:.1f} % of all are free and of no use")


_COLUMNS: Final = ("NODE", "GPU", "PRODUCT", "USABLE", "NVLINK", "NUMA", "A100S", "FREE", "HOLDERS")


def _row(node: Mapping[str, Any], card: Mapping[str, Any]) -> list[str]:
    from events.units import format_quantity  # noqa: PLC0415 - beside its only use

    usable = card["usableBytes"]
    return [
        node["node"], card["id"], _kind(card),
        UNKNOWN if usable is None else format_quantity(usable), _domain(card["link"]), _domain(card["numa"]),
        f"{card['units']:g}", f"{card['free']:g}",
        ", ".join([*(_holder(holder) for holder in card["holders"]), *_cordoned(card)]),
    ]  # fmt: skip


_SEEN: Final = ("NODE", "DEVICE", "PRODUCT", "MEMORY", "USED", "PODS", "STATE")


def _seen(node: Mapping[str, Any], device: Mapping[str, Any]) -> list[str]:
    """A GPU as its driver and its node's kubelet tell of it."""
    from events.units import format_quantity  # noqa: PLC0415 - beside its only use

    memory, used, pods = device["memoryBytes"], device["usedBytes"], device["pods"]
    return [
        node["node"], device["id"], device["product"] or UNKNOWN,
        UNKNOWN if memory is None else format_quantity(memory), UNKNOWN if used is None else format_quantity(used),
        UNKNOWN if pods is None else ", ".join(pods), _state(device),
    ]  # fmt: skip


def _state(device: Mapping[str, Any]) -> str:
    if device["sick"]:
        return f"sick: {device['sick']}"
    if device["unaccounted"]:
        return "in use by somebody whom no pod accounts for"
    if device["split"]:
        return "split"
    return {True: "empty", False: "in use", None: UNKNOWN}[device["empty"]]


def _domain(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _kind(card: Mapping[str, Any]) -> str:
    product = card["product"] or ("virtual" if card["virtual"] else UNKNOWN)
    if card["turns"]:
        return f"{product} 1/{card['turns']}"
    return f"{product} {card['profile']}" if card["profile"] else str(product)


def _cordoned(card: Mapping[str, Any]) -> list[str]:
    return [] if card.get("cordoned") is None else [f"cordoned: {card['cordoned']}"]


def _holder(holder: Mapping[str, Any]) -> str:
    return str(holder["replica"]) + ("" if holder["share"] == 1 else f" ({holder['share']:g})")


def picture(inventory: Mapping[str, Any]) -> list[str]:
    """One line a node, one block a card, one letter a model; a legend below. Between two cards: ``=`` where they reach
    each other over NVLink, ``|`` where they hang on different NUMA nodes; between two turns of a card ``:``."""
    models = sorted({holder["model"] for card in _cards(inventory) for holder in card["holders"]})
    marks = {model: _LETTERS[index] if index < len(_LETTERS) else _OTHERS for index, model in enumerate(models)}
    width = max((len(node["node"]) for node in inventory["nodes"]), default=0)
    lines = [
        f"{node['node']:{width}}  {_row_of_blocks(node['cards'], marks) or 'no GPU'}" for node in inventory["nodes"]
    ]
    legend = [f"{mark} {model}" for model, mark in marks.items() if mark != _OTHERS]
    legend += [f"{_OTHERS} others"] if _OTHERS in marks.values() else []
    joins = {_join(*pair).strip() for node in inventory["nodes"] for pair in pairwise(_in_turn(node["cards"]))}
    legend += [f"{_FREE} free", *(words for mark, words in _JOINS.items() if mark in joins)]
    return [*lines, "", "   ".join(legend)]


_JOINS: Final = {"=": "= NVLink", "|": "| another NUMA node", ":": ": a turn of the same card"}


def _row_of_blocks(cards: Sequence[Mapping[str, Any]], marks: Mapping[str, str]) -> str:
    row = ""
    for left, right in pairwise([*_in_turn(cards), None]):
        assert left is not None  # the last is no card
        join = None if right is None else _join(left, right)
        row += _block(left, marks) + (join if join == ":" else "" if join is None else f"]{join}[")
    return f"[{row}]" if row else ""


def _in_turn(cards: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The turns of a card beside each other, where the first of them is."""
    places: dict[str, int] = {}
    for card in cards:
        places.setdefault(_name(card), len(places))
    return sorted(cards, key=lambda card: places[_name(card)])


def _name(card: Mapping[str, Any]) -> str:
    """Of a turn that of its card."""
    return str(card["id"]).partition("::")[0] if card["turns"] else str(card["id"])


def _join(left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    if _name(left) == _name(right):
        return ":"
    if left.get("link") is not None and left.get("link") == right.get("link"):
        return "="
    numas = {left.get("numa"), right.get("numa")}
    return " | " if len(numas) > 1 and None not in numas else " "


def _cards(inventory: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [card for node in inventory["nodes"] for card in node["cards"]]


def _block(card: Mapping[str, Any], marks: Mapping[str, str]) -> str:
    """A card's eighths; whoever holds any of it has one at least, and so has a turn, or a MIG instance."""
    held = "".join(marks[one["model"]] * max(1, round(one["share"] * PARTS)) for one in card["holders"])
    width = max(1, round(PARTS * (card["free"] + sum(one["share"] for one in card["holders"]))))
    return f"{held[:width]:{_FREE}<{width}}"
