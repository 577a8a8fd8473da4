"""Which nodes a replica may go to: labels that they must have, and taints that it bears. Kubernetes' rules; pure.

A node whose labels are not known (None) refuses nobody for a label: unknown is not without.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from events.types.replicas import CLOSES, Taint
from preemption.core.inventory import Node


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that is borne. Empty `key`: every key; empty `effect`: every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def bears(self, taint: Taint) -> bool:
        """Whether this taint is borne."""
        if self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return (self.key, self.value) == (taint.key, taint.value)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a declaration says of its nodes. `selector`: labels, sorted."""

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


ANYWHERE: Final = Terms()
"""Says nothing: every node without a taint."""


def allows(node: Node, terms: Terms) -> bool:
    """Whether a replica may go to this node."""
    if not node.taints and not terms.selector:
        return True
    return not _unborne(node, terms) and not _missing(node, terms)


def refused_by_all(nodes: Iterable[Node], terms: Terms) -> str:
    """Why none of these nodes, of which each refuses, may have it: by name of the label or taint, and of the node that
    comes nearest. Ties end with the node's name."""
    ranked = [(len(_missing(node, terms)) + len(_unborne(node, terms)), node.name, node) for node in nodes]
    _, name, nearest = min(ranked, key=lambda one: one[:2])
    parts = [_label_words(nearest, key, value) for key, value in _missing(nearest, terms)]
    parts += [f"its taint {_words(taint)} is not tolerated" for taint in _unborne(nearest, terms)]
    return f"no node that could hold it may have it; {name} comes nearest: {', and '.join(parts)}"


def _missing(node: Node, terms: Terms) -> list[tuple[str, str]]:
    if node.labels is None:
        return []
    return [(key, value) for key, value in terms.selector if node.labels.get(key) != value]


def _unborne(node: Node, terms: Terms) -> list[Taint]:
    hard = (taint for taint in node.taints if taint.effect in CLOSES)
    return [taint for taint in hard if not any(one.bears(taint) for one in terms.tolerations)]


def _label_words(node: Node, key: str, wanted: str) -> str:
    value = None if node.labels is None else node.labels.get(key)
    return (
        f"it has no label {key} ({wanted} is wanted)" if value is None else f"its label {key} is {value}, not {wanted}"
    )


def _words(taint: Taint) -> str:
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
