"""Planning over a full pool of 1,000 and 10,000 GPUs, and how well and how fast the published cluster is filled.

The pool is nodes of eight cards, all held by training jobs of 1, 2, 4 or 8 cards with checkpoints of all ages, a fifth
of them of a priority that may not be asked. A plan is the whole of it: who may be asked, the cheapest sufficient
victims, a try of the placement, and a verdict for each job.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from bench.figures import Effort, Figure, Target, percentile
from events.types.replicas import Card, CardsObserved
from events.units import Instant, Seconds
from preemption.adapters.generated import Size, make_nodes, make_pods
from preemption.adapters.submitting import saturating
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.mix import typical
from preemption.core.gpus.replay import Filled, fill
from preemption.core.gpus.shapes import MILLI, CardSpec, NodeSpec, Spot, Task
from preemption.core.gpus.space import Space
from preemption.core.inventory import Holding, Ledger, Need
from preemption.core.placement import place
from preemption.core.reclaim.planning import Scene, plan_one
from preemption.core.reclaim.values import Held, Job, Outcome, ReclaimPolicy, Shortage

NOW = Instant(100_000.0)
NODE_CARDS = 8
GIB = 1 << 30
ASKED = ((1, 1), (1, 4), (4, 8), (32, 1))
"""Shortages in turn: (replicas, cards of each)."""


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds of CPU a plan (99th percentile), seconds and allocation of a filled cluster."""
    figures: list[Figure] = []
    for gpus in (64, 256) if effort.quick else (1000, 10_000):
        waits = _plans(gpus, effort.size(400 if gpus <= 1000 else 60, 8))
        target = Target(200.0) if gpus == 1000 else None
        figures.append(
            Figure(f"a plan among {gpus:,} GPUs, p99", "ms CPU", percentile(waits, 0.99) * 1000,
                   "among the fewest", figures[0].measured if figures else None, target,
                   low=min(waits) * 1000, high=max(waits) * 1000)
        )  # fmt: skip
    return [*figures, *_fills(0.02 if effort.quick else 1.0, effort.size(3, 1))]


def _plans(gpus: int, count: int) -> list[float]:
    scene = _full_pool(gpus)
    took = []
    for index in range(count):
        replicas, cards = ASKED[index % len(ASKED)]
        shortage = Shortage(
            name="m", task=Task(cpu_milli=1000, memory_bytes=GIB, gpus=cards), count=replicas, priority=100, since=NOW,
            worth=float(cards),
        )  # fmt: skip
        began = time.process_time()  # a plan waits for nothing, so its CPU is its time on an idle core
        plan = plan_one(scene, shortage, ReclaimPolicy(), NOW)
        took.append(time.process_time() - began)
        assert plan.outcome is Outcome.RECLAIMS or gpus < 1000, plan.outcome
    return took


