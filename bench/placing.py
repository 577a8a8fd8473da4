"""What it costs to place 10, 1,000 and 10,000 replicas in one decision, with what agents tell and without."""

from __future__ import annotations

import time

from bench.figures import Effort, Figure
from events.types.caches import CacheObserved, ModelWarmth
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.units import Instant
from preemption.core.allocator import Snapshot, decide
from preemption.core.view import AllocatorPolicy, Declared, ModelView, Wish

GIB = 1 << 30
NODE_GPUS = 8
REPLICAS_EACH = 50
"""Of one model."""
NOW = Instant(1_000_000.0)
WARM_EACH = 10
"""Every tenth node has a model's weights on its disk; the others would fetch them, and know how long that takes."""


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds of CPU, one pure decision: all replicas are new, one GPU each, and fill nine tenths of the cards."""
    if effort.quick:
        return [_figure(100, 1)]
    return [_figure(10, 3), _figure(1000, effort.size(3, 1)), _figure(10_000, effort.size(2, 1))]


def _figure(count: int, rounds: int) -> Figure:
    known, unknown = snapshot(count, caches=True), snapshot(count, caches=False)
    placed, plain = [], []
    for _ in range(rounds):  # in turn, so that both meet the same machine
        plain.append(_milliseconds(unknown, count))
        placed.append(_milliseconds(known, count))
    return Figure(
        f"{count:,} replicas placed with caches known", "ms CPU", min(placed), "without", min(plain),
        low=min(placed), high=max(placed), why=f"{len(known.nodes):,} nodes, {len(known.models):,} models",
    )  # fmt: skip


def _milliseconds(seen: Snapshot, count: int) -> float:
    began = time.process_time()
    plan = decide(seen, AllocatorPolicy(), NOW)
    took = time.process_time() - began
    granted = sum(len(grant.replicas) for grant in plan.grants)
    if granted != count:
        raise RuntimeError(f"{granted} of {count} replicas were placed")
    return took * 1000


def snapshot(count: int, *, caches: bool) -> Snapshot:
    """A pool in which `count` replicas are wished for and none is there."""
    models = [f"m{index}" for index in range(-(-count // REPLICAS_EACH))]
    nodes = -(-count * 10 // (9 * NODE_GPUS))
    views = []
    for at, model in enumerate(models):
        wished = min(REPLICAS_EACH, count - at * REPLICAS_EACH)
        resources = Resources(gpus=1, cpu=1.0, memory_bytes=GIB)
        declared = Declared(model=model, uid="u", revision=1, resources=resources, max_replicas=REPLICAS_EACH)
        views.append(ModelView(declared=declared, wish=Wish("u", wished, waits=True)))
    told = [(_cache(at, models), NOW) for at in range(nodes)] if caches else []
    return Snapshot(tuple(_node(at) for at in range(nodes)), tuple(views), tuple(told))


def _node(at: int) -> CardsObserved:
    cards = tuple(Card(id=f"gpu-{card}") for card in range(NODE_GPUS))
    return CardsObserved(node=f"n{at}", cpu=64.0, memory_bytes=512 * GIB, cards=cards)


def _cache(at: int, models: list[str]) -> CacheObserved:
    told = tuple(
        ModelWarmth(model=model, tier="disk", seconds=8.0, revision=1)
        if (at + index) % WARM_EACH == 0
        else ModelWarmth(model=model, tier="remote", seconds=60.0, revision=1)
        for index, model in enumerate(models)
    )
    return CacheObserved(node=f"n{at}", used_bytes=0, capacity_bytes=1 << 40, models=told)
