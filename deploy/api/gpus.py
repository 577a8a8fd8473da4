"""Answers about GPUs: who holds them, and what would become of a model. Worked out from the board, written nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from deploy.api import queries
from deploy.api.board import Board
from deploy.api.declaring import refused
from deploy.api.gpushapes import (
    GpuCard,
    GpuHolder,
    GpuInventory,
    GpuNode,
    PlannedModel,
    PlannedModels,
    PlannedPlace,
    PlannedVerdict,
    PlannedVictim,
)
from deploy.api.problem import refuse
from deploy.api.reclaim_status import OF_JOB
from deploy.api.training_board import TrainingBoard
from deploy.spec.load import load_bytes
from deploy.spec.model import Model
from events.clock import Clock
from events.types.grants import Placement
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.units import Instant

if TYPE_CHECKING:
    from preemption.core.reclaim.prechecking import Answered, Holder, Pool
    from preemption.core.reclaim.values import Job

MILLI: Final = 1000

Held = tuple[str, str, Placement, Resources]
"""A replica or a member of a training job, its model or ``training/JOB``, where it is, and what it takes."""

MOST_ASKED: Final = 500
"""Replicas of one question: as many as a model may have."""


class Gpus:
    """The operations about GPUs. What they need of numpy is imported when they are first asked: it takes a fifth of a
    second and 20 MB that a relume without such questions keeps."""

    def __init__(self, board: Board, training: TrainingBoard, clock: Clock) -> None:
        self._board = board
        self._training = training
        self._clock = clock

    async def gpus(self, request: web.Request) -> GpuInventory:
        """The inventory now."""
        queries.check_known(request, ())
        nodes, held = list(self._board.nodes()), self._held()
        return await asyncio.to_thread(_inventory, nodes, held, self._typical())

    async def plan_models(self, request: web.Request) -> PlannedModels:
        """What would become of the documents of the body."""
        queries.check_known(request, ("replicas",))
        replicas = queries.number(request, "replicas", 1, least=1, most=MOST_ASKED)
        loaded = await asyncio.to_thread(load_bytes, await request.read(), "")
        if loaded.problems:
            raise refused(loaded.problems)
        if len(loaded.models) < len(loaded.documents):
            raise refuse(
                HTTPStatus.UNPROCESSABLE_ENTITY, "models-only", "a plan is made for models, and this is none",
                remedy="leave other kinds out",
            )  # fmt: skip
        nodes, held, now = list(self._board.nodes()), self._held(), self._clock.now()
        typical, training = self._typical(), self._training.copy()

        def work() -> PlannedModels:
            from deploy.api.victims import victims_of  # noqa: PLC0415 - see `Gpus`

            pool = _pool(nodes, held, typical)
            jobs = victims_of(training, pool, now)
            return PlannedModels(items=[_planned(pool, jobs, (model, replicas), now) for model in loaded.models])

        return await asyncio.to_thread(work)

    def _held(self) -> list[Held]:
        """Everything that is granted, to models and to training jobs."""
        replicas = [
            (replica.replica, model, replica.placement, replica.resources)
            for model, grant in sorted(self._board.grants().items())
            for replica in grant.replicas
        ]
        members = [
            (member.member, OF_JOB + job, member.placement, member.resources)
            for job, granted in sorted(self._training.grants().items())
            for member in granted.members
        ]
        return replicas + members

    def _typical(self) -> list[Resources]:
        """What the models that are short need: they come next."""
        grants = self._board.grants().values()
        return [grant.shortage.resources for grant in grants if grant.shortage is not None]


def _pool(nodes: Sequence[CardsObserved], held: Sequence[Held],
          typical: Sequence[Resources]) -> Pool:  # fmt: skip
    from preemption.core.reclaim.prechecking import Holder, Pool  # noqa: PLC0415 - see `Gpus`

    return Pool(nodes, [Holder(*one) for one in held], typical)


def _inventory(nodes: Sequence[CardsObserved], held: Sequence[Held], typical: Sequence[Resources]) -> GpuInventory:
    pool = _pool(nodes, held, typical)
    rows = [_node(pool, node) for node in nodes]
    return GpuInventory(
        total=sum(len(node.cards) for node in nodes), free=round(pool.space.gpu_free / MILLI, 3),
        fragmentation=round(pool.fragmentation, 4), nodes=rows,
    )  # fmt: skip


def _node(pool: Pool, node: CardsObserved) -> GpuNode:
    row = pool.space.index[node.node]
    here = [holder for holder in pool.holders if holder.placement.node == node.node]
    return GpuNode(
        node=node.node, cpu=node.cpu, cpu_free=round(int(pool.space.cpu[row]) / MILLI, 3),
        memory_bytes=node.memory_bytes, memory_free_bytes=max(0, int(pool.space.memory[row])),
        fragmented=round(pool.fragmented_milli(node.node) / MILLI, 3),
        cards=[_card(pool, node.node, card, here) for card in node.cards],
    )  # fmt: skip


def _card(pool: Pool, node: str, card: Card, here: Sequence[Holder]) -> GpuCard:
    from preemption.core.gpus.cards import units, usable_bytes  # noqa: PLC0415 - see `Gpus`

    return GpuCard(
        id=card.id, product=card.product, profile=card.profile, virtual=card.virtual,
        memory_bytes=card.memory_bytes or None, usable_bytes=usable_bytes(card) or None,
        units=round(units(card.product), 3), free=pool.free_milli(node, card.id) / MILLI,
        holders=[
            GpuHolder(replica=one.replica, model=one.model, share=one.resources.gpu_fraction or 1.0)
            for one in here if card.id in one.placement.gpus
        ],
    )  # fmt: skip


def _planned(pool: Pool, jobs: tuple[Job, ...], wanted: tuple[Model, int], now: Instant) -> PlannedModel:
    from preemption.core.lending.policy import LendingPolicy  # noqa: PLC0415 - see `Gpus`
    from preemption.core.reclaim.prechecking import Asked  # noqa: PLC0415 - see `Gpus`

    policy, replicas = wanted[0].resolve(), wanted[1]
    asked = Asked(str(policy.model), policy.resources, replicas, policy.priority)
    answered = pool.ask(asked, jobs, LendingPolicy().reclaim, now)
    plan = answered.plan
    return PlannedModel(
        model=str(policy.model), replicas=replicas, outcome=str(plan.outcome), places=_places(pool, answered),
        room=answered.room, max_replicas=policy.scaling.max_replicas, fragmentation_before=round(answered.before, 4),
        fragmentation_after=None if answered.after is None else round(answered.after, 4),
        victims=[PlannedVictim(job=one.job, members=len(one.members), whole=one.whole, cost=round(one.cost, 3))
                 for one in plan.victims],
        verdicts=[PlannedVerdict(job=one.job, why=str(one.why), numbers=dict(one.numbers)) for one in plan.verdicts],
        message=answered.lacks,
    )  # fmt: skip


def _places(pool: Pool, answered: Answered) -> list[PlannedPlace]:
    nodes = pool.space.nodes
    return [
        PlannedPlace(node=nodes[spot.node].name, gpus=[nodes[spot.node].cards[card].id for card in spot.cards])
        for spot in answered.plan.spots
    ]
