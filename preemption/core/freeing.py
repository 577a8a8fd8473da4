"""What it is worth that a replica leaves: how fragmented what is free is afterwards.

The measure is the one by which places are chosen (`preemption.core.gradient`): of what is free, how much the needs that
usually come could not use, and how many cards would be left without cores. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from preemption.core.gpus.shapes import CPU_PER_CARD
from preemption.core.inventory import Ledger, Node

Fragmentation = tuple[int, int]
"""By how much the fragmentation of the pool grows (below zero: it shrinks), and what the node then has free, with its
sign turned. Less is better: of two that leave it alike, the one that empties its node further."""


class Freeing:
    """Tells what the pool looks like without some replicas. `prepare` is called before the first question: the ledger
    must know of all that is held by then."""

    def __init__(self, ledger: Ledger, prepare: Callable[[], None] = lambda: None) -> None:
        self._ledger = ledger
        self._prepare = prepare
        self._prepared = False

    def fragmentation(self, replica: str, gone: Iterable[str] = ()) -> Fragmentation:
        """When `replica` leaves, and those in `gone` have left. Of one that holds nothing that is known: (0, 0)."""
        if not self._prepared:
            self._prepare()
            self._prepared = True
        node = self._node_of(replica)
        if node is None:
            return 0, 0
        for name in gone:
            if name in node.holdings:
                node.take(self._ledger.holdings[name], -1)
        gradient, before = self._ledger.gradient, node.look
        node.take(self._ledger.holdings[replica], -1)
        after = node.look
        left = after.cpu + CPU_PER_CARD * after.have.total
        return gradient.lost(after) - gradient.lost(before), -left

    def node_of(self, replica: str) -> str:
        """Where it holds something; empty where nothing is known of it."""
        holding = self._ledger.holdings.get(replica)
        return "" if holding is None else holding.placement.node

    def _node_of(self, replica: str) -> Node | None:
        """A copy, to try things on."""
        node = self._ledger.nodes.get(self.node_of(replica))
        return None if node is None else replace(node, free_cards=dict(node.free_cards))
