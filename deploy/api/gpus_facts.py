"""What answers about GPUs are worked out from: one moment of the boards, for another thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import JsonValue

from deploy.api.changing import Boards
from deploy.api.idling import idle_at
from deploy.api.reclaim_status import OF_JOB
from deploy.api.training_board import TrainingBoard
from events.types.caches import CacheObserved, ModelWarmth
from events.types.gpus import GpusObserved
from events.types.grants import GrantDecided, Placement
from events.types.limits import Limit
from events.types.models import ModelDeclared
from events.types.pools import CardMarked
from events.types.replicas import CardsObserved, ReplicaState
from events.types.shared import Resources
from events.types.training import RunState
from events.units import Instant
from preemption.core.inventory import need_of
from preemption.core.limits import Tally
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.declared import read_declaration
from preemption.declared_training import read_training

if TYPE_CHECKING:
    from preemption.core.reclaim.asking import Around
    from preemption.core.reclaim.prechecking import Pool
    from preemption.core.reclaim.values import Job

Held = tuple[str, str, Placement, Resources]
"""A replica or a member of a training job, its model or ``training/JOB``, where it is, and what it takes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What stands on the boards now. `short`: what models lack, by model; `starts`: how long a start of each model
    took; `ready`: replicas that serve and are meant to go on; `warmth`: what nodes tell of the weights of the
    revisions that are declared, by model and node; `weights`: as each model declares them."""

    now: Instant
    nodes: Sequence[CardsObserved]
    held: Sequence[Held]
    short: Mapping[str, Resources]
    priorities: Mapping[str, int]
    starts: Mapping[str, float]
    ready: frozenset[str]
    warmth: Mapping[str, Mapping[str, ModelWarmth]]
    weights: Mapping[str, JsonValue]
    cordoned: Mapping[tuple[str, str], CardMarked]
    policy: PoolPolicy
    training: TrainingBoard
    grants: Mapping[str, GrantDecided]
    idle: Mapping[str, Instant]
    """When models that nobody asks go to zero."""
    declared: Mapping[str, ModelDeclared]
    """Models as they are declared."""
    limits: tuple[Limit, ...] = ()
    """What quotas leave."""
    devices: Mapping[str, GpusObserved] = field(default_factory=dict)
    """What the GPUs of nodes say."""

    def tally(self) -> Tally:
        """What quotas leave beside what is held."""
        return Tally(self.limits, [need_of(resources) for _, _, _, resources in self.held])

    def pool(self) -> Pool:
        """The pool of the planner. (It needs numpy, a fifth of a second and 20 MB: only who asks has it.)"""
        from preemption.core.reclaim.prechecking import Holder, Pool  # noqa: PLC0415 - as said above

        return Pool(self.nodes, [Holder(*one) for one in self.held], self.short.values(), self.cordoned)

    def jobs(self, pool: Pool) -> tuple[Job, ...]:
        """Training that runs, as the planner prices it."""
        from deploy.api.victims import victims_of  # noqa: PLC0415 - see `pool`

        return victims_of(self.training, pool, self.policy, self.now)

    def around(self, pool: Pool) -> Around:
        """What else goes on, for questions."""
        from deploy.api.leaving import leavers_of  # noqa: PLC0415 - see `pool`
        from preemption.core.reclaim.asking import Around, Short  # noqa: PLC0415 - see `pool`

        short = [Short(model, resources, self.priorities.get(model, 0)) for model, resources in self.short.items()]
        models = self.grants, self.idle
        leavers = leavers_of(pool, self.training, models, self.policy.lending, self.now)
        waiting = self.training.waiting()
        return Around(short, leavers, waiting, _takes_of_models(self.declared), _takes_of_jobs(self.training, waiting))


def facts_of(boards: Boards, caches: Sequence[CacheObserved], now: Instant) -> Facts:
    """As it is now."""
    models, training, pools = boards.models, boards.training, boards.pools
    grants = models.grants()
    entries = {name: models.entry(name) for name in models.names()}
    declared = {name: one.declared for name, one in entries.items() if one and one.declared is not None}
    starts = {name: one.start_seconds for name, one in entries.items() if one and one.start_seconds is not None}
    held = [*_replicas(grants), *_members(training), *_rooms(models.nodes(), grants)]
    return Facts(
        now=now, nodes=list(models.nodes()), held=held,
        short={name: grant.shortage.resources for name, grant in grants.items() if grant.shortage is not None},
        priorities={name: _priority(one.spec) for name, one in declared.items()},
        starts=starts, ready=_ready(boards, grants), warmth=_warmth(caches, declared),
        weights={name: one.spec.get("weights") for name, one in declared.items()},
        cordoned=pools.cordoned(), policy=pools.policy, training=training.copy(), grants=grants,
        idle={name: at for name, one in entries.items() if one and (at := idle_at(one.wish)) is not None},
        declared=declared, limits=models.limits(), devices=models.devices(),
    )  # fmt: skip


def _takes_of_models(declared: Mapping[str, ModelDeclared]) -> dict[str, Resources]:
    """What a replica of each takes, without those that another release declared and this one cannot read."""
    takes = {}
    for name, one in declared.items():
        with suppress(ValueError):
            takes[name] = read_declaration(one).resources
    return takes


def _takes_of_jobs(training: TrainingBoard, waiting: Sequence[tuple[str, int]]) -> dict[str, Resources]:
    """Likewise a member of each job that waits."""
    takes = {}
    for name, _ in waiting:
        entry = training.entry(name)
        with suppress(ValueError):
            if entry is not None and entry.declared is not None:
                takes[name] = read_training(entry.declared).resources
    return takes


def _replicas(grants: Mapping[str, GrantDecided]) -> list[Held]:
    return [
        (replica.replica, model, replica.placement, replica.resources)
        for model, grant in sorted(grants.items())
        for replica in grant.replicas
    ]


def _rooms(nodes: Iterable[CardsObserved], grants: Mapping[str, GrantDecided]) -> list[Held]:
    """What pods of enrolled objects have for replicas that are still to be wanted, unless one was granted there."""
    granted = {(one.placement.node, card) for grant in grants.values() for one in grant.replicas
               for card in one.placement.gpus}  # fmt: skip
    return [
        (room.pod, room.model, Placement(node=node.node, gpus=room.gpus), room.resources)
        for node in nodes for room in node.rooms if not any((node.node, card) in granted for card in room.gpus)
    ]  # fmt: skip


def _members(training: TrainingBoard) -> list[Held]:
    """Members that are granted, and what a run that has ended holds until its cards are seen empty."""
    held = {
        member.member: (member.member, OF_JOB + job, member.placement, member.resources)
        for job, granted in sorted(training.grants().items())
        for member in granted.members
    }
    for job, seen in sorted(training.observations().items()):
        if seen.state is RunState.ENDED and seen.empty_at is None:
            for one in seen.members:
                placement = Placement(node=one.node, gpus=one.gpus)
                held.setdefault(one.member, (one.member, OF_JOB + job, placement, one.resources))
    return list(held.values())


def _ready(boards: Boards, grants: Mapping[str, GrantDecided]) -> frozenset[str]:
    draining = {replica.replica for grant in grants.values() for replica in grant.replicas if replica.drain}
    ready = {replica.replica for _, replica in boards.models.replicas() if replica.state is ReplicaState.READY}
    return frozenset(ready - draining)


def _warmth(
    caches: Sequence[CacheObserved], declared: Mapping[str, ModelDeclared]
) -> dict[str, dict[str, ModelWarmth]]:
    warmth: dict[str, dict[str, ModelWarmth]] = {}
    for seen in caches:
        for one in seen.models:
            if one.model in declared and declared[one.model].revision == one.revision:
                warmth.setdefault(one.model, {})[seen.node] = one
    return warmth


def _priority(spec: Mapping[str, object]) -> int:
    found = spec.get("priority")
    return found if isinstance(found, int) else 0
