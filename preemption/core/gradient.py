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

from preemption.core.gpus.mig_names import instance_milli
from preemption.core.gpus.parts import WHOLE, Kind, part_of
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

Turns = tuple[tuple[Kind, int], ...]
"""Kinds of turns of time-sliced cards, and how many of each nobody holds."""


class Have(NamedTuple):
    """What is free of a node's cards. `free`: thousandths of each card that is given out in parts, in the node's order
    where the `domains` of these cards are known, else by size; `usable`: the bytes that programs can have of each,
    one number where all are alike, none where it is known of none."""

    free: tuple[int, ...]
    instances: Instances = ()
    domains: tuple[Domain, ...] = ()
    usable: tuple[int, ...] = ()
    turns: Turns = ()

    @property
    def total(self) -> int:
        """Thousandths of cards, all together; a MIG instance counts as its part of one."""
        return (sum(self.free) + sum(instance_milli(profile) * count for profile, count in self.instances)
                + sum(kind.size * count for kind, count in self.turns))  # fmt: skip

    def kind(self, column: int) -> Kind:
        """Of one of the cards that are given out in parts."""
        if not self.usable:
            return WHOLE
        return Kind(self.usable[column if len(self.usable) > 1 else 0])


class Look(NamedTuple):
    """What of a node counts when places are compared; nodes that look alike are as good."""

    cpu: int
    have: Have


Choice = tuple[int, int, int]
"""Of the card of which a part is taken: what it has free, its usable bytes, its turns."""

_NONE: Final[Choice] = (0, 0, 0)


class Price(NamedTuple):
    """Less is better: `cost`, then `left` (what the node has free before: the best fit). `card`: the chosen one, where
    a part of one is taken."""

    cost: int
    left: int
    card: Choice = _NONE


class Typical(NamedTuple):
    """What usually comes: how many cards (0: none), at least so many thousandths of each, or so many bytes of one, or
    one instance of a MIG profile; thousandths of a core; and how often, in parts of the whole."""

    gpus: int
    milli: int
    gpu_bytes: int
    profile: str
    cpu: int
    weight: int


_Usual = tuple[int, int, int, str, int]
"""A `Typical` without its weight."""

