"""Plans for documents: what would become of each, in their order, if they were applied. Import it late: it needs
numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypedDict

from deploy.api.gpus_facts import Facts
from deploy.api.gpushapes import (
    PlannedJob,
    PlannedLeaver,
    PlannedModel,
    PlannedModels,
    PlannedNode,
    PlannedPlace,
    PlannedVerdict,
    PlannedVictim,
)
from deploy.spec.declare import written_spec
from deploy.spec.kinds import Document
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.training import TrainingJob
from events.units import format_instant
from preemption.core.gpus.shapes import Spot
from preemption.core.inventory import need_of
from preemption.core.reclaim.asking import Asked, AskedGang, Questions
from preemption.core.reclaim.leaving import Expected
from preemption.core.reclaim.prechecking import Pool
from preemption.core.reclaim.values import ReclaimPlan

NODES_SHOWN: Final = 16
"""Nodes that are told of each model: the soonest."""


def planned(facts: Facts, documents: Sequence[Document], replicas: int, led: str) -> PlannedModels:
    """One answer a model or job. Settings of the pool that is `led`, where a document has them, count for all."""
    for document in documents:
        if isinstance(document, GpuPool) and document.metadata.name == led:
            facts = replace(facts, policy=document.resolve())
    pool = facts.pool()
    questions = Questions(pool, facts.jobs(pool), facts.policy, facts.now, facts.around(pool))
    models, jobs, tally = [], [], facts.tally()
    for order, document in enumerate(documents):
        if isinstance(document, Model):
            limit = tally.taken(need_of(document.resolve().resources), replicas)
            models.append(_model(questions, (facts, document, replicas), order).model_copy(update={"limit": limit}))
        elif isinstance(document, TrainingJob):
            policy = document.resolve()
            limit = tally.taken(need_of(policy.resources), policy.min_members)
            jobs.append(_job(questions, document, order).model_copy(update={"limit": limit}))
    return PlannedModels(items=models, jobs=jobs)


def _model(questions: Questions, asked: tuple[Facts, Model, int], order: int) -> PlannedModel:
    facts, model, replicas = asked
    policy = model.resolve()
    rooms = questions.rooms(policy.resources)
    answered = questions.ask(Asked(str(policy.model), policy.resources, replicas, policy.priority))
    plan = answered.plan
    return PlannedModel(
        model=str(policy.model), order=order, replicas=replicas, outcome=str(plan.outcome),
        places=_places(questions.pool, plan.spots), room=answered.room, nodes=_nodes(facts, model, rooms),
        max_replicas=policy.scaling.max_replicas,
        fragmentation_before=round(answered.before, 4), fragmentation_after=_rounded(answered.after),
        victims=_victims(plan), verdicts=_verdicts(plan), message=answered.lacks, **_room(answered.expects),
    )  # fmt: skip


def _nodes(facts: Facts, model: Model, rooms: Mapping[str, int]) -> list[PlannedNode]:
    """Where a replica would have room, and how soon it would answer there, as `relume.caches` has it."""
    name = model.metadata.name
    same = written_spec(model).get("weights") == facts.weights.get(name)
    warmth = facts.warmth.get(name, {}) if same else {}
    nodes = [
        PlannedNode(
            node=node, room=room, tier=None if node not in warmth else warmth[node].tier,
            seconds=None if node not in warmth else warmth[node].seconds,
        )
        for node, room in rooms.items()
    ]  # fmt: skip
    nodes.sort(key=lambda one: (one.seconds is None, one.seconds or 0.0, -one.room, one.node))
    return nodes[:NODES_SHOWN]


def _job(questions: Questions, job: TrainingJob, order: int) -> PlannedJob:
    policy = job.resolve()
    answered = questions.ask_gang(
        AskedGang(
            policy.job,
            policy.resources,
            policy.members,
            policy.min_members,
            policy.priority,
            policy.min_run,
            policy.protected,
        )
    )
    return PlannedJob(
        job=policy.job, order=order, starts=str(answered.starts), members=policy.members,
        started_members=answered.members, places=_places(questions.pool, answered.plan.spots), room=answered.room,
        fragmentation_before=round(answered.before, 4), fragmentation_after=_rounded(answered.after),
        victims=_victims(answered.plan), verdicts=_verdicts(answered.plan), message=answered.lacks,
        waits_behind=list(answered.behind), **_room(answered.expects),
    )  # fmt: skip


def _places(pool: Pool, spots: Sequence[Spot]) -> list[PlannedPlace]:
    nodes = pool.space.nodes
    return [
        PlannedPlace(node=nodes[spot.node].name, gpus=[nodes[spot.node].cards[card].id for card in spot.cards])
        for spot in spots
    ]


def _victims(plan: ReclaimPlan) -> list[PlannedVictim]:
    return [
        PlannedVictim(job=one.job, members=len(one.members), whole=one.whole, cost=round(one.cost, 3))
        for one in plan.victims
    ]


def _verdicts(plan: ReclaimPlan) -> list[PlannedVerdict]:
    return [PlannedVerdict(job=one.job, why=str(one.why), numbers=dict(one.numbers)) for one in plan.verdicts]


class _Room(TypedDict):
    room_at: str | None
    room_from: list[PlannedLeaver]


def _room(expects: Expected) -> _Room:
    leavers = [
        PlannedLeaver(name=one.name, goes=str(one.goes), at=None if one.at is None else format_instant(one.at))
        for one in expects.leavers
    ]
    return {"room_at": None if expects.at is None else format_instant(expects.at), "room_from": leavers}


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
