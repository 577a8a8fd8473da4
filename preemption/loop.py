"""The allocator's loop: follow the states, decide, record. Events only wake it; it decides from all that is known.

There is one leader of a pool; others stand by: they follow everything and write nothing. A consumer group over one
partition says whose turn it is; who is told so says it in the log, and the offset of that record is the epoch in each
of its grants. The group alone deposes nobody: who leads goes on, be the brokers away for a while, until the log shows
that another one leads. Who reads a grant with a smaller epoch than the newest leadership refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.fence import Owners
from events.following import Follower
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Position, Query, Record, Start
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

logger = logging.getLogger(__name__)

_FOLLOWED: Final = (Topic.MODELS, Topic.CARDS, Topic.GRANTS, Topic.REPLICAS, Topic.DECISIONS, Topic.METRICS)

GROUP: Final = "relume-allocator"
"""The consumer groups ``relume-allocator-POOL`` share one partition of `relume.grants`: who has it leads the pool."""

_RETRY_SECONDS: Final = (0.05, 0.2, 1.0, 5.0)
"""Waits between tries to append while the log cannot be written; the last one repeats."""


class Deposed(Exception):
    """Another allocator has taken the pool; this one must write nothing more."""


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """`leader` names this process in the log; `pool` is what it leads.

    `node`: the only node that it places replicas on, for a leader whose adapter runs processes on its own machine: what
    other nodes said of their cards, they said as leaders that are gone. None: all nodes count.
    """

    leader: str
    pool: str = "default"
    policy: AllocatorPolicy = field(default_factory=AllocatorPolicy)
    node: str | None = None


@dataclass(slots=True)
class AllocatorStats:
    """Counts since the start."""

    decisions: int = 0
    grants: int = 0
    refused_wishes: int = 0
    """Of autoscalers that no longer own the partition."""
    refused_grants: int = 0
    """Of leaders that were deposed and did not know it yet. What they hid is said again."""
    unreadable: int = 0
    """Declarations that another release wrote."""


class Allocator:
    """Leads a pool, or stands by until it is its turn: `run` until cancelled.

    `leading` is set once this one leads, `caught_up` once it has also decided on all that stood in the log: before that
    a cluster adapter beside it must not run anything.
    """

    def __init__(self, log: EventLog, clock: Clock, writer: EventWriter, settings: AllocatorSettings) -> None:
        self.stats = AllocatorStats()
        self.leading = asyncio.Event()
        """Set once this one leads the pool. Who was deposed does not come back: `run` has ended."""
        self.caught_up = asyncio.Event()
        """Set once the states that stood in the log are known and decided on."""
        self._log = log
        self._clock = clock
        self._writer = writer
        self._settings = settings
        self._pool = Pool(settings.policy)
        self._epoch = -1
        self._newest = (-1, "")
        """The offset of the newest leadership that was read, and whose it is."""
        self._owners = Owners()
        self._followed = asyncio.Event()
        """Set once what stood in the log at the start has been folded."""
        self._read = False
        """Whether this one leads and knows all grants that stood when it began to: from then on its own stand."""
        self._read_to: dict[int, int] = {}
        """Where the grants stood then: the newest offset by partition."""
        self._hidden: dict[str, None] = {}
        """Models whose newest grant in the log is of a deposed leader."""
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
        """Stand by until it is our turn, take the pool, and grant until cancelled.

        Deposed: another took the pool. LogClosed: the log was closed.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(), name="allocator-follow")
                tasks.create_task(self._lead(), name="allocator-lead")
                tasks.create_task(self._grant(), name="allocator-grant")
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # the other tasks were cancelled for it

    async def _follow(self) -> None:
        """Fold everything that is said; the decisions are another task's."""
        await Follower(self._log, self._clock, _FOLLOWED, Start("newest_per_key"), self._take).run()
        raise LogClosed("the log was closed under the allocator")

    def _take(self, batch: Batch) -> None:
        for record in batch.records:
            self._fold(record)
        if batch.caught_up:
            self._followed.set()
        if self._read:
            self._woken.set()

    async def _lead(self) -> None:
        """Stay in the group; lead once it is our turn. (Who leads goes on until the log says otherwise.)"""
        topics, group = (Topic.GRANTS,), f"{GROUP}-{self._settings.pool}"
        tries = 0
        while True:
            subscription = self._log.subscribe(topics, Start("end", partitions=(0,)), group)
            try:
                async for batch in subscription:
                    tries = 0
                    if batch.assigned and not self.leading.is_set():
                        await self._take_pool()
                raise LogClosed("the log was closed under the allocator")
            except LogUnavailable as error:
                await self._pause(tries, f"the group of allocators cannot be joined: {error}")
                tries += 1
            finally:
                await subscription.close()

    async def _take_pool(self) -> None:
        """Say that we lead; then know all grants that stand, so that we go on where the last leader was."""
        taken = LeadershipTaken(pool=self._settings.pool, leader=self._settings.leader)
        (position,) = await self._append([self._writer.envelope(taken)])
        self._epoch = position.offset
        self._check_leads()
        self.leading.set()
        await self._followed.wait()
        tries = 0
        while not self._read:
            try:
                async for record in self._log.read(Query(Topic.GRANTS, newest_per_key=True)):
                    self._fold(record)
                    place = record.position
                    self._read_to[place.partition] = max(place.offset, self._read_to.get(place.partition, -1))
                self._read = True
            except LogUnavailable as error:
                await self._pause(tries, f"grants cannot be read, so nothing is granted: {error}")
                tries += 1
        self._woken.set()

    async def _pause(self, tries: int, why: str) -> None:
        wait = _RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)]
        logger.warning("%s; trying again in %s s", why, wait)
        await self._clock.sleep_until(Instant(self._clock.now() + wait))

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
        again = self._said_again({grant.model for grant in plan.grants})
        grants = [
            self._writer.envelope(grant, cause=self._causes.get(grant.model), epoch=self._epoch)
            for grant in (*plan.grants, *again)
        ]
        if not grants:
            return
        try:
            await self._append(grants)
        except Unencodable:
            for grant in grants:
                await self._append_alone(grant)
        self.stats.grants += len(grants)

    def _said_again(self, said: set[str]) -> list[GrantDecided]:
        """Ours that a deposed leader's late grants hide: who reads the newest values only would find theirs."""
        hidden, self._hidden = self._hidden, {}
        ours = [self._pool.granted(model) for model in hidden if model not in said]
        return [grant for grant in ours if grant is not None]

    async def _append_alone(self, grant: AnyEnvelope) -> None:
        """One that cannot be encoded stays unsaid; its model keeps what it has, and all others theirs."""
        try:
            await self._append([grant])
        except Unencodable as error:
            logger.error("the grant of %s cannot be written: %s", grant.key, error)  # noqa: TRY400 - its words say it all

    async def _append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """Append, again and again while the log cannot be written: the same ids, so never twice."""
        tries = 0
        while True:
            try:
                return await self._log.append(events)
            except LogUnavailable as error:
                await self._pause(tries, f"grants cannot be recorded, so nothing is granted: {error}")
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
                if self._settings.node in (None, data.node):
                    self._pool.set_node(data)
            case ReplicaMetrics(running=float() | int() as running):
                self._pool.set_running(data.model, data.replica, running)
            case _:
                self._fold_writers(record)

    def _fold_writers(self, record: Record) -> None:
        """Who owns and who leads, and what leaders write."""
        data = record.envelope.data
        match data:
            case GrantDecided():
                self._granted(record, data)
            case OwnershipTaken():
                self._owners.admits(record)
            case LeadershipTaken():
                if data.pool == self._settings.pool and record.position.offset > self._newest[0]:
                    self._newest = (record.position.offset, data.leader)
                    self._check_leads()

    def _check_leads(self) -> None:
        if 0 <= self._epoch < self._newest[0]:
            raise Deposed(f"{self._newest[1]} has taken the pool {self._settings.pool}")

    def _granted(self, record: Record, grant: GrantDecided) -> None:
        """While another leads, its grants are what stands. Once we do, ours stand: what comes later is ours, or of one
        who was deposed; the adapter refuses that."""
        place = record.position
        if not self._read:
            self._pool.set_grant(grant)
        elif (record.envelope.epoch or 0) < self._epoch and place.offset > self._read_to.get(place.partition, -1):
            self.stats.refused_grants += 1
            self._hidden[grant.model] = None

    def _wished(self, record: Record, wish: WishDecided) -> None:
        """Take a wish, unless its writer had lost the partition when it wrote it. (Records come in the log's order.)"""
        if not self._owners.admits(record):
            self.stats.refused_wishes = self._owners.refused
            return
        self._causes[wish.model] = record.envelope.id
        self._pool.set_wish(wish.model, Wish(wish.uid, wish.replicas, wish.marginal_gain))

    def _declared(self, record: Record, event: ModelDeclared) -> None:
        try:
            declared = read_declaration(event)
        except ValueError as error:
            self.stats.unreadable += 1
            logger.warning("the declaration of model %s is left aside: %s", event.model, error)
            return
        self._causes[event.model] = record.envelope.id
        self._pool.set_declared(declared)