_ANY: Final[_Usual] = (1, MILLI, 0, "", 0)
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
        self._lost: dict[Look, int] = {}

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
        return self._lost_on(look)

    def _renew(self) -> None:
        kinds = self.typical()
        self._stale = False
        if kinds != self._kinds:
            self._kinds, self._scale = kinds, max(1, sum(kind.weight for kind in kinds))
            self._prices.clear()
            self._lost.clear()

    def work_out(self, look: Look, need: Need) -> Price | None:
        """What it costs to place `need` on a node that looks so; None: it does not fit."""
        ways = _ways(look.have, need)
        if look.cpu < need.cpu_milli or not ways:
            return None
        before = self._lost_on(look)
        cpu = look.cpu - need.cpu_milli
        left = look.cpu + CPU_PER_CARD * look.have.total
        best: Price | None = None
        for card, have, lost in ways:
            growth = self._lost_on(Look(cpu, have)) - before + lost * self._scale
            cost = LEFT_PARTS * CPU_PER_CARD * growth
            cost += self._scale * (cpu + CPU_PER_CARD * have.total)
            if best is None or (cost, card) < (best.cost, best.card):
                best = Price(cost, left, card)
        return best

    def _lost_on(self, look: Look) -> int:
        """F + S (times the scale) of a node that has so much free; see `preemption.core.gpus.mix`."""
        known = self._lost.get(look)
        if known is not None:
            return known
        if len(self._lost) >= MEMORY:
            self._lost.clear()
        total, cpu = look.have.total, look.cpu
        lost = 0
        for kind in self._kinds:
            lost += kind.weight * (total - (_used(kind, look.have) if cpu >= kind.cpu else 0))
            if kind.milli and kind.cpu and not (kind.profile or _by_bytes(kind)):
                lost += kind.weight * max(0, total - cpu * kind.gpus * kind.milli // kind.cpu)
        self._lost[look] = lost
        return lost


def _usual(need: Need) -> _Usual:
    gpus = 1 if need.shares or need.mig_profile else need.gpus
    return gpus, (need.gpu_milli or MILLI) if gpus else 0, need.gpu_bytes, need.mig_profile, need.cpu_milli


def _by_bytes(kind: Typical) -> bool:
    """Whether how much it takes of a card depends on the card alone."""
    return kind.gpu_bytes > 0 and kind.milli == MILLI


def _used(kind: Typical, have: Have) -> int:
    """Thousandths that one more of this kind could be placed on; 0 when none fits."""
    if not kind.gpus:
        return 0
    if kind.profile:
        return instance_milli(kind.profile) * dict(have.instances).get(kind.profile, 0)
    if not kind.gpu_bytes:  # the same of every card
        able = [one for one in have.free if one >= kind.milli]
    else:
        able = [one for column, one in enumerate(have.free)
                if one >= part_of(kind.milli, kind.gpu_bytes, have.kind(column))]  # fmt: skip
    turns = [(turn.size * count, count) for turn, count in have.turns
             if part_of(kind.milli, kind.gpu_bytes, turn) <= turn.size]  # fmt: skip
    count = len(able) + sum(one for _, one in turns)
    return sum(able) + sum(size for size, _ in turns) if count >= kind.gpus else 0


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


_Way = tuple[Choice, Have, int]
"""The chosen card, what is free afterwards, and thousandths lost for want of NVLink."""


def _ways(have: Have, need: Need) -> list[_Way]:
    """Every way to place it on such a node, of cards that are alike one."""
    if need.mig_profile:
        if dict(have.instances).get(need.mig_profile, 0) <= 0:
            return []
        less = tuple((name, count - (name == need.mig_profile)) for name, count in have.instances)
        return [(_NONE, have._replace(instances=less), 0)]
    if need.shares:
        return [*_parts(have, need), *_turns(have, need)]
    if not need.gpus:
        return [(_NONE, have, 0)]
    whole = [column for column, one in enumerate(have.free) if one == MILLI]
    if len(whole) < need.gpus:
        return []
    picked = pick(have.domains, whole, need.gpus) if have.domains else tuple(whole[: need.gpus])
    free = tuple(0 if column in picked else one for column, one in enumerate(have.free))
    return [(_NONE, _sorted(have, free), apart(have.domains, picked) if have.domains else 0)]


def _parts(have: Have, need: Need) -> list[_Way]:
    """A part of a card, by what it has free and what it is: of those that are alike the first."""
    alike: dict[Choice, int] = {}
    for column, one in enumerate(have.free):
        alike.setdefault((one, have.kind(column).usable, 0), column)
    ways = []
    for choice, column in alike.items():
        takes = need.part(have.kind(column))
        if takes <= choice[0]:
            free = (*have.free[:column], choice[0] - takes, *have.free[column + 1 :])
            ways.append((choice, _sorted(have, free), 0))
    return ways


def _turns(have: Have, need: Need) -> list[_Way]:
    """A turn of a time-sliced card, which is given whole."""
    ways = []
    for turn, _ in have.turns:
        if need.part(turn) <= turn.size:
            less = ((kind, count - (kind == turn)) for kind, count in have.turns)
            left = tuple(one for one in less if one[1])
            ways.append(((turn.size, turn.usable, turn.turns), have._replace(turns=left), 0))
    return ways


def _sorted(have: Have, free: tuple[int, ...]) -> Have:
    """With so much free instead, in the order that looks are in."""
    if have.domains:
        return have._replace(free=free)
    if len(have.usable) < 2:
        return have._replace(free=tuple(sorted(free)))
    both = sorted(zip(free, have.usable, strict=True))
    return have._replace(free=tuple(one for one, _ in both), usable=tuple(one for _, one in both))
