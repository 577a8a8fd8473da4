"""Answers about GPUs: who holds them, what would become of more work, which moves would help. Worked out from the
boards, written nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiohttp import web

from deploy.api import queries
from deploy.api.card_parts import part_of_gpu, share_of_gpu
from deploy.api.changing import Boards
from deploy.api.declaring import refused
from deploy.api.gpu_ports import NodeGpus
from deploy.api.gpus_facts import Facts, facts_of
from deploy.api.gpushapes import (
    DeviceSeen,
    GpuCard,
    GpuHolder,
    GpuInventory,
    GpuMoves,
    GpuNode,
    NodeGpusSeen,
    PlannedModels,
)
from deploy.api.weights import Caches
from deploy.spec.load import load_bytes
from deploy.spec.mig import reported_profiles
from events.clock import Clock
from events.types.gpus import GpusObserved
from events.types.replicas import Card, CardsObserved
from preemption.core.gpus.parts import usable_bytes

if TYPE_CHECKING:
    from preemption.core.reclaim.prechecking import Holder, Pool

MILLI: Final = 1000

MOST_VERSIONS: Final = 1 << 53
"""What JSON can count to."""
MOST_ASKED: Final = 500
"""Replicas of one question: as many as a model may have."""


class Gpus:
    """The operations about GPUs. What they need of numpy is imported when they are first asked: it takes a fifth of a
    second and 20 MB that a relume without such questions keeps."""

    def __init__(self, boards: Boards, caches: Caches, clock: Clock, here: NodeGpus) -> None:
        self._here = here
        self._boards = boards
        self._caches = caches
        self._clock = clock

    async def gpus(self, request: web.Request) -> GpuInventory:
        """The inventory now."""
        queries.check_known(request, ())
        return await asyncio.to_thread(_inventory, self._facts())

    async def seen_gpus(self, request: web.Request) -> NodeGpusSeen:
        """Those of the node that this process looks after."""
        queries.check_known(request, ("after",))
        return await self._here.seen(queries.number(request, "after", 0, least=0, most=MOST_VERSIONS))

    async def look_at_gpus(self, request: web.Request) -> NodeGpusSeen:
        """Likewise, read now."""
        queries.check_known(request, ())
        return await self._here.look()

    async def plan_models(self, request: web.Request) -> PlannedModels:
        """What would become of the documents of the body, in their order."""
        queries.check_known(request, ("replicas",))
        replicas = queries.number(request, "replicas", 1, least=1, most=MOST_ASKED)
        reported = reported_profiles(self._boards.models.nodes())
        loaded = await asyncio.to_thread(load_bytes, await request.read(), "", reported)
        if loaded.problems:
            raise refused(loaded.problems)
        facts, led = self._facts(), self._boards.pools.led

        def work() -> PlannedModels:
            from deploy.api.gpus_planning import planned  # noqa: PLC0415 - see `Gpus`

            return planned(facts, loaded.documents, replicas, led)

        return await asyncio.to_thread(work)

    async def gpu_moves(self, request: web.Request) -> GpuMoves:
        """Moves that would make free cards of use again."""
        queries.check_known(request, ())
        facts = self._facts()

        def work() -> GpuMoves:
            from deploy.api.gpus_moves import moves_of  # noqa: PLC0415 - see `Gpus`

            return moves_of(facts)

        return await asyncio.to_thread(work)

    def _facts(self) -> Facts:
        return facts_of(self._boards, self._caches.all(), self._clock.now())


def _inventory(facts: Facts) -> GpuInventory:
    pool = facts.pool()
    nodes = [_node(pool, node, facts) for node in facts.nodes]
    return GpuInventory(
        total=round(sum(part_of_gpu(card) for node in facts.nodes for card in node.cards), 2),
        free=round(sum(card.free for node in nodes for card in node.cards), 2),
        fragmentation=round(pool.fragmentation, 4), nodes=nodes,
    )  # fmt: skip


def _node(pool: Pool, node: CardsObserved, facts: Facts) -> GpuNode:
    row = pool.space.index[node.node]
    here = [holder for holder in pool.holders if holder.placement.node == node.node]
    return GpuNode(
        node=node.node, cpu=node.cpu, cpu_free=round(int(pool.space.cpu[row]) / MILLI, 3),
        memory_bytes=node.memory_bytes, memory_free_bytes=max(0, int(pool.space.memory[row])),
        fragmented=round(pool.fragmented_milli(node.node) / MILLI, 3),
        network=list(pool.space.nodes[row].network),
        cards=[_card(pool, (node.node, card), here, facts) for card in node.cards],
        devices=_devices(facts.devices.get(node.node)),
    )  # fmt: skip


def _devices(told: GpusObserved | None) -> list[DeviceSeen] | None:
    if told is None or not told.known:
        return None
    return [
        DeviceSeen(
            id=one.id, product=one.product, memory_bytes=one.memory_bytes, used_bytes=one.used_bytes, empty=one.empty,
            processes=one.processes, pods=None if one.pods is None else list(one.pods), sick=one.sick,
            parent=one.parent, split=one.split, unaccounted=one.unaccounted,
        )
        for one in told.gpus
    ]  # fmt: skip


def _card(pool: Pool, which: tuple[str, Card], here: Sequence[Holder], facts: Facts) -> GpuCard:
    node, card = which
    mark, row = facts.cordoned.get((node, card.id)), pool.space.index[node]
    spec = next(one for one in pool.space.nodes[row].cards if one.id == card.id)
    return GpuCard(
        id=card.id, product=card.product, profile=card.profile, virtual=card.virtual,
        memory_bytes=card.memory_bytes or None, usable_bytes=usable_bytes(card) // max(1, card.turns) or None,
        link=spec.link, numa=spec.numa, turns=card.turns, units=round(facts.policy.worth(card) / max(1, card.turns), 3),
        free=round(pool.free_share(node, card.id) * part_of_gpu(card), 3),
        cordoned=None if mark is None else mark.reason or "by hand",
        holders=[
            GpuHolder(replica=one.replica, model=one.model, share=share_of_gpu(card, one.resources))
            for one in here if card.id in one.placement.gpus
        ],
    )  # fmt: skip
