"""The one ledger of what the nodes have and who holds it: GPUs, cores, memory.

Everything is a whole number (thousandths of a core or of a card, bytes), so that giving back restores exactly what was
taken. A holding is entered and given back by the replica's name, once each. How much of a card somebody takes is the
rule of `preemption.core.gpus.parts`, as in the planner's arrays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from events.types.grants import Placement
from events.types.limits import Limit
from events.types.replicas import CardsObserved, OwnRoom, Taint
from events.types.shared import Resources
from preemption.core.gpus.boards import domains_of
from preemption.core.gpus.mig_names import instance_milli
from preemption.core.gpus.parts import WHOLE, Kind, kind_of, part_of
from preemption.core.gpus.topology import Domain
from preemption.core.gradient import Gradient, Have, Look, Price, Prices

MILLI = 1000
"""A whole core or card."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one replica takes; fractions are rounded up to thousandths. `gpu_bytes`: of one card's memory."""

    gpus: int
    gpu_milli: int
    mig_profile: str
    cpu_milli: int
    memory_bytes: int
    gpu_bytes: int = 0

    @property
    def any_gpu(self) -> bool:
        """Whether it takes a GPU, or a part of one."""
        return bool(self.gpus or self.shares or self.mig_profile)

    @property
    def shares(self) -> bool:
        """Whether it takes a part of a card, and may share it with others."""
        return bool(self.gpu_milli or self.gpu_bytes)

    @property
    def milli_each(self) -> int:
        """Thousandths that each of its cards counts as where only events are read, which tell of no cards: what was
        asked for in bytes counts as a card, a turn as what was asked for of it."""
        return self.gpu_milli or (instance_milli(self.mig_profile) if self.mig_profile else MILLI)

    def part(self, kind: Kind) -> int:
        """Thousandths that it takes of each card of this kind, or `NEVER`."""
        return part_of(self.gpu_milli or MILLI, self.gpu_bytes, kind)


