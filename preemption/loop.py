"""The allocator's loop: follow the states, decide, record. Events only wake it; it decides from all that is known.

There is one leader of a pool. It says so in the log, and the offset of that record is the epoch in each of its grants:
who reads a grant with a smaller epoch than the newest leadership refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.fence import Fence
from events.following import Follower
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Position, Record, Start
from events.names import Topic
from events.payload import Unencodable
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.grants import GrantDecided, LeadershipTaken
from events.types.metrics import ReplicaMetrics
from events.types.models import ModelDeclared
from events.types.replicas import CardsObserved, ReplicasObserved
from events.units import Instant
from events.writer import EventWriter
from preemption.core.allocator import GrantPlan, Pool
from preemption.core.view import AllocatorPolicy, Wish
from preemption.declared import read_declaration

_log: Final = logging.getLogger(__name__)

_FOLLOWED: Final = (Topic.MODELS, Topic.CARDS, Topic.GRANTS, Topic.REPLICAS, Topic.DECISIONS, Topic.METRICS)

_RETRY_SECONDS: Final = (0.05, 0.2, 1.0, 5.0)
"""Waits between tries to append while the log cannot be written; the last one repeats."""


class Deposed(Exception):
    """Another allocator has taken the pool; this one must write nothing more."""


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """`leader` names this process in the log; `pool` is what it leads."""

    leader: str
    pool: str = "default"
    policy: AllocatorPolicy = field(default_factory=AllocatorPolicy)


@dataclass(slots=True)
class AllocatorStats:
    """Counts since the start."""

    decisions: int = 0
    grants: int = 0
    refused_wishes: int = 0
    """Of autoscalers that no longer own the partition."""
    unreadable: int = 0
    """Declarations that another release wrote."""


class Allocator:
    """Leads a pool: `run` until cancelled."""

    def __init__(self, log: EventLog, clock: Clock, writer: EventWriter, settings: AllocatorSettings) -> None:
        self.stats = AllocatorStats()
        self.caught_up = asyncio.Event()
        """Set once the states that stood in the log are known and decided on."""
        self._log = log
        self._clock = clock
        self._writer = writer
        self._settings = settings
        self._pool = Pool(settings.policy)
        self._epoch = -1
        self._owners = Fence()
        self._read = False
        """Whether the states that stood in the log are known; from then on no grant is taken from it."""
        self._causes: dict[str, str] = {}
        self._woken = asyncio.Event()

    @property
    def pool(self) -> Pool:
        """What is known; for reading."""
        return self._pool

    @property
    def epoch(self) -> int:
        """The epoch of this leadership; -1 before it is taken."""
        return self._epoch

    async def run(self) -> None:
        """Take the pool and grant until cancelled. Deposed: another took it. LogClosed: the log was closed."""
        taken = LeadershipTaken(pool=self._settings.pool, leader=self._settings.leader)
        self._epoch = (await self._append([self._writer.envelope(taken)]))[0].offset
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(), name="allocator-follow")
                tasks.create_task(self._grant(), name="allocator-grant")
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # the other task was cancelled for it

    async def _follow(self) -> None:
        """Fold everything that is said; the decisions are the other task's."""
        await Follower(self._log, self._clock, _FOLLOWED, Start("newest_per_key"), self._take).run()
        raise LogClosed("the log was closed under the allocator")

    def _take(self, batch: Batch) -> None:
        for record in batch.records:
            self._fold(record)
        self._read |= batch.caught_up
        if self._read:
            self._woken.set()

    async def _grant(self) -> None:
        """Decide when woken, and when the last decision said to look again."""
        timer: asyncio.Task[None] | None = None
        due: Instant | None = None
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                plan = self._pool.decide(self._clock.now())
                await self._record(plan)
                self.caught_up.set()
                if plan.again_at != due or (timer is not None and timer.done()):
                    due = plan.again_at
                    if timer is not None:
                        timer.cancel()
                    timer = None if due is None else asyncio.create_task(self._wake_at(due))
        finally:
            if timer is not None:
                timer.cancel()

    async def _wake_at(self, instant: Instant) -> None:
        await self._clock.sleep_until(instant)
        self._woken.set()

    async def _record(self, plan: GrantPlan) -> None:
        """Append the grants that changed, all at once; only then may anybody act on them."""
        self.stats.decisions += 1
        for model in plan.gone:
            self._causes.pop(model, None)
        if not plan.grants:
            return
        grants = [
            self._writer.envelope(grant, cause=self._causes.get(grant.model), epoch=self._epoch)
            for grant in plan.grants
        ]
        try:
            await self._append(grants)
        except Unencodable:
            for grant in grants:
                await self._append_alone(grant)
        self.stats.grants += len(grants)

    async def _append_alone(self, grant: AnyEnvelope) -> None:
        """One that cannot be encoded stays unsaid; its model keeps what it has, and all others theirs."""
        try:
            await self._append([grant])
        except Unencodable as error:
            _log.error("the grant of %s cannot be written: %s", grant.key, error)

    async def _append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """Append, again and again while the log cannot be written: the same ids, so never twice."""
        tries = 0
        while True:
            try:
                return await self._log.append(events)
            except LogUnavailable as error:
                wait = _RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)]
                _log.warning("grants cannot be recorded, so nothing is granted; trying again in %s s: %s", wait, error)
                await self._clock.sleep_until(Instant(self._clock.now() + wait))
                tries += 1

    def _fold(self, record: Record) -> None:
        data = record.envelope.data
        match data:
            case WishDecided():
                self._wished(record, data)
            case ModelDeclared():
                self._declared(record, data)
            case ReplicasObserved():
                self._pool.set_observed(data)
            case CardsObserved():
                self._pool.set_node(data)
            case ReplicaMetrics(running=float() | int() as running):
                self._pool.set_running(data.model, data.replica, running)
            # Where the log was read, this leader's own grants stand. What a deposed one writes now the adapter refuses.
            case GrantDecided() if not self._read:
                self._pool.set_grant(data)
            case OwnershipTaken() | LeadershipTaken():
                self._taken(data, record.position.offset)

    def _taken(self, taken: OwnershipTaken | LeadershipTaken, offset: int) -> None:
        if isinstance(taken, OwnershipTaken):
            self._owners.take(taken.partition, offset)
        elif taken.pool == self._settings.pool and offset > self._epoch:
            raise Deposed(f"{taken.leader} has taken the pool {taken.pool}")

    def _wished(self, record: Record, wish: WishDecided) -> None:
        """Take a wish, unless its writer had lost the partition when it wrote it. (Records come in the log's order.)"""
        if not self._owners.allows(record.position.partition, record.envelope.epoch):
            self.stats.refused_wishes += 1
            return
        self._causes[wish.model] = record.envelope.id
        self._pool.set_wish(wish.model, Wish(wish.uid, wish.replicas, wish.marginal_gain))

    def _declared(self, record: Record, event: ModelDeclared) -> None:
        try:
            declared = read_declaration(event)
        except ValueError as error:
            self.stats.unreadable += 1
            _log.warning("the declaration of model %s is left aside: %s", event.model, error)
            return
        self._causes[event.model] = record.envelope.id
        self._pool.set_declared(declared)
