"""The pool as it stands in the log, for people: who holds what, how fragmented the rest is, and what would become of
one more model. Answers without doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from events.types.grants import Placement
from events.types.replicas import CardsObserved
from events.types.shared import Resources
from events.units import Instant
from preemption.core.gpus.cards import node_spec, units
from preemption.core.gpus.mix import Fragmentation, Mix
from preemption.core.gpus.shapes import MILLI, Spot, Task
from preemption.core.gpus.space import Space
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.placement import lack
from preemption.core.reclaim.planning import Scene, plan_one
from preemption.core.reclaim.values import Job, Outcome, ReclaimPlan, ReclaimPolicy, Shortage


@dataclass(frozen=True, slots=True)
class Holder:
    """One replica that has a place."""

    replica: str
    model: str
    placement: Placement
    resources: Resources


@dataclass(frozen=True, slots=True)
class Asked:
    """So many replicas more of a model."""

    model: str
    resources: Resources
    replicas: int
    priority: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What would become of them: the plan, how many more fit in all, F of the pool before and after (shares of all
    cards), and what is lacking, in words, where they do not fit."""

    plan: ReclaimPlan
    room: int
    before: float
    after: float | None
    lacks: str


class Pool:
    """Nodes and holders at one moment."""

    def __init__(self, nodes: Sequence[CardsObserved], holders: Iterable[Holder], typical: Iterable[Resources]) -> None:
        self.nodes = tuple(nodes)
        self.holders = tuple(holders)
        self.space = Space([node_spec(node) for node in nodes])
        self.mix = _mix([*typical, *(holder.resources for holder in self.holders)])
        for holder in self.holders:
            task = task_of(holder.resources)
            spot = self._spot(holder.placement, task)
            if spot is not None:
                self.space.take(task, spot)

    @cached_property
    def fragmentation(self) -> float:
        """F as a share of all cards: what is free and of no use to the typical replica here."""
        return Fragmentation(self.space, self.mix).ratio()

    def free_milli(self, node: str, card: str) -> int:
        """Thousandths of a card that are free."""
        row = self.space.index[node]
        ids = [spec.id for spec in self.space.nodes[row].cards]
        return max(0, int(self.space.free[row, ids.index(card)]))

    def fragmented_milli(self, node: str) -> float:
        """F of one node, in thousandths of a card."""
        measure = Fragmentation(self.space, self.mix)
        return float(measure.now()[self.space.index[node]]) / measure.scale

    def ask(self, asked: Asked, jobs: tuple[Job, ...], policy: ReclaimPolicy, now: Instant) -> Answered:
        """What would become of `asked`, with these training jobs as possible victims."""
        task = task_of(asked.resources)
        mix = _mix([asked.resources, *(holder.resources for holder in self.holders)])
        products = [card.product for node in self.nodes for card in node.cards]
        worth = (task.gpus * task.milli / MILLI) * max((units(product) for product in products), default=1.0)
        shortage = Shortage(
            name=asked.model, task=task, count=asked.replicas, priority=asked.priority, since=now, worth=worth
        )
        plan = plan_one(Scene(space=self.space, jobs=jobs, mix=mix), shortage, policy, now)
        later = self.space.copy()
        for victim in plan.victims:
            members = next(job.members for job in jobs if job.name == victim.job)
            for index in victim.members:
                later.give(members[index].task, members[index].spot)
        for spot in plan.spots:
            later.take(task, spot)
        fits = plan.outcome in (Outcome.FITS, Outcome.RECLAIMS)
        return Answered(
            plan=plan, room=int(self.space.room(task).sum()), before=Fragmentation(self.space, mix).ratio(),
            after=Fragmentation(later, mix).ratio() if fits else None, lacks="" if fits else self._lacks(asked),
        )  # fmt: skip

    def _lacks(self, asked: Asked) -> str:
        """In the allocator's own words, when the first of the replicas does not fit; else that not all do."""
        ledger = Ledger()
        for node in self.nodes:
            ledger.set_node(node)
        for holder in self.holders:
            ledger.hold(holder.replica, Holding(holder.placement, need_of(holder.resources)))
        if int(self.space.room(task_of(asked.resources)).sum()):
            return f"{asked.replicas} replicas are asked for; fewer have room"
        return lack(ledger, need_of(asked.resources)).message

    def _spot(self, placement: Placement, task: Task) -> Spot | None:
        row = self.space.index.get(placement.node)
        if row is None:
            return None
        ids = {spec.id: column for column, spec in enumerate(self.space.nodes[row].cards)}
        if any(card not in ids for card in placement.gpus):
            return None
        columns = tuple(ids[card] for card in placement.gpus)
        return Spot(row, columns, 0, start=0) if task.profile else Spot(row, columns, task.milli)


def task_of(resources: Resources) -> Task:
    """A replica's resources as a task."""
    need = need_of(resources)
    part = bool(need.gpu_milli or need.mig_profile)
    return Task(
        cpu_milli=need.cpu_milli, memory_bytes=need.memory_bytes, gpus=1 if part else need.gpus,
        milli=need.gpu_milli or MILLI, profile=need.mig_profile,
    )  # fmt: skip


def _mix(resources: Iterable[Resources]) -> Mix:
    """What usually comes here: everything that is declared or held, as often as it is."""
    counted = Counter(task_of(one) for one in resources)
    tasks = sorted(counted, key=lambda task: (-counted[task], repr(task)))
    return Mix(tuple(tasks), tuple(counted[task] for task in tasks))
