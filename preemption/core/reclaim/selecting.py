"""The cheapest sufficient victims: bundles by cost per replica, node by node, then fill-back and swaps.

A *unit* is what can be taken at once: a whole job, or one surplus member of an elastic one. For each node the cheapest
few units that make room for one more replica there are a *bundle*; the bundle that costs least a replica is taken,
what it frees elsewhere counts at once, and so on until there is room for all. Then every unit that is not needed after
all is put back, the dearest first, and each one that is left is swapped for a cheaper one where one will do. What is
left has no unit too many: without any one of them the replicas have no room. (Room only grows as units leave, so one
pass finds that.)
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from preemption.core.gpus.space import Space
from preemption.core.reclaim.rooms import Key, NodeRoom, NodeTrial, node_room
from preemption.core.reclaim.values import Held, Shortage

MOST_SWAPS = 64
"""Swaps are tried among so many units at most: they cost the square."""


MOST_TRIED = 6
"""All sets of the units of one node are tried where it has so few."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What can be taken at once. `members`: which of the job's."""

    job: str
    members: tuple[int, ...]
    held: tuple[Held, ...]
    cost: float
    whole: bool

    @property
    def key(self) -> Key:
        """Tells units apart."""
        return self.job, self.members

    @property
    def turn(self) -> tuple[str, int]:
        """Orders units that cost the same: by name, and of one job's members the last first."""
        return self.job, -self.members[-1]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The units that are taken; those that were at first and are not needed; those that could be of no use at all."""

    taken: tuple[Unit, ...]
    put_back: tuple[Unit, ...]
    useless: frozenset[str]
    enough: bool


@dataclass(frozen=True, slots=True)
class _Bundle:
    gained: int
    cost: float
    units: tuple[Unit, ...]

    def each(self, missing: int) -> float:
        """What a replica of it costs, when so many are missing: more are worth nothing."""
        return self.cost / max(1, min(self.gained, missing))


class Selection:
    """Chooses units for one shortage; made for one choice."""

    def __init__(self, space: Space, shortage: Shortage, units: Sequence[Unit]) -> None:
        self._space, self._shortage = space, shortage
        here = _by_node(units)
        rooms = {row: node_room(space, row, shortage.task) for row in here}
        useful = {key for row, there in here.items() for key in _of_use(rooms[row], there, shortage.count)}
        self._units = sorted((one for one in units if one.key in useful), key=lambda unit: (unit.cost, unit.turn))
        self._useless = frozenset(unit.job for unit in units) - {unit.job for unit in self._units}
        """Jobs that hold nothing which could be of use."""
        self._here = _by_node(self._units)
        self._by_key = {unit.key: unit for unit in self._units}
        self._base = {row: rooms[row] for row in self._here}
        self._counts = {row: room.count() for row, room in self._base.items()}
        self._room = int(space.room(shortage.task).sum())
        self._taken: dict[Key, Unit] = {}

    def choose(self) -> Chosen:
        """The cheapest units that were found to be enough."""
        enough = self._take_bundles()
        if not enough:
            return Chosen((), (), self._useless, enough=False)
        first = dict(self._taken)
        self._fill_back()
        self._swap()
        taken = tuple(sorted(self._taken.values(), key=lambda unit: (unit.cost, unit.turn)))
        put_back = tuple(unit for key, unit in sorted(first.items()) if key not in self._taken)
        return Chosen(taken, put_back, self._useless, enough=True)

    def _take_bundles(self) -> bool:
        heap: list[tuple[float, float, int, int]] = []
        version: dict[int, int] = defaultdict(int)
        bundles: dict[int, _Bundle] = {}
        missing = self._shortage.count - self._room

        def push(row: int) -> None:
            version[row] += 1
            bundle = self._bundle(row, missing)
            if bundle is not None:
                bundles[row] = bundle
                heapq.heappush(heap, (bundle.each(missing), bundle.cost, row, version[row]))

        for row in sorted(self._here):
            push(row)
        while missing > 0:
            while heap and heap[0][3] != version[heap[0][2]]:
                heapq.heappop(heap)
            if not heap:
                return False
            each, _, row, _ = heapq.heappop(heap)
            if bundles[row].each(missing) > each:  # it gains more than is missing by now
                push(row)
                continue
            touched = self._take(bundles[row].units)
            missing = self._shortage.count - self._room
            for other in sorted(touched):
                push(other)
        return True

    def _bundle(self, row: int, missing: int) -> _Bundle | None:
        """The cheapest found set of units of this node that makes room for at least one more replica there."""
        here = [self._by_key[key] for key in self._here[row] if not self._is_taken(key)]
        if not here:
            return None
        orders = (
            sorted(here, key=lambda unit: (unit.cost, unit.turn)),
            sorted(here, key=lambda unit: (unit.cost / self._freed(row, unit), unit.turn)),
            sorted(here, key=lambda unit: (unit.cost / len(unit.held), unit.turn)),
        )
        found = [bundle for order in _distinct_orders(orders) if (bundle := self._grow(row, order)) is not None]
        if found and len(here) <= MOST_TRIED:
            found.append(self._cheapest(row, here, min(found, key=lambda one: one.cost)))
        return min(found, key=lambda one: (one.each(missing), [unit.turn for unit in one.units]), default=None)

    def _cheapest(self, row: int, here: Sequence[Unit], known: _Bundle) -> _Bundle:
        """The cheapest set of all that makes room on this node: every set that costs less than the known one is
        tried."""
        taken = self._gone_from(row)
        best = known
        for size in range(1, len(here) + 1):
            for units in combinations(here, size):
                if (cost := sum(unit.cost for unit in units)) < best.cost:
                    gone = [*taken, *(unit.key for unit in units)]
                    if self._count_without(row, gone) > self._counts[row]:
                        best = _Bundle(self._gained(units), cost, units)
        return best

    def _grow(self, row: int, order: Sequence[Unit]) -> _Bundle | None:
        """Take units in this order until one more replica fits; then put back those that it does not need."""
        before, trial, chosen = self._counts[row], self._trial(row, self._gone_from(row)), list[Unit]()
        for unit in order:
            trial.leave(unit.key)
            chosen.append(unit)
            if trial.count() > before:
                break
        else:
            return None
        for unit in sorted(chosen, key=lambda one: (-one.cost, one.turn)):
            trial.back(unit.key)
            if trial.count() > before:
                chosen.remove(unit)
            else:
                trial.leave(unit.key)
        return _Bundle(self._gained(chosen), sum(unit.cost for unit in chosen), tuple(chosen))

    def _gained(self, chosen: Sequence[Unit]) -> int:
        """How many more replicas have room without these units, on all nodes that they are on."""
        gained = 0
        for row in {held.spot.node for unit in chosen for held in unit.held}:
            gone = [*self._gone_from(row), *(unit.key for unit in chosen if unit.key in self._here[row])]
            gained += self._count_without(row, gone) - self._counts[row]
        return gained

    def _freed(self, row: int, unit: Unit) -> float:
        """How much of cards a unit frees on a node; a little where it frees cores only."""
        return sum(self._space.takes(held.task, held.spot, column)
                   for _, held in self._here[row][unit.key] for column in held.spot.cards) or 1e-3  # fmt: skip

    def _is_taken(self, key: Key) -> bool:
        """Whether a unit is taken, or all that it would free is."""
        if key in self._taken:
            return True
        members = {member for unit in self._taken.values() if unit.job == key[0] for member in unit.members}
        return members.issuperset(key[1])

    def _gone_from(self, row: int) -> list[Key]:
        """The units of a node that are taken."""
        here = self._here[row]
        return [key for key in self._taken if key in here]

    def _trial(self, row: int, gone: Iterable[Key]) -> NodeTrial:
        """A node on paper, without these units."""
        trial = NodeTrial(self._base[row], self._here[row])
        for key in gone:
            trial.leave(key)
        return trial

    def _count_without(self, row: int, gone: Iterable[Key]) -> int:
        """How many replicas the node holds when these units are gone."""
        return self._trial(row, gone).count()

    def _take(self, units: Iterable[Unit]) -> set[int]:
        rows: set[int] = set()
        for unit in units:
            self._taken[unit.key] = unit
            rows |= {held.spot.node for held in unit.held}
        self._recount(rows)
        return rows

    def _drop(self, key: Key) -> None:
        unit = self._taken.pop(key)
        self._recount({held.spot.node for held in unit.held})

    def _recount(self, rows: Iterable[int]) -> None:
        for row in rows:
            count = self._count_without(row, self._gone_from(row))
            self._room += count - self._counts[row]
            self._counts[row] = count

    def _fill_back(self) -> None:
        """Put back whom nobody needs, the dearest first."""
        for unit in sorted(self._taken.values(), key=lambda one: (-one.cost, one.turn)):
            self._drop(unit.key)
            if self._room < self._shortage.count:
                self._take([unit])

    def _swap(self) -> None:
        """Swap each unit for the cheapest one that does as well."""
        if len(self._units) > MOST_SWAPS:
            return
        for dear in sorted(self._taken.values(), key=lambda one: (-one.cost, one.turn)):
            self._drop(dear.key)
            for cheap in self._units:  # ends at the dear one itself at the latest
                if cheap.cost >= dear.cost:
                    self._take([dear])
                    break
                if self._is_taken(cheap.key):
                    continue
                self._take([cheap])
                if self._room >= self._shortage.count:
                    break
                self._drop(cheap.key)
        self._fill_back()


def _of_use(base: NodeRoom, here: Mapping[Key, Sequence[tuple[int, Held]]], replicas: int) -> Iterable[Key]:
    """Those of a node's units that hold what could be of use, where it could take one more replica were all gone: a
    card that it could be on, or, where cores or memory are short too, anything."""
    trial = NodeTrial(base, here)
    for key in here:
        trial.leave(key)
    if trial.count() <= base.count():
        return ()
    if not base.has_cores(replicas):
        return here
    return [key for key, held in here.items() if any(base.uses(card) for _, one in held for card in one.spot.cards)]


def _by_node(units: Iterable[Unit]) -> dict[int, dict[Key, list[tuple[int, Held]]]]:
    """What units hold on each node, with the member that does."""
    here: dict[int, dict[Key, list[tuple[int, Held]]]] = defaultdict(dict)
    for unit in units:
        for member, held in zip(unit.members, unit.held, strict=True):
            here[held.spot.node].setdefault(unit.key, []).append((member, held))
    return here


def _distinct_orders(orders: Iterable[Sequence[Unit]]) -> list[Sequence[Unit]]:
    """Each order once: they are often the same."""
    return list({tuple(unit.key for unit in order): order for order in orders}.values())
