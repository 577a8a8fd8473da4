"""Which replicas that are only kept go, so that a model for which requests wait has a place for one more. Pure; nothing
is changed here.

Whose: keepers come in tiers, the first to give first, and nothing is taken of a later tier where earlier ones have
enough. Within a tier: on each node no more than it needs there, and of all nodes those that run least, then the fewest,
then those after which the cards are least fragmented *with the newcomer in its place*: what a node loses when one
leaves says little where its place is filled at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from preemption.core.gpus.shapes import CPU_PER_CARD
from preemption.core.inventory import Holding, Ledger, Need, Node
from preemption.core.placement import place_among
from preemption.core.seat import Seat
from preemption.core.standing import Spare
from preemption.core.terms import Terms

CONSIDERED_MOST: Final = 32
"""Ways to make room that are compared, the first that are found: a pool may have thousands of kept replicas. Chosen."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One replica that its owner would give."""

    owner: Seat
    spare: Spare

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.spare.replica


@dataclass(frozen=True, slots=True)
class _Way:
    """Who goes, all on one node but for those that must go before them."""

    going: tuple[Offer, ...]
    running: float
    growth: int
    left: int

    def cost(self) -> tuple[float, int, int, int]:
        """Less is better."""
        return self.running, len(self.going), self.growth, -self.left


@dataclass(slots=True)
class Giving:
    """For one more replica that takes `need`, on nodes that `terms` allow."""

    ledger: Ledger
    need: Need
    terms: Terms
    _offered: dict[str, list[Offer]] = field(default_factory=dict)
    _bare: dict[str, Node] = field(default_factory=dict)
    """Nodes without all that is offered there."""

    def find(self, tiers: Iterable[Sequence[Seat]]) -> tuple[Offer, ...]:
        """Who goes; nobody when all together would not help."""
        for tier in tiers:
            ways: list[_Way] = []
            for offer in _offers(tier):
                going = self._enough_with(offer)
                if going:
                    ways.append(self._way(offer, going))
                if len(ways) >= CONSIDERED_MOST:
                    break
            if ways:
                return min(ways, key=_Way.cost).going
        return ()

    def _enough_with(self, offer: Offer) -> tuple[Offer, ...]:
        """Those without which it fits on this one's node; none where it does not fit there all the same."""
        node = self._node_of(offer)
        if node is None:
            return ()
        there = self._offered.setdefault(node.name, [])
        there.append(offer)
        if node.name not in self._bare:
            self._bare[node.name] = _copy(node)
        bare = self._bare[node.name]
        bare.take(self._holding(offer), -1)
        if not self._fits(bare):
            return ()
        for some in ((offer,), self._needed(node, there)):
            going = _with_earlier(some)
            if self._fits(self._without(node, going)) and _may_go(going):
                return going
        return ()

    def _needed(self, node: Node, there: Sequence[Offer]) -> tuple[Offer, ...]:
        """Of those that are offered there as many as are needed, of the first to give rather than of later ones."""
        left, without = list(there), self._without(node, there)
        for offer in reversed(there):
            without.take(self._holding(offer), 1)
            if self._fits(without):
                left.remove(offer)
            else:
                without.take(self._holding(offer), -1)
        return tuple(left)

    def _way(self, offer: Offer, going: tuple[Offer, ...]) -> _Way:
        node = self._node_of(offer)
        assert node is not None
        after = self._without(node, going)
        found = place_among((after,), self.need, self.terms, self.ledger.gradient)
        assert found is not None
        after.take(Holding(found, self.need), 1)
        lost, look = self.ledger.gradient.lost, after.look
        left = look.cpu + CPU_PER_CARD * look.have.total
        return _Way(going, max(one.spare.running for one in going), lost(look) - lost(node.look), left)

    def _without(self, node: Node, going: Iterable[Offer]) -> Node:
        """The node when these are gone, to try things on."""
        left = _copy(node)
        for offer in going:
            if offer.name in node.holdings:
                left.take(self._holding(offer), -1)
        return left

    def _fits(self, node: Node) -> bool:
        return place_among((node,), self.need, self.terms, self.ledger.gradient) is not None

    def _node_of(self, offer: Offer) -> Node | None:
        """Where it holds something that is known."""
        holding = self.ledger.holdings.get(offer.name)
        return None if holding is None else self.ledger.nodes.get(holding.placement.node)

    def _holding(self, offer: Offer) -> Holding:
        return self.ledger.holdings[offer.name]


def _offers(tier: Sequence[Seat]) -> Iterator[Offer]:
    for owner in tier:
        if owner.stand is not None:
            yield from (Offer(owner, spare) for spare in owner.stand.spare)


def _copy(node: Node) -> Node:
    return replace(node, free_cards=dict(node.free_cards))


def _with_earlier(going: Sequence[Offer]) -> tuple[Offer, ...]:
    """With those that must go before them, where an object ends its replicas in an order of its own."""
    names, more = {offer.name for offer in going}, list(going)
    for offer in going:
        assert offer.owner.stand is not None
        if not offer.spare.in_order:
            continue
        for earlier in offer.owner.stand.spare:
            if earlier == offer.spare:
                break
            if earlier.replica not in names:
                names.add(earlier.replica)
                more.append(Offer(offer.owner, earlier))
    return tuple(more)


def _may_go(going: Sequence[Offer]) -> bool:
    """Whether no model gives more than it only keeps."""
    counts = Counter(offer.owner.model for offer in going)
    return all(offer.owner.stand is not None and counts[offer.owner.model] <= offer.owner.stand.kept for offer in going)
