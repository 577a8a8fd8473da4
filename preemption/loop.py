"""The allocator's loop: follow the states, decide, record. Events only wake it; it decides from all that is known.

`preemption.folding` is the first of the three, `preemption.core.allocator` the second, and
`preemption.recording` the third.

There is one leader of a pool; others stand by: they follow everything and write nothing. A consumer group over one
partition says whose turn it is; who is told so says it in the log, and the offset of that record is the epoch in each
of its grants. The group alone deposes nobody: who leads goes on, be the brokers away for a while, until the log shows
that another one leads. Who reads a grant with a smaller epoch than the newest leadership refuses it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import Final

from events.clock import Clock
from events.following import Follower
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Query, Start
from events.names import Topic
from events.types.grants import LeadershipTaken
from events.units import Instant
from events.writer import EventWriter
from preemption.core.allocator import Pool
from preemption.folding import AllocatorSettings, PoolFold
from preemption.recording import Recorded, Recorder

__all__ = ["GROUP", "Allocator", "AllocatorSettings", "AllocatorStats", "Deposed"]

_FOLLOWED: Final = (
    Topic.MODELS, Topic.CARDS, Topic.CACHES, Topic.GRANTS, Topic.REPLICAS, Topic.RECLAIMS, Topic.DECISIONS,
    Topic.METRICS,
)  # fmt: skip

_OURS: Final = (Topic.GRANTS, Topic.RECLAIMS)
"""What leaders write."""

GROUP: Final = "relume-allocator"
"""The consumer groups ``relume-allocator-POOL`` share one partition of `relume.grants`: who has it leads the pool."""


class Deposed(Exception):
    """Another allocator has taken the pool; this one must write nothing more."""


@dataclass(slots=True)
class AllocatorStats:
    """Counts since the start."""

    decisions: int = 0
    grants: int = 0
    refused_wishes: int = 0
    """Of autoscalers that no longer own the partition."""
    refused_grants: int = 0
    """Of leaders that were deposed and did not know it yet. What they hid is said again."""
    refused_reclaims: int = 0
    """Likewise, of records of attempts to take cards back."""
    refused_states: int = 0
    """Of replicas and training runs, told by a cluster adapter that was replaced."""
    unreadable: int = 0
    """Declarations and attempts that another release wrote."""
    reclaims_selected: int = 0
    """Training jobs that were chosen to yield."""
    reclaims_bound: int = 0
    """Their cards went to the shortage."""
    reclaims_resumed: int = 0
    reclaims_continued: int = 0
    """The shortage was gone before they had to stop."""
    reclaims_finished: int = 0
    reclaims_skipped: int = 0
    reclaims_failed: int = 0
    notices_acked: int = 0
    escalations_terminate: int = 0
    escalations_kill: int = 0
    gpu_seconds_lost: float = 0.0
    """Of attempts that have ended, by all causes."""
    thrash: int = 0
    """Jobs that had to yield again within an hour."""
    training_starts: int = 0


class Allocator:
    """Leads a pool, or stands by until it is its turn: `run` until cancelled.

    `leading` is set once this one leads, `caught_up` once it has also decided on all that stood in the log: before that
    a cluster adapter beside it must not run anything.
    """

    def __init__(self, log: EventLog, clock: Clock, writer: EventWriter, settings: AllocatorSettings) -> None:
        self.leading = asyncio.Event()
        """Set once this one leads the pool. Who was deposed does not come back: `run` has ended."""
        self.caught_up = asyncio.Event()
        """Set once the states that stood in the log are known and decided on."""
        self._log = log
        self._clock = clock
        self._writer = writer
        self._settings = settings
        self._pool = Pool(settings.policy)
        self._fold = PoolFold(self._pool, settings)
        self._recorder = Recorder(log, clock, writer, self._fold)
        self._decisions = 0
        self._followed = asyncio.Event()
        """Set once what stood in the log at the start has been folded."""
        self._woken = asyncio.Event()

    def tell(self, recorded: Recorded) -> None:
        """Call `recorded` with the grants that are written from now on, as soon as they stand in the log."""
        self._recorder.recorded = recorded

    @property
    def pool(self) -> Pool:
        """What is known; for reading."""
        return self._pool

    @property
    def epoch(self) -> int:
        """The epoch of this leadership; -1 before it is taken."""
        return self._fold.epoch

    @property
    def stats(self) -> AllocatorStats:
        """Counts since the start."""
        stats = AllocatorStats(decisions=self._decisions, grants=self._recorder.grants)
        for counts in (self._fold.stats, self._pool.counts):
            for field in fields(counts):
                setattr(stats, field.name, getattr(counts, field.name))
        return stats

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
            self._fold.fold(record)
        self._check_leads()
        if batch.caught_up:
            self._followed.set()
        if self._fold.read:
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
                await self._recorder.pause(tries, f"the group of allocators cannot be joined: {error}")
                tries += 1
            finally:
                await subscription.close()

    async def _take_pool(self) -> None:
        """Say that we lead; then know all grants that stand, so that we go on where the last leader was."""
        taken = LeadershipTaken(pool=self._settings.pool, leader=self._settings.leader)
        (position,) = await self._recorder.append([self._writer.envelope(taken)])
        self._fold.epoch = position.offset
        self._pool.lead(position.offset)
        self._check_leads()
        self.leading.set()
        await self._followed.wait()
        tries = 0
        while not self._fold.read:
            try:
                for topic in _OURS:
                    async for record in self._log.read(Query(topic, newest_per_key=True)):
                        self._fold.read_before(record)
                self._fold.read = True
            except LogUnavailable as error:
                await self._recorder.pause(tries, f"grants cannot be read, so nothing is granted: {error}")
                tries += 1
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
                self._decisions += 1
                await self._recorder.record(plan, self._pool)
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

    def _check_leads(self) -> None:
        offset, leader = self._fold.newest
        if 0 <= self._fold.epoch < offset:
            raise Deposed(f"{leader} has taken the pool {self._settings.pool}")
