"""The log on Apache Kafka: what several processes share.

*Durable.* An append returns when all in-sync replicas of its partitions have it: with replication 3 and
``min.insync.replicas=2`` it survives the loss of a broker; with one broker it survives ``kill -9`` of it, and what a
power cut may take is up to the broker's disk settings.

*All or none* holds for what cannot be written at all (no event, too large). An append that fails with LogUnavailable
may have been written in part or in whole: the same events appended again are the same events.

*Once.* Events appended again in one process within the last `appends.KNOWN` are not written again; whatever stands in
the log twice (after a producer was made anew, or from another process) readers deliver once, within `opening.SEEN`
events.

*Order.* Appends of one process keep their order in a partition, and so do offers; appends overtake waiting offers.

*Brokers away.* Appends raise LogUnavailable after `append_timeout`; offers wait up to `offer_bound`, then are dropped
and counted; readers stand still; all go on by themselves. The loop never waits for a client: each has its own thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields

from kafka import KafkaAdminClient

from events.adapters.kafka.appends import Appends
from events.adapters.kafka.chosen import ChosenFollower
from events.adapters.kafka.client import Admin, quieten
from events.adapters.kafka.follower import AllFollower, Follower, Plan
from events.adapters.kafka.member import Member
from events.adapters.kafka.opening import Opener, Reading
from events.adapters.kafka.places import lags, spans, topic_places
from events.adapters.kafka.producer import CLOSING, Producer
from events.adapters.kafka.reader import Reader
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.subscription import KafkaSubscription
from events.adapters.kafka.tender import Tender
from events.adapters.kafka.topics import (
    TopicReport,
    check_created,
    check_topics,
    common_partitions,
    create_topics,
    problems_of,
)
from events.adapters.kafka.trunk import Trunk
from events.adapters.kafka.work import KafkaWork
from events.adapters.opened import OpenedLog
from events.adapters.store import Place
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogCorrupt, LogStats, LogUnavailable, Position, Query, Record, Start, Subscription
from events.names import TOPIC_KINDS, TopicKind
from events.payload import kind_of
from events.work import WorkQueue


@dataclass(frozen=True, slots=True)
class KafkaLogStats(LogStats):
    """What only this log counts, besides. `rejected` and `ignored` are those that this process tended."""

    repeated: int = 0
    """Stood in the log twice; delivered to each reader once."""
    strays: int = 0
    """Of foreign producers, under another key or in another partition; appended again where they belong."""
    stale: int = 0
    """Strays of news that were too old to be put right."""
    void: int = 0
    """Strays of writers that are fenced: nothing that they could say elsewhere would be true."""
    producers_remade: int = 0
    """Producers thrown away because a delivery failed."""
    tending: int = 0
    """1 once this process takes part in tending the topics, else 0."""


_COMMON = tuple(field.name for field in fields(LogStats))


class KafkaEventLog(OpenedLog):
    """See `events.log.EventLog`. An async context manager; or call `open` and `close`. Belongs to one loop."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        super().__init__(clock)
        self._settings = settings
        self._admin = Admin(settings)
        self._partitions: dict[str, int] = {}
        self._producer: Producer | None = None
        self._appends: Appends | None = None
        self._reader: Reader | None = None
        self._tender: Tender | None = None
        self._repeated = self._remade = 0
        self._subscriptions: set[KafkaSubscription] = set()
        self._works: set[KafkaWork] = set()
        self._trunks: dict[TopicKind, Trunk] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = False

    async def open(self) -> None:
        """Connect, create or check the topics. Raises LogUnavailable, and LogCorrupt for topics that are not fit."""
        quieten()
        self._loop = asyncio.get_running_loop()
        try:
            self._partitions = await self._prepare()
        except BaseException:
            self._admin.close()
            raise
        self._producer = Producer(self._settings, self._partitions, self._tell)
        self._producer.start()
        self._appends = Appends(self._settings, self._producer)
        self._reader = Reader(self._settings, self._admin, self._partitions)
        self._trunks = {
            kind: Trunk(self._settings, self._partitions, [topic for topic, its in TOPIC_KINDS.items() if its is kind])
            for kind in (TopicKind.STATE, TopicKind.NEWS)
        }
        self._open = True
        if self._settings.tend:
            self._tender = Tender(self._partitions, self._clock)
            self._tender.start(self.append, self._follow)

    async def close(self) -> None:
        """Write what waits, end subscriptions, disconnect. Calls after this raise LogClosed."""
        if not self._open:
            return
        self._open = False
        assert self._producer is not None
        assert self._reader is not None
        if self._tender is not None:
            await self._tender.stop()
        self._producer.stop()
        closing = [*(one.close() for one in list(self._subscriptions)), *(one.close() for one in list(self._works))]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._producer.closed)), CLOSING + 5)
        for one in list(self._subscriptions):
            one.end()  # before the trunks put them down, or each would connect once more
        for trunk in self._trunks.values():
            trunk.close()
        await asyncio.gather(*closing)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await asyncio.gather(*(asyncio.wrap_future(trunk.closed) for trunk in self._trunks.values()))
        self._take()
        self._admin.close()
        self._reader.close()

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """See the port and this module. Also raises Unencodable, for an event that is no event or too large."""
        for event in events:
            kind_of(event.data)
        self._check_open()
        assert self._appends is not None
        return await self._appends.append(events)

    def offer(self, envelope: AnyEnvelope) -> bool:
        """See the port."""
        if not self._open or self._producer is None or not self._producer.offer(envelope):
            self._counters.dropped += 1
            return False
        self._counters.offered += 1
        return True

    async def read(self, query: Query) -> AsyncIterator[Record]:
        """See the port. Events before the call are read; what is appended meanwhile may be missing."""
        self._check_open()
        assert self._reader is not None
        async for record in self._reader.read(query, self._count_repeated):
            yield record

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        """See the port. A topic that does not exist never gives anything."""
        self._check_open()
        plan = Plan(tuple(dict.fromkeys(map(str, topics))), self._partitions, start, group)
        return self._follow(plan)

    def work(self, topics: Sequence[str], group: str, member: str) -> WorkQueue:
        """See `events.work.WorkLog`."""
        self._check_open()
        work = KafkaWork(self._settings, self._admin, list(map(str, topics)), (group, member), self._partitions)
        work.left = self._works.discard
        self._works.add(work)
        return work

    @property
    def trouble(self) -> str:
        """Why events are not written now; empty when they are."""
        return "" if self._producer is None else self._producer.trouble()

    @property
    def tends(self) -> bool:
        """Whether the tending group has begun: strays and garbage that are written from now on are seen to."""
        return self._tender is not None and self._tender.begun

    async def lag(self, group: str) -> Mapping[Place, int]:
        """See the port."""
        self._check_open()
        return await self._admin.call(lambda client: lags(client, group))

    def stats(self) -> KafkaLogStats:
        """Counts since the log was opened."""
        depth = 0 if self._producer is None else self._producer.depth()
        tending = self._tender
        common = self._counters.stats(depth)
        counts: dict[str, int] = {name: getattr(common, name) for name in _COMMON}
        counts["duplicates"] = 0 if self._appends is None else self._appends.duplicates
        if tending is None:
            return KafkaLogStats(**counts, repeated=self._repeated, producers_remade=self._remade)
        counts["rejected"] += tending.opener.rejected
        counts["ignored"] += tending.opener.ignored
        return KafkaLogStats(
            **counts, repeated=self._repeated, producers_remade=self._remade,
            strays=tending.opener.strays, stale=tending.opener.stale, void=tending.opener.void,
            tending=int(tending.begun),
        )  # fmt: skip

    # Inside.

    async def _prepare(self) -> dict[str, int]:
        """Make sure of the topics; how many partitions each has."""
        within = self._settings.open_timeout
        reports = await self._admin.call(self._check, within)
        if self._settings.create_topics and any(report.partitions is None for report in reports):
            await self._admin.call(lambda client: create_topics(client, self._settings, reports), within)
            reports = await self._admin.call(lambda client: check_created(client, self._settings), within)
            partitions = {report.name: report.partitions or 0 for report in reports}
            await self._admin.call(lambda client: spans(client, topic_places(partitions, partitions)), within)
        problems = problems_of(reports)
        if problems or common_partitions(reports) is None:
            raise LogCorrupt(
                f"topics at {','.join(self._settings.servers)} are not fit: {'; '.join(problems)}. "
                "Look at them with: relume topics check"
            )
        return {report.name: report.partitions for report in reports if report.partitions is not None}

    def _check(self, client: KafkaAdminClient) -> tuple[TopicReport, ...]:
        return check_topics(client, self._settings)

    def _check_open(self) -> Producer:
        if not self._open or self._producer is None:
            raise LogClosed("the log is not open")
        if self._producer.closed.done():
            raise LogUnavailable("the producer stopped; see its error")
        return self._producer

    def _follow(self, plan: Plan, opener: Opener | None = None) -> KafkaSubscription:
        """Without an opener: what is sound, where it belongs, each once."""
        subscription = KafkaSubscription(plan.topics, plan.group, self._subscriptions.discard)
        followers = []
        for kind, part in plan.by_kind():
            opening = Reading(self._partitions, self._count_repeated) if opener is None else opener
            follower = _follower_of(part)(self._settings, self._admin, part, opening, subscription.deliver)
            follower.trunk = None if kind is None or plan.group is not None else self._trunks.get(kind)
            followers.append(follower)
            self._check_open().gate(follower.begun)
        self._subscriptions.add(subscription)
        subscription.follow(followers)
        return subscription

    def _count_repeated(self) -> None:
        """Called in readers' threads; a count that is short by one now and then harms nobody."""
        self._repeated += 1

    def _tell(self) -> None:
        """Called in the producer's threads."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed before the log: nobody is left to tell
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        if self._producer is None:
            return
        outcome = self._producer.take()
        counters = self._counters
        counters.appended += outcome.appended
        counters.commits += outcome.groups
        counters.rejected += outcome.unencodable
        counters.dropped += outcome.lost
        counters.failures += outcome.remade
        self._remade += outcome.remade
        if self._appends is not None:
            self._appends.resolve(outcome.answers)


def _follower_of(plan: Plan) -> type[Follower]:
    if plan.group is not None:
        return Member
    return AllFollower if plan.start.partitions is None else ChosenFollower
