"""The board: a fold of states, bounded by what is declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deploy.api.board import Board
from events.clock import SimulatedClock
from events.types.models import ModelDeclared
from events.types.requests import RequestWindow
from events.units import Instant
from events.writer import EventWriter
from tests.support.admin import observed, replica

WRITER = EventWriter("relume/test", SimulatedClock())


def declared(generation: int = 1, *, uid: str = "u", deleted: bool = False, **spec: Any) -> ModelDeclared:
    return ModelDeclared(model="echo", uid=uid, revision=1, generation=generation, spec=spec, deleted=deleted)


def board(*data: object) -> Board:
    """A board that took these, at offsets 0, 1, 2, …"""
    made = Board(gateway_limit=2)
    for offset, one in enumerate(data):
        made.apply(WRITER.envelope(one), offset)
    return made


def window(gateway: str, at: float = 1.0, model: str = "echo") -> RequestWindow:
    return RequestWindow(model=model, uid="u", revision=1, gateway=gateway, started_at=at, ended_at=at + 1)


def test_a_declaration_never_gives_way_to_an_earlier_one() -> None:
    """Our own write is shown at once; what the subscription delivers late does not bring the past back."""
    made = Board()
    made.apply(WRITER.envelope(declared(2)), 5)
    made.apply(WRITER.envelope(declared(1)), 4)
    assert made.declared("echo") == declared(2)


def test_names_and_aliases() -> None:
    """A model is found by its name and its aliases, deleted ones by neither."""
    made = board(declared(aliases=["org/echo"]))
    assert (made.owner("echo"), made.owner("org/echo"), made.owner("other")) == ("echo", "echo", None)
    made.apply(WRITER.envelope(declared(2, deleted=True, aliases=["org/echo"])), 9)
    assert (made.owner("echo"), made.owner("org/echo"), made.names()) == (None, None, [])


def told(made: Board, name: str) -> list[str]:
    """What the conditions of a model say of its aliases."""
    item = made.item(name, {}, Instant(0.0))
    assert item is not None
    return [one.message for one in item.status.conditions if one.type == "Aliases"]


def test_two_that_claim_one_alias() -> None:
    """Declared by two ports at one instant, in whichever order they are read: the first by name has it, and the other
    is told so until one of them gives way. A name goes before any alias."""
    zebra = replace(declared(aliases=["org/echo", "own"]), model="zebra")
    first = declared(aliases=["org/echo"])
    for order in ((first, zebra), (zebra, first)):
        made = board(*order)
        assert (made.owner("org/echo"), made.owner("own")) == ("echo", "zebra")
        (message,) = told(made, "zebra")
        assert "org/echo means model echo" in message
        assert "own " not in message
        assert told(made, "echo") == []
        made.apply(WRITER.envelope(declared(2, deleted=True)), 9)
        assert (made.owner("org/echo"), told(made, "zebra")) == ("zebra", [])
    named = board(first, replace(declared(), model="org/echo"))
    assert told(named, "echo") != []


def test_what_is_gone_keeps_only_its_declaration() -> None:
    """A deleted model whose last replica went holds no windows, replicas or decisions any more."""
    made = board(declared(), observed(replica()), window("g"), declared(2, deleted=True))
    assert made.names() == ["echo"]
    made.apply(WRITER.envelope(observed()), 9)
    assert (made.names(), made.replicas()) == ([], [])
    assert made.declared("echo") == declared(2, deleted=True)


def test_windows_are_bounded_by_gateways() -> None:
    """The gateway that was silent longest gives way; names that nobody declared take no memory."""
    made = board(declared(), window("a", 1.0), window("b", 5.0), window("c", 3.0), window("d", model="stranger"))
    entry = made.entry("echo")
    assert entry is not None
    assert sorted(entry.windows) == ["b", "c"]
    assert made.entry("stranger") is None


def test_the_last_start_is_the_newest_one_and_its_length_that_of_the_last_ready() -> None:
    """A start that goes on is shown, and how long the one before took is still known."""
    made = board(declared(), observed(replica("a")))
    entry = made.entry("echo")
    assert entry is not None
    assert (entry.last_start and entry.last_start.replica, entry.start_seconds) == ("a", 2.0)
    made.apply(WRITER.envelope(declared(2, uid="v")), 9)
    assert (entry.last_start, entry.start_seconds) == (None, None)
