"""What it costs to place one more replica on a node: how much less of what is free is of use to what usually comes.

The same price as `preemption.core.gpus.choosing` has for its policy ``relume`` (decision 20), for one node at a time
and without numpy, which a pool without training does not load: ΔF + ΔS + a hundredth of what the node has left, and
what is lost where several cards do not reach each other over NVLink. All in whole numbers. A price depends on the
node's *look* alone, what it has free, so nodes that look alike are priced once, and a price is remembered until what
usually comes changes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from preemption.core.gpus.shapes import CPU_PER_CARD, LEFT_PARTS, MILLI
from preemption.core.gpus.topology import Domain, apart, pick

if TYPE_CHECKING:
    from preemption.core.inventory import Need

PARTS: Final = 64
"""How often each typical need comes is rounded to so many parts of the whole, so that one more declaration among many
changes no price. Chosen."""

TYPICAL_MOST: Final = 32
"""Kinds of needs that count as typical, the most frequent. Chosen: real pools have some dozens."""

MEMORY: Final = 1 << 14
"""Prices of one need, and states of nodes, that are remembered; some hundred bytes each."""

NEEDS: Final = 1 << 8
"""Needs whose prices are remembered. Chosen: real pools have some dozens."""


Instances = tuple[tuple[str, int], ...]
"""MIG profiles, and how many instances of each nobody holds."""


class Look(NamedTuple):
    """What of a node counts when places are compared; nodes that look alike are as good. `free`: thousandths of each
    card that is given out in parts, in the node's order where the `domains` of these cards are known, else by size."""

    cpu: int
    free: tuple[int, ...]
    instances: Instances = ()
    domains: tuple[Domain, ...] = ()


class Price(NamedTuple):
    """Less is better: `cost`, then `left` (what the node has free before: the best fit). `card`: what the chosen card
    has free, where a part of one is taken."""

    cost: int
    left: int
    card: int = 0


class Typical(NamedTuple):
    """What usually comes: how many cards (0: none), at least so many thousandths free on each, or one instance of a MIG
    profile; thousandths of a core; and how often, in parts of the whole."""

    gpus: int
    milli: int
    profile: str
    cpu: int
    weight: int


_Usual = tuple[int, int, str, int]
"""A `Typical` without its weight."""

_ANY: Final[_Usual] = (1, MILLI, "", 0)
"""What nobody has declared yet."""