def need_of(resources: Resources) -> Need:
    """`resources` in whole numbers."""
    return Need(
        gpus=resources.gpus,
        gpu_milli=math.ceil(round(resources.gpu_fraction * MILLI, 6)),
        mig_profile=resources.mig_profile,
        cpu_milli=math.ceil(round(resources.cpu * MILLI, 6)),
        memory_bytes=resources.memory_bytes,
        gpu_bytes=resources.gpu_bytes,
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """What a replica holds, and where."""

    placement: Placement
    need: Need


@dataclass(slots=True)
class Node:
    """A node: what it has in all, and what of it is free (below zero when it shrank under its replicas)."""

    name: str
    cpu_milli: int
    memory_bytes: int
    cards: tuple[str, ...]
    free_cpu: int
    free_memory: int
    free_cards: dict[str, int]
    whole_cards: int
    """Cards that nobody holds a part of; MIG instances and turns are none."""
    profiles: dict[str, str] = field(default_factory=dict)
    """The profile of each card that is a MIG instance."""
    kinds: dict[str, Kind] = field(default_factory=dict)
    """The kind of each other card: its usable bytes, and whether it is a turn."""
    alike: Kind | None = WHOLE
    """What these cards are, where all are alike and no turns; None: they differ, or some are turns."""
    holdings: dict[str, Holding] = field(default_factory=dict)
    labels: Mapping[str, str] | None = None
    taints: tuple[Taint, ...] = ()
    domains: Mapping[str, Domain] = field(default_factory=dict)
    """Which cards reach each other how; empty where it is not known of any."""
    _look: Look | None = field(default=None, compare=False)
    _priced: tuple[Prices, Price | None] | None = field(default=None, compare=False)

    @property
    def look(self) -> Look:
        """What it has free, as places are compared."""
        if self._look is None:
            self._look = Look(self.free_cpu, self._have())
        return self._look

    def _have(self) -> Have:
        """What is free of its cards: those given out in parts in the node's order where it is known how they reach each
        other, else by size."""
        parts, domains = self.parts, tuple[Domain, ...]()
        if self.alike is not None:
            free = tuple(parts.values())
            if self.domains:
                domains = tuple(self.domains[card] for card in parts)
            usable = (self.alike.usable,) if self.alike.usable and free else ()
            return Have(free if domains else tuple(sorted(free)), self._instances(), domains, usable)
        turns = Counter(kind for card, free in parts.items() if (kind := self.kinds[card]).turns and free == kind.size)
        rest = [(free, self.kinds[card].usable, card) for card, free in parts.items() if not self.kinds[card].turns]
        if self.domains:
            domains = tuple(self.domains[card] for _, _, card in rest)
        else:
            rest.sort()
        return Have(
            tuple(free for free, _, _ in rest), self._instances(), domains, tuple(usable for _, usable, _ in rest),
            tuple(sorted(turns.items())),
        )  # fmt: skip

    def price(self, prices: Prices) -> Price | None:
        """What the need of these prices costs here; None: it does not fit. The last answer is remembered."""
        known = self._priced
        if known is None or known[0] is not prices:
            known = self._priced = prices, prices[self.look]
        return known[1]

    @property
    def parts(self) -> dict[str, int]:
        """What is free of the cards that are given out in parts: all but MIG instances, which are given whole."""
        if not self.profiles:
            return self.free_cards
        return {card: free for card, free in self.free_cards.items() if card not in self.profiles}

    def _instances(self) -> tuple[tuple[str, int], ...]:
        if not self.profiles:
            return ()
        return tuple((name, len(self.free_instances(name))) for name in sorted(set(self.profiles.values())))

    def take(self, holding: Holding, sign: int) -> None:
        """Take a holding out of what is free (`sign` 1), or put it back (-1)."""
        need = holding.need
        self._look = self._priced = None
        self.free_cpu -= sign * need.cpu_milli
        self.free_memory -= sign * need.memory_bytes
        for card in holding.placement.gpus:
            if card in self.free_cards:
                before = self.free_cards[card]
                self.free_cards[card] = before - sign * self.takes(need, card)
                if card not in self.profiles and not self.kinds[card].turns:
                    self.whole_cards += (self.free_cards[card] == MILLI) - (before == MILLI)

    def takes(self, need: Need, card: str) -> int:
        """Thousandths of this card that whoever holds it with such a need has: all of it where it should not be there
        at all, as on a card that has another kind since."""
        kind = self.kinds.get(card, WHOLE)
        return kind.size if card in self.profiles else min(need.part(kind), kind.size)

    def fits_on(self, need: Need, card: str) -> bool:
        """Whether a card that is given out in parts has so much free now."""
        return self.free_cards.get(card, 0) >= need.part(self.kinds.get(card, WHOLE))

    @property
    def all_whole(self) -> int:
        """Cards that can be had whole, were nobody on them."""
        return sum(not kind.turns for kind in self.kinds.values())

    def has_free(self, need: Need, card: str) -> bool:
        """Whether so much of this very card is free."""
        return self.free_cards.get(card, 0) == MILLI if card in self.profiles else self.fits_on(need, card)

    def free_instances(self, profile: str) -> list[str]:
        """MIG instances of a profile that nobody holds, in the node's order."""
        return [card for card, has in self.profiles.items() if has == profile and self.free_cards[card] == MILLI]

    def _only_cordoned(self, card: str, free: int) -> bool:
        """Whether less than nothing is free of a card only because it is cordoned as well."""
        return free >= -MILLI and cordon_name(self.name, card) in self.holdings

    @property
    def overcommitted(self) -> bool:
        """Whether more is held than is there."""
        return (
            self.free_cpu < 0
            or self.free_memory < 0
            or any(free < 0 and not self._only_cordoned(card, free) for card, free in self.free_cards.items())
        )


def _alike(kinds: Collection[Kind]) -> Kind | None:
    """What all of them are; None: they differ, or some are turns."""
    found = set(kinds) or {WHOLE}
    (first, *others) = found
    return None if others or first.turns else first


def cordon_name(node: str, card: str) -> str:
    """What a cordoned card is held by in the ledger. (No replica's name has a slash.)"""
    return f"cordon/{node}/{card}"


ROOM: Final = "room/"
"""What the names of rooms in the ledger begin with."""


def room_name(room: OwnRoom) -> str:
    """What holds a room in the ledger."""
    return f"{ROOM}{room.pod}"


class Ledger:
    """All nodes and holdings of the pool."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._holdings: dict[str, Holding] = {}
        self._elsewhere: dict[str, dict[str, Holding]] = {}  # holdings on nodes that are not known (yet), by node
        self._overcommitted: set[str] = set()
        self.seen: dict[str, CardsObserved] = {}
        """Each node as it was told last."""
        self.version = 0
        """Counts up with each change."""
        self.limits: tuple[Limit, ...] = ()
        """Bounds beside what nodes have."""
        self._rooms: dict[str, tuple[OwnRoom, ...]] = {}
        """By node."""
        self._rooms_by_model: dict[str, list[OwnRoom]] = {}
        self.gradient = Gradient()
        """What usually comes, and what places cost under it."""
        self._alike: dict[Look, set[str]] = {}
        self._looked: dict[str, Look] = {}
        self._changed: set[str] = set()

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """Everything that is held, by replica."""
        return self._holdings

    def set_node(self, seen: CardsObserved) -> None:
        """A node is new, or has something else than before. What is held on it stays held."""
        self.seen[seen.node] = seen
        self.version += 1
        self._set_rooms(seen)
        old = self.nodes.get(seen.node)
        holdings = self._elsewhere.pop(seen.node, {}) if old is None else old.holdings
        cards = tuple(card.id for card in seen.cards)
        kinds = {card.id: kind_of(card) for card in seen.cards if not card.profile}
        cpu = math.floor(round(seen.cpu * MILLI, 6))
        free_cards = {card: kinds.get(card, WHOLE).size for card in cards}
        profiles = {card.id: card.profile for card in seen.cards if card.profile}
        whole = sum(not kind.turns for kind in kinds.values())
        node = Node(
            seen.node, cpu, seen.memory_bytes, cards, cpu, seen.memory_bytes, free_cards, whole, profiles, kinds,
            _alike(kinds.values()), holdings,
            seen.labels, seen.taints, dict(zip(cards, domains_of(seen.cards), strict=False)),
        )  # fmt: skip
        for holding in holdings.values():
            node.take(holding, 1)
        self.nodes[seen.node] = node
        self._check(node)

    def alike(self) -> Mapping[Look, set[str]]:
        """The names of the nodes, by what they look like. For reading, until the next change."""
        for name in self._changed:
            new, old = self.nodes[name].look, self._looked.get(name)
            if new == old:
                continue
            if old is not None:
                self._alike[old].discard(name)
                if not self._alike[old]:
                    del self._alike[old]
            self._alike.setdefault(new, set()).add(name)
            self._looked[name] = new
        self._changed.clear()
        return self._alike

    def hold(self, replica: str, holding: Holding) -> None:
        """`replica` holds this from now on, instead of what it held before."""
        if self._holdings.get(replica) == holding:
            return
        self.release(replica)
        self.version += 1
        self._holdings[replica] = holding
        node = self.nodes.get(holding.placement.node)
        if node is None:
            self._elsewhere.setdefault(holding.placement.node, {})[replica] = holding
        else:
            node.holdings[replica] = holding
            node.take(holding, 1)
            self._check(node)

    def release(self, replica: str) -> bool:
        """`replica` holds nothing any more; False when it held nothing."""
        holding = self._holdings.pop(replica, None)
        if holding is None:
            return False
        self.version += 1
        node = self.nodes.get(holding.placement.node)
        if node is None:
            there = self._elsewhere[holding.placement.node]
            del there[replica]
            if not there:
                del self._elsewhere[holding.placement.node]
        else:
            del node.holdings[replica]
            node.take(holding, -1)
            self._check(node)
        return True

    def cordon(self, node: str, card: str) -> None:
        """The whole card is taken out of what is free, whoever holds parts of it."""
        known = self.nodes.get(node)
        profile = "" if known is None else known.profiles.get(card, "")
        need = Need(gpus=0 if profile else 1, gpu_milli=0, mig_profile=profile, cpu_milli=0, memory_bytes=0)
        self.hold(cordon_name(node, card), Holding(Placement(node=node, gpus=(card,)), need))

    def _set_rooms(self, seen: CardsObserved) -> None:
        """Forget the rooms of a node, and know those that are told of it. `keep_rooms` holds them."""
        for room in self._rooms.pop(seen.node, ()):
            self.release(room_name(room))
            self._rooms_by_model[room.model].remove(room)
            if not self._rooms_by_model[room.model]:
                del self._rooms_by_model[room.model]
        if seen.rooms:
            self._rooms[seen.node] = seen.rooms
        for room in seen.rooms:
            self._rooms_by_model.setdefault(room.model, []).append(room)

    def keep_rooms(self) -> None:
        """Hold what pods of enrolled objects have for the replicas of their model that are still to be wanted. A
        replica that has been given one has its very place, so there is nothing free any more."""
        for node, rooms in sorted(self._rooms.items()):
            if node in self._overcommitted:
                for one in rooms:
                    self.release(room_name(one))
            for one in rooms:
                if (name := room_name(one)) in self._holdings:
                    continue
                holding = Holding(Placement(node=node, gpus=one.gpus), need_of(one.resources))
                if self.has_free(holding):
                    self.hold(name, holding)

    def rooms_of(self, model: str) -> list[str]:
        """The names by which room is held for a model's next replicas, the first to be given first."""
        rooms = sorted(self._rooms_by_model.get(model, ()), key=lambda one: (one.ordinal, one.since, one.pod))
        return [name for one in rooms if (name := room_name(one)) in self._holdings]

    def has_free(self, holding: Holding) -> bool:
        """Whether all that this takes is free where it is."""
        node, need = self.nodes.get(holding.placement.node), holding.need
        if node is None or node.free_cpu < need.cpu_milli or node.free_memory < need.memory_bytes:
            return False
        return all(node.has_free(need, card) for card in holding.placement.gpus)

    def exists(self, placement: Placement) -> bool:
        """Whether the node and all the cards of a placement are there."""
        node = self.nodes.get(placement.node)
        return node is not None and all(card in node.free_cards for card in placement.gpus)

    def overcommitted(self) -> list[Node]:
        """Nodes on which more is held than is there, by name."""
        return [self.nodes[name] for name in sorted(self._overcommitted)]

    def _check(self, node: Node) -> None:
        self._changed.add(node.name)
        if node.overcommitted:
            self._overcommitted.add(node.name)
        else:
            self._overcommitted.discard(node.name)
