"""The office of asynchronous inference in one process: it reads work, takes slots, sends, and settles.

The clerk (`runtime.core.inference.clerk`) decides; here its commands are carried out. Slots come from the same port as
those of HTTP requests, so both stand in one fair queue a model. Everything happens on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Protocol

from events.clock import Clock
from events.codec import Unencodable
from events.log import EventLog, LogClosed, LogUnavailable
from events.names import Topic
from events.types.inference import FailureReason
from events.units import Instant, Seconds
from events.work import Assigned, Place, WorkBatch, WorkLog, WorkQueue
from runtime.core.inference.clerk import Clerk
from runtime.core.inference.endings import Answered, Ask, Cancel, Command, Dead, Run, Settle, Withdraw
from runtime.core.inference.errand import Errand, State
from runtime.inference.backlogs import EVERY, BacklogNews
from runtime.inference.reading import read_item
from runtime.inference.restoring import restore
from runtime.inference.sending import Reply, Sender, Tell
from runtime.inference.settings import GROUP, InferenceSettings
from runtime.inference.settling import Settler
from runtime.inference.telling import chunk
from runtime.ports import Ending, Lease, Outcome, Refusal, RefusalCode, Slots, TicketRequest

logger = logging.getLogger(__name__)

TOPICS: Final = (Topic.INFERENCE_REQUESTS, Topic.INFERENCE_PARKED)
REOPEN: Final = Seconds(1.0)
"""Before work that broke off is joined again."""

_FOR_GOOD: Final = frozenset({RefusalCode.UNKNOWN_MODEL, RefusalCode.DELETED})


@dataclass(slots=True)
class Counts:
    """What the office has done since it started."""

    read: int = 0
    runs: int = 0
    retries: int = 0
    interruptions: int = 0
    settled: int = 0
    transactions: int = 0
    failures: int = 0
    errands: int = 0
    """Under way now."""


@dataclass(slots=True)
class _Ticket:
    """The errand's side of a ticket (`runtime.ports.Waiter`)."""

    errand: Errand
    name: str
    on_lease: Callable[[Errand, Lease], None]
    on_refusal: Callable[[Errand, Refusal], None]

    def leased(self, lease: Lease) -> None:
        """See `Waiter`."""
        self.on_lease(self.errand, lease)

    def refused(self, refusal: Refusal) -> None:
        """See `Waiter`."""
        self.on_refusal(self.errand, refusal)


@dataclass(slots=True)
class _Doing:
    """What is under way for errands, by their numbers."""

    tickets: dict[int, _Ticket] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    runs: dict[int, asyncio.Task[None]] = field(default_factory=dict)


class InferenceLog(EventLog, WorkLog, Protocol):
    """What the office needs of a log."""


