"""Which gateway is the slot authority of a model: the one with the highest hash of both names.

Rendezvous hashing (Thaler and Ravishankar, 1998): whoever knows the same gateways makes the same choice without asking
anybody; a gateway that comes takes over 1/n of the models, one that goes leaves its own to the others, and no other
model moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from runtime.core.members import Member, View


def weight(model: str, gateway: str) -> int:
    """How much a model prefers a gateway; the same on every machine and in every release."""
    return int.from_bytes(blake2b(f"{model}\0{gateway}".encode(), digest_size=8).digest(), "big")


def choose(model: str, gateways: Iterable[Member]) -> Member | None:
    """The gateway that a model prefers; None when there is none. A restart of a gateway changes nothing."""
    return max(gateways, key=lambda member: (weight(model, member.gateway), member), default=None)


class Authorities:
    """The slot authority of each model, as somebody with this view sees it. Choices are remembered."""

    __slots__ = ("_chosen", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self._chosen: dict[str, Member | None] = {}

    def of(self, model: str) -> Member | None:
        """The authority of a model; None when all gateways leave."""
        try:
            return self._chosen[model]
        except KeyError:
            chosen = self._chosen[model] = choose(model, self.view.staying)
            return chosen

    def forget(self, model: str) -> None:
        """The model is not declared any more."""
        self._chosen.pop(model, None)