class Gradient:
    """What usually comes, and prices under it: what is declared, each model once, and one that takes a whole card.

    That one stands for what nobody has declared yet. In a pool of few models it keeps whole cards whole, as best fit
    does; among many it counts as little as any of them.
    """

    def __init__(self) -> None:
        self._needs: dict[str, _Usual] = {}
        self._counts: Counter[_Usual] = Counter()
        self._stale = True
        self._kinds: tuple[Typical, ...] = ()
        self._scale = 1
        self._prices: dict[Need, Prices] = {}
        self._lost: dict[tuple[int, tuple[int, ...], Instances], int] = {}

    def declare(self, model: str, need: Need | None) -> None:
        """A model's replicas take this; None: it is not declared any more."""
        kind = None if need is None else _usual(need)
        old = self._needs.get(model)
        if kind == old:
            return
        self._stale = True
        if old is not None:
            del self._needs[model]
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]
        if kind is not None:
            self._needs[model] = kind
            self._counts[kind] += 1

    def typical(self) -> tuple[Typical, ...]:
        """What counts as typical, the most frequent first."""
        counts = {**self._counts, _ANY: self._counts[_ANY] + 1}
        chosen = heapq.nsmallest(TYPICAL_MOST, counts.items(), key=lambda one: (-one[1], one[0]))
        total = sum(count for _, count in chosen)
        return tuple(Typical(*kind, max(1, (PARTS * count + total // 2) // total)) for kind, count in chosen)

    def prices(self, need: Need) -> Prices:
        """What `need` costs, by look. Ask again for each placement."""
        if self._stale:
            self._renew()
        known = self._prices.get(need)
        if known is None:
            if len(self._prices) >= NEEDS:
                self._prices.clear()
            known = self._prices[need] = Prices(self, need)
        return known

    def lost(self, look: Look) -> int:
        """What is lost of what such a node has free: F and S of decision 20, times what usually comes weighs in all."""
        if self._stale:
            self._renew()
        return self._lost_on(look.cpu, look.free, look.instances)

    def _renew(self) -> None:
        kinds = self.typical()
        self._stale = False
        if kinds != self._kinds:
            self._kinds, self._scale = kinds, max(1, sum(kind.weight for kind in kinds))
            self._prices.clear()
            self._lost.clear()

    def work_out(self, look: Look, need: Need) -> Price | None:
        """What it costs to place `need` on a node that looks so; None: it does not fit."""
        ways = _ways(look, need)
        if look.cpu < need.cpu_milli or not ways:
            return None
        before = self._lost_on(look.cpu, look.free, look.instances)
        cpu = look.cpu - need.cpu_milli
        left = look.cpu + CPU_PER_CARD * _total(look.free, look.instances)
        best: Price | None = None
        for card, free, instances, lost in ways:
            growth = self._lost_on(cpu, free, instances) - before + lost * self._scale
            cost = LEFT_PARTS * CPU_PER_CARD * growth
            cost += self._scale * (cpu + CPU_PER_CARD * _total(free, instances))
            if best is None or (cost, card) < (best.cost, best.card):
                best = Price(cost, left, card)
        return best

    def _lost_on(self, cpu: int, free: tuple[int, ...], instances: Instances) -> int:
        """F + S (times the scale) of a node that has so much free; see `preemption.core.gpus.mix`."""
        key = cpu, free, instances
        known = self._lost.get(key)
        if known is not None:
            return known
        if len(self._lost) >= MEMORY:
            self._lost.clear()
        total, counts = _total(free, instances), dict(instances)
        lost = 0
        for kind in self._kinds:
            lost += kind.weight * (total - _used(kind, cpu, free, counts))
            if kind.milli and kind.cpu and not kind.profile:
                lost += kind.weight * max(0, total - cpu * kind.gpus * kind.milli // kind.cpu)
        self._lost[key] = lost
        return lost


def _usual(need: Need) -> _Usual:
    part = bool(need.gpu_milli or need.mig_profile)
    gpus = 1 if part else need.gpus
    return gpus, (need.gpu_milli or MILLI) if gpus else 0, need.mig_profile, need.cpu_milli


def _total(free: tuple[int, ...], instances: Instances) -> int:
    return sum(free) + MILLI * sum(count for _, count in instances)


def _used(kind: Typical, cpu: int, free: tuple[int, ...], counts: dict[str, int]) -> int:
    """Thousandths that one more of this kind could be placed on; 0 when none fits."""
    if not kind.gpus or cpu < kind.cpu:
        return 0
    if kind.profile:
        return MILLI * counts.get(kind.profile, 0)
    able = [one for one in free if one >= kind.milli]
    return sum(able) if len(able) >= kind.gpus else 0


class Prices(dict[Look, Price | None]):
    """What one need costs on nodes, by their look; None: it does not fit. (Memory is not looked at.)"""

    def __init__(self, gradient: Gradient, need: Need) -> None:
        super().__init__()
        self._gradient = gradient
        self._need = need

    def __missing__(self, look: Look) -> Price | None:
        if len(self) >= MEMORY:
            self.clear()
        found = self[look] = self._gradient.work_out(look, self._need)
        return found


_Way = tuple[int, tuple[int, ...], Instances, int]
"""What the chosen card has free, the cards and instances afterwards, and thousandths lost for want of NVLink."""


def _ways(look: Look, need: Need) -> list[_Way]:
    """Every way to place it on such a node, of cards that are alike one."""
    if need.mig_profile:
        if dict(look.instances).get(need.mig_profile, 0) <= 0:
            return []
        less = tuple((name, count - (name == need.mig_profile)) for name, count in look.instances)
        return [(0, look.free, less, 0)]
    if need.gpu_milli:
        sizes = {one for one in look.free if one >= need.gpu_milli}
        return [(one, _less(look, one, need.gpu_milli), look.instances, 0) for one in sizes]
    if not need.gpus:
        return [(0, look.free, look.instances, 0)]
    whole = [column for column, one in enumerate(look.free) if one == MILLI]
    if len(whole) < need.gpus:
        return []
    picked = pick(look.domains, whole, need.gpus) if look.domains else tuple(whole[: need.gpus])
    free = tuple(0 if column in picked else one for column, one in enumerate(look.free))
    return [(0, _sorted(look, free), look.instances, apart(look.domains, picked) if look.domains else 0)]


def _less(look: Look, size: int, taken: int) -> tuple[int, ...]:
    """What is free when `taken` goes from the first card that has `size` free."""
    at = look.free.index(size)
    return _sorted(look, (*look.free[:at], size - taken, *look.free[at + 1 :]))


def _sorted(look: Look, free: tuple[int, ...]) -> tuple[int, ...]:
    """In the order that looks are in."""
    return free if look.domains else tuple(sorted(free))