class Office:
    """See the module. `start` it once slots are there; `close` it while they still are."""

    def __init__(
        self, log: InferenceLog, slots: Slots, clock: Clock, settings: InferenceSettings, chance: Random
    ) -> None:
        self._log = log
        self._slots = slots
        self._clock = clock
        self._settings = settings
        self._chance = chance
        self.clerk = Clerk(settings.policy)
        self.counts = Counts()
        self._sender = Sender(clock, settings.connect_timeout)
        self._doing = _Doing()
        self._outbox: deque[Command] = deque()
        self._working = False
        self._queue: WorkQueue | None = None
        self._places: set[Place] = set()
        self._settler = Settler(self.clerk, clock, self._do)
        self._news = BacklogNews(log, slots, clock, settings)
        self._bell = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # Its life

    def start(self) -> None:
        """Begin to read."""
        self._tasks = [
            asyncio.create_task(work, name=name)
            for work, name in (
                (self._read(), "inference-read"), (self._settler.run(), "inference-settle"),
                (self._watch(), "inference-watch"), (self._tell_backlogs(), "inference-news"),
            )
        ]  # fmt: skip

    async def wait_broken(self) -> None:
        """Return when the log was closed; raise what broke a part."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def stop(self, bound: Seconds) -> None:
        """Take no new work, let what runs finish within `bound`, and settle it; the rest is another's."""
        if not self._tasks:
            return
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        if self._doing.runs:
            await asyncio.wait(list(self._doing.runs.values()), timeout=bound)
        await self._settler.drained(Seconds(min(bound, 5.0)))
        self._revoke(self._places)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._doing.runs.values(), return_exceptions=True)
        if self._queue is not None:
            await self._queue.close()
        await self._sender.close()

    def stats(self) -> Counts:
        """Since it started, and now."""
        settler = self._settler
        counts = replace(self.counts)
        counts.settled, counts.transactions, counts.failures = settler.settled, settler.transactions, settler.failures
        return counts

    # Reading

    async def _read(self) -> None:
        while True:
            self._queue = queue = self._log.work(TOPICS, GROUP, self._settings.gateway)
            self._settler.use(queue)
            try:
                async for batch in queue:
                    await self._take(batch)
            except LogClosed:
                return
            except LogUnavailable as error:
                self.counts.interruptions += 1
                logger.warning("asynchronous requests cannot be read now: %s", error)
            else:
                return
            self._revoke(self._places)
            await queue.close()
            await self._clock.sleep_until(Instant(self._clock.now() + REOPEN))

    async def _take(self, batch: WorkBatch) -> None:
        self._revoke(batch.revoked)
        if batch.assigned:
            await self._assign(batch.assigned)
        now = self._clock.now()
        for item in batch.items:
            self.counts.read += 1
            found = read_item(item, self._settings)
            if found is None:
                self._do(self.clerk.pass_over(item.place, item.position.offset, item.amends, now))
            elif found.why is not None:
                self._do(self.clerk.refuse(found.arrival, found.why, now))
            else:
                self._do(self.clerk.arrive(found.arrival, now))
        self._hold()

    async def _assign(self, assigned: Collection[Assigned]) -> None:
        """First what is known of outcomes in these partitions; then the work."""
        since = Instant(self._clock.now() - self._settings.policy.record_age)
        for partition in sorted({one.place[1] for one in assigned}):
            while True:
                try:
                    await restore(self.clerk.outcomes, self._log, (partition, since), self._clock)
                    break
                except LogUnavailable as error:
                    logger.warning("outcomes of partition %d cannot be read yet: %s", partition, error)
                    await self._clock.sleep_until(Instant(self._clock.now() + REOPEN))
        for one in assigned:
            self.clerk.assign(one.place, one.mark.next_offset, one.mark.done)
            self._settler.terms[one.place] = one.term
            self._places.add(one.place)

    def _revoke(self, places: Collection[Place]) -> None:
        if not places:
            return
        gone = list(places)
        for place in gone:
            self._settler.terms.pop(place, None)
            self._places.discard(place)
        self._do(self.clerk.revoke(gone, self._clock.now()))

    def _hold(self) -> None:
        if self._queue is not None:
            self._queue.hold([place for place in self._places if self.clerk.full(place)])

    # What the clerk commands

    def _do(self, commands: list[Command]) -> None:
        self._outbox.extend(commands)
        if self._working:
            return
        self._working = True
        try:
            while self._outbox:
                self._execute(self._outbox.popleft())
        finally:
            self._working = False
        self.counts.errands = len(self.clerk)
        self._bell.set()

    def _execute(self, command: Command) -> None:
        match command:
            case Ask(errand=errand):
                self._ask(errand)
            case Withdraw(errand=errand):
                ticket = self._doing.tickets.pop(errand.number, None)
                if ticket is not None:
                    self._slots.leave(ticket.name)
            case Run(errand=errand):
                run = asyncio.create_task(self._run(errand), name=f"inference-run-{errand.number}")
                self._doing.runs[errand.number] = run
                run.add_done_callback(lambda task: self._ran(errand.number, task))
            case Cancel(errand=errand):
                if (task := self._doing.runs.get(errand.number)) is not None:
                    task.cancel()
            case Settle(settlement=settlement):
                self._settler.add(settlement)

    def _ask(self, errand: Errand) -> None:
        if errand.state is not State.ASKED:
            return  # ended meanwhile
        now, arrival = self._clock.now(), errand.arrival
        route = self._slots.route(arrival.model)
        if route is None:
            why = Dead(FailureReason.UNKNOWN_MODEL, f"the model {arrival.model!r} does not exist")
            self._outbox.extend(self.clerk.dead(errand, why, now))
            return
        name = f"{self._settings.gateway}/{errand.ticket}"
        self._doing.tickets[errand.number] = ticket = _Ticket(errand, name, self._leased, self._refused)
        wanted = TicketRequest(
            request=name, model=route.model, caller=arrival.caller, arrived_at=now, deadline=arrival.deadline,
            body_bytes=arrival.size, stream=False,
        )  # fmt: skip
        lease = self._slots.take(wanted, ticket)
        if lease is not None:
            self._leased(errand, lease)

    def _leased(self, errand: Errand, lease: Lease) -> None:
        self._doing.tickets.pop(errand.number, None)
        commands = self.clerk.leased(errand, self._clock.now())
        if not commands:
            self._slots.give_back(lease, Outcome(ending=Ending.CLIENT_LEFT))
            return
        self._doing.leases[errand.number] = lease
        self._do(commands)

    def _refused(self, errand: Errand, refusal: Refusal) -> None:
        self._doing.tickets.pop(errand.number, None)
        now = self._clock.now()
        if refusal.code in _FOR_GOOD:
            self._do(self.clerk.dead(errand, Dead(FailureReason.UNKNOWN_MODEL, refusal.message), now))
        else:
            self._do(self.clerk.refused(errand, refusal.retry_after, now))

    # Running

    async def _run(self, errand: Errand) -> None:
        lease = self._doing.leases.pop(errand.number)
        arrival, began = errand.arrival, self._clock.now()
        self.counts.runs += 1
        route = self._slots.route(arrival.model)
        outcome = Outcome(ending=Ending.CLIENT_LEFT, engine_done=False)
        try:
            if route is None:
                reply = Reply(Dead(FailureReason.UNKNOWN_MODEL, "the model was deleted"), outcome)
            else:
                tell = self._teller(errand) if arrival.requested.stream else None
                reply = await self._sender.send(arrival, lease, route.timeouts, tell)
            outcome = reply.outcome
        finally:
            self._slots.give_back(lease, outcome)
        now = self._clock.now()
        if isinstance(reply.result, Answered):
            self._do(self.clerk.answered(errand, reply.result, now - began, now))
        elif reply.again:
            self.counts.retries += 1
            self._do(self.clerk.failed(errand, reply.result, int(reply.tried), self._chance.random(), now))
        else:
            self._do(self.clerk.dead(errand, reply.result, now))

    def _ran(self, number: int, task: asyncio.Task[None]) -> None:
        self._doing.runs.pop(number, None)
        lease = self._doing.leases.pop(number, None)
        if lease is not None:  # cancelled before its first step
            self._slots.give_back(lease, Outcome(ending=Ending.CLIENT_LEFT))
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an asynchronous request was not carried out", exc_info=error)

    def _teller(self, errand: Errand) -> Tell:
        """Tells the parts of its answer, in order, before the answer itself. The answer has them all, so a log that
        does not take them delays nothing."""

        async def tell(first: int, parts: list[str]) -> None:
            now = self._clock.now()
            try:
                await self._log.append([chunk(errand, first + at, part, now) for at, part in enumerate(parts)])
            except (LogUnavailable, Unencodable) as error:
                logger.warning("parts of an answer were not told: %s", error)

        return tell

    # Time

    async def _tell_backlogs(self) -> None:
        while True:
            behind = await self._queue.behind() if self._queue is not None else {}
            self._news.tell(self.clerk, behind)
            await self._clock.sleep_until(Instant(self._clock.now() + EVERY))

    async def _watch(self) -> None:
        while True:
            self._hold()
            due = self.clerk.due()
            self._bell.clear()
            wait = 1.0 if due is None else min(1.0, max(0.0, due - self._clock.now()))
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                pass
            self._do(self.clerk.advance(self._clock.now()))
            await asyncio.sleep(0)
