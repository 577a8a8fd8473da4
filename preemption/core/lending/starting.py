"""Which waiting jobs are started, and where: whole gangs, by the policy of fragmentation, out of what training may
take. Elastic ones with as many members as there is room for; those that run with fewer may have more.

Training takes neither what is reserved, nor claims (which are not free in the ledger), nor any place on a node that a
waiting model of higher priority could have. Who is first in order and finds no room does not stop those behind, until
it has waited so long that its age counts: then the nodes that could hold it are left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from events.types.shared import Resources
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import place_gang
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.reserve import Reserve, for_training
from preemption.core.gpus.shapes import Spot, Task
from preemption.core.gpus.space import Space
from preemption.core.inventory import Holding, Ledger, Need, need_of
from preemption.core.lending.mirror import Mirror
from preemption.core.lending.seat import JobSeat
from preemption.core.lending.shortages import Hungry
from preemption.core.limits import tally_of
from preemption.core.placement import contends, could_hold, kinds_of
from preemption.core.tasks import task_of_need


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that waits to be started, with `members`, and at least with so many as `least`; or one that runs with
    fewer. `aged`: it has waited so long that its place is kept free. `claimed`: what is set aside for it, which it
    alone may take. `kept`: what it holds already, and goes on with; the members there are among those `members`."""

    seat: JobSeat
    members: int
    least: int
    resources: Resources
    priority: int
    aged: bool
    claimed: tuple[Holding, ...] = ()
    kept: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What jobs are placed in. `training`: what training holds now."""

    ledger: Ledger
    mirror: Mirror
    training: Sequence[Holding]
    hungry: Sequence[Hungry]
    mix: Mix
    reserve: Reserve

    def seen(self, space: Space) -> Space:
        """What training may see of a space: not what is reserved."""
        return for_training(space, self.mirror.by_card(self.training), self.mirror.partial(), self.reserve)


@dataclass(slots=True)
class Placed:
    """Places for the members of each job that has room. `more`: for how many further members of each that runs with
    fewer there is room."""

    spots: dict[str, tuple[Spot, ...]] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)


def place_jobs(room: Room, waiting: Sequence[Waiting], growing: Sequence[Waiting] = ()) -> Placed:
    """Places for those that wait, in their order, then for those that could have more members. A place is one job's
    only, also where that one is not started yet."""
    placing, placed = _Placing(room), Placed()
    for one in waiting:
        if (spots := placing.place(one)) is not None:
            placed.spots[one.seat.name] = spots
    for one in growing:
        placed.more[one.seat.name] = len(placing.more(one))
    return placed


class _Placing:
    """One round: what training sees of the pool, as it fills up."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._view = room.seen(room.mirror.sync())
        self._chooser = Chooser(self._view, Policy.RELUME, room.mix)
        self._withheld = list(room.hungry)
        self._limits = tally_of(room.ledger)
        self._failed: dict[Task, int] = {}
        """Tasks of which so many had no room; what is asked for later has none either, since nothing is freed."""

    def place(self, one: Waiting) -> tuple[Spot, ...] | None:
        """Places for one job, taken; None, and nothing taken, when there are none."""
        task = task_of_need(need_of(one.resources))
        if one.kept:
            mine = [self._room.mirror.held(holding) for holding in one.kept]
            return (*(held.spot for held in mine if held is not None), *self.more(one))
        if not one.claimed and one.least >= self._failed.get(task, one.least + 1):
            return None
        held = [found for holding in one.claimed if (found := self._room.mirror.held(holding)) is not None]
        for part in held:
            self._view.give(part.task, part.spot)
        spots = self._try(one, task)
        if spots is None:
            for part in held:
                self._view.take(part.task, part.spot)
            self._fail(one, task)
        return spots

    def _try(self, one: Waiting, task: Task) -> tuple[Spot, ...] | None:
        """Places for all its members; if it is elastic, for as many as there is room for."""
        first = [other for other in self._withheld if other.priority > one.priority]
        seen = _without(self._view, self._room.ledger, need_of(one.resources), first) if first else self._view
        count = min(one.members, int(seen.room(task).sum()))
        if self._limits is not None:
            count = self._limits.room(need_of(one.resources), count)
        if count < max(1, one.least):
            return None
        if not first:
            return self._counted(one, place_gang(self._chooser, [task] * count))
        spots = place_gang(Chooser(seen, Policy.RELUME, self._room.mix), [task] * count)
        for spot in spots or ():
            self._view.take(task, spot)
        return self._counted(one, spots)

    def _counted(self, one: Waiting, spots: tuple[Spot, ...] | None) -> tuple[Spot, ...] | None:
        """These, taken out of what limits leave."""
        if self._limits is not None:
            for _ in spots or ():
                self._limits.take(need_of(one.resources))
        return spots

    def more(self, one: Waiting) -> tuple[Spot, ...]:
        """Places, taken, for further members of one that holds some: as many as there is room for."""
        lacks = one.members - len(one.kept)
        further = replace(one, members=lacks, least=1, claimed=(), kept=())
        return (self._try(further, task_of_need(need_of(one.resources))) or ()) if lacks > 0 else ()

    def _fail(self, one: Waiting, task: Task) -> None:
        if not one.claimed:
            self._failed[task] = min(one.least, self._failed.get(task, one.least))
        if one.aged:
            need = need_of(one.resources)
            # before its equals, which stand behind it
            self._withheld.append(Hungry(need, one.priority + 1, frozenset(kinds_of(need))))


def _without(view: Space, ledger: Ledger, need: Need, lacked: Sequence[Hungry]) -> Space:
    """A copy of the view in which the nodes that could hold one of these are full, for who takes of what they lack."""
    trial = view.copy()
    for other in lacked:
        if not contends(need, other.need, other.kinds):
            continue
        rows = [row for row, spec in enumerate(view.nodes)
                if spec.name in ledger.nodes and could_hold(ledger.nodes[spec.name], other.need)]  # fmt: skip
        if rows:
            full = np.array(rows, dtype=np.int64)
            trial.cpu[full] = np.minimum(trial.cpu[full], -1)
            trial.memory[full] = np.minimum(trial.memory[full], -1)
            trial.free[full] = 0
            trial.version[full] += 1
    return trial