def _full_pool(gpus: int) -> Scene:
    draw = random.Random(gpus)
    nodes, jobs = [], []
    for row in range(gpus // NODE_CARDS):
        cards = tuple(CardSpec(id=f"n{row}-{column}") for column in range(NODE_CARDS))
        nodes.append(NodeSpec(name=f"n{row}", cpu_milli=128_000, memory_bytes=512 * GIB, cards=cards))
        column = 0
        while column < NODE_CARDS:
            size = min(draw.choice((1, 1, 2, 4, 8)), NODE_CARDS - column)
            jobs.append(_job(draw, row, range(column, column + size)))
            column += size
    space = Space(nodes)
    for job in jobs:
        for held in job.members:
            space.take(held.task, held.spot)
    return Scene(space=space, jobs=tuple(jobs))


def _job(draw: random.Random, row: int, columns: range) -> Job:
    task = Task(cpu_milli=1000, memory_bytes=GIB, gpus=len(columns))
    return Job(
        name=f"j{row}-{columns.start}", members=(Held(task, Spot(row, tuple(columns), MILLI)),),
        started_at=Instant(NOW - 50_000), last_commit_at=Instant(NOW - draw.uniform(0, 4000)),
        priority=draw.choice((0, 0, 0, 0, 200)), worth=float(len(columns)), save=Seconds(30.0), restore=Seconds(30.0),
    )  # fmt: skip


def _fills(scale: float, seeds: int) -> list[Figure]:
    """By policy: the mean share of the cards that is held when the cluster is full, and the seconds that it took."""
    figures: list[Figure] = []
    for policy in (Policy.RANDOM, Policy.BESTFIT, Policy.FGD, Policy.RELUME):
        runs = [_fill(policy, scale, seed) for seed in range(1, seeds + 1)]
        held = [100 * filled.allocated for filled, _ in runs]
        lost = sum(100 * filled.fragmentation for filled, _ in runs) / len(runs)
        full = [100 * filled.at_full_arrivals for filled, _ in runs if filled.at_full_arrivals is not None]
        seconds = sum(took for _, took in runs) / len(runs)
        figures.append(
            Figure(f"{policy}: cards held at saturation", "%", sum(held) / len(held), low=min(held), high=max(held),
                   why=f"{sum(full) / max(1, len(full)):.2f} % when as much had arrived as there is; {lost:.2f} % free "
                       f"and of no use at the end; {seconds:.1f} s of CPU")
        )  # fmt: skip
    runs = [_fill_ledger(scale, seed) for seed in range(1, seeds + 1)]
    held = [100 * share for share, _, _ in runs]
    figures.append(
        Figure("the allocator: cards held at saturation", "%", sum(held) / len(held), low=min(held), high=max(held),
               why=f"{sum(places for _, places, _ in runs) / len(runs):,.0f} places, "
                   f"{sum(took for _, _, took in runs) / len(runs):.1f} s of CPU")
    )  # fmt: skip
    return figures


def _fill_ledger(scale: float, seed: int) -> tuple[float, int, float]:
    """The same, one replica after the other through the allocator's own ledger: the share of the cards that is held,
    how many places were looked for, and the seconds."""
    tasks = _tasks(scale, seed)
    ledger = Ledger()
    for spec in make_nodes(Size(scale, seed)):
        cards = tuple(Card(id=card.id) for card in spec.cards)
        ledger.set_node(
            CardsObserved(node=spec.name, cpu=spec.cpu_milli / MILLI, memory_bytes=spec.memory_bytes, cards=cards)
        )
    for index, task in enumerate(tasks):
        ledger.gradient.declare(f"m{index}", _need(task))
    total = sum(MILLI * len(node.cards) for node in ledger.nodes.values())
    return _hold_all(ledger, [_need(task) for task, _ in saturating(tasks, total, seed)], total)


def _need(task: Task) -> Need:
    part = task.gpus == 1 and task.milli < MILLI
    return Need(
        gpus=0 if part else task.gpus, gpu_milli=task.milli if part else 0, mig_profile="", cpu_milli=task.cpu_milli,
        memory_bytes=task.memory_bytes,
    )  # fmt: skip


def _hold_all(ledger: Ledger, coming: Sequence[Need], total: int) -> tuple[float, int, float]:
    held, began = 0, time.process_time()
    for index, need in enumerate(coming):
        found = place(ledger, need)
        if found is not None:
            ledger.hold(f"r{index}", Holding(found, need))
            held += need.gpu_milli or need.gpus * MILLI
    return held / total, len(coming), time.process_time() - began


def _fill(policy: Policy, scale: float, seed: int) -> tuple[Filled, float]:
    tasks = _tasks(scale, seed)
    space = Space(make_nodes(Size(scale, seed)))
    chooser = Chooser(space, policy, typical(tasks))
    submissions = saturating(tasks, space.gpu_total, seed)
    began = time.process_time()
    return fill(chooser, submissions), time.process_time() - began


def _tasks(scale: float, seed: int) -> list[Task]:
    pods = make_pods(Size(scale, seed))
    return [Task(cpu_milli=c, memory_bytes=m << 20, gpus=n, milli=milli or MILLI) for c, m, n, milli, _ in pods]
