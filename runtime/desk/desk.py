"""The desk: the slot authority of one process at work. The `Slots` and the `Catalog` of the gateway.

It follows what is declared and what runs, does what the authority says, wakes those who wait, and publishes what was
measured. Everything happens on the event loop's thread; no call from the gateway waits for anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from coldstart.core.hold import HoldBudget
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.fence import Observers
from events.following import Follower
from events.log import Batch, EventLog, LogClosed, Start
from events.names import GatewayName, ModelName, Topic
from events.types.caches import CacheObserved
from events.types.gateways import GatewayBeat
from events.types.models import ModelDeclared
from events.types.phases import ReplicaDrained, ReplicaSuspected
from events.types.replicas import ReplicasObserved
from events.types.requests import RequestWindow
from events.units import Bytes, Instant
from events.writer import EventWriter
from runtime.core.authority import Authority
from runtime.core.commands import Command, Drained, Expect, Grant, Refuse, SendWindow, Suspect, TellColdStart
from runtime.core.ledger import ModelStatus, Poll
from runtime.core.model_slots import Declared
from runtime.core.policy import Heartbeat
from runtime.desk.busy import BusyPoller
from runtime.desk.declared import read_declaration
from runtime.desk.news import BEAT, Heart, Newsagent
from runtime.ports import (
    CatalogEntry,
    Ending,
    Front,
    Lease,
    ModelRoute,
    Outcome,
    Progress,
    Refusal,
    TicketRequest,
    Waiter,
)

logger = logging.getLogger(__name__)

NEVER = Instant(float("inf"))

LEASES_A_TURN = 32
"""Leases that held requests are told in the first turn of the loop, about a millisecond of work: what is written leaves
at the end of a turn, so an engine that becomes ready for a thousand would get the first of them after the last."""

LEASES_MOST = 256
"""Each further turn tells twice as many, up to these: the answers that come meanwhile take turns with the requests, and
the last of a thousand should not stand behind all of them."""

STATES = (Topic.MODELS, Topic.REPLICAS, Topic.CACHES)


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """Who this gateway is, and what it may hold over all models.

    `boot` is new at each start of the process.
    """

    gateway: GatewayName
    boot: str
    hold_max_requests: int = 20_000
    """At 8 KiB a held request besides its body (design §11), 160 MiB at the most."""
    hold_max_bytes: Bytes = Bytes(1 << 30)


@dataclass(frozen=True, slots=True)
class DeskCounts:
    """What the desk has counted since it started."""

    news_dropped: int
    news_pending: int
    beats_missed: int
    interruptions: int
    unreadable: int
    commands_failed: int
    polls: int
    polls_unanswered: int
    refused_states: int
    """Of replicas, told by a cluster adapter that was replaced."""


class Desk:
    """See the module. `start` it before the gateway listens, `shut_down` to take no more, `close` at the end."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        writer: EventWriter,
        settings: DeskSettings,
        authority: Authority | None = None,
    ) -> None:
        self._clock = clock
        budget = HoldBudget(settings.hold_max_requests, settings.hold_max_bytes)
        self._authority = Authority(settings.gateway, budget) if authority is None else authority
        self._waiters: dict[str, Waiter] = {}
        self._routes: dict[str, ModelRoute] = {}
        self._created: dict[str, tuple[str, int]] = {}
        """Of each model its uid and the second in which it was first declared, as far as this process knows."""
        self._front: Front | None = None
        self._waking = ""
        """The model for whose start the front makes way."""
        self._outbox: deque[Command] = deque()
        self._working = False
        self._rest: asyncio.Handle | None = None
        """What goes on with the outbox in the next turn."""
        self._portion = LEASES_A_TURN
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = NEVER
        self._tasks: list[asyncio.Task[None]] = []
        self._unreadable = 0
        self._failed = 0
        self._news = Newsagent(log, writer)
        beat = GatewayBeat(gateway=settings.gateway, boot=settings.boot)
        self._heart = Heart(log, writer, beat)
        self._observers = Observers()
        self._follower = Follower(log, clock, STATES, Start("newest_per_key"), self._take_states)
        self._busy = BusyPoller(clock, self._authority.polls, self._engine_running)

    def serve(self, front: Front) -> None:
        """Tell this data port what comes; before `start`."""
        self._front = front

    # Its life

    async def start(self) -> None:
        """Follow, beat, and return when all that is declared and runs is known. Raises LogClosed."""
        for work, name in (
            (self._follower.run(), "desk-follow"),
            (self._pulse(), "desk-pulse"),
            (self._busy.run(), "desk-busy"),
        ):
            self._tasks.append(self._spawn(work, name))
        caught_up = asyncio.ensure_future(self._follower.caught_up.wait())
        await asyncio.wait((caught_up, self._tasks[0]), return_when=asyncio.FIRST_COMPLETED)
        if not caught_up.done():
            caught_up.cancel()
            raise LogClosed("the event log was closed before what is declared could be read")

    async def wait_broken(self) -> None:
        """Return when the log is closed; raise what broke a part of the desk."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    @property
    def ready(self) -> bool:
        """Whether what is declared and what runs is known, and requests are taken."""
        return self._follower.caught_up.is_set() and not self._heart.says.leaving

    def shut_down(self) -> None:
        """Refuse all that wait and all that come. Live leases go on; wait until `running` is 0, then `close`."""
        self._heart.says = replace(self._heart.says, leaving=True)
        self._do(self._authority.shutdown(self._clock.now()))

    async def close(self) -> None:
        """End all work of the desk; a last beat says that this gateway leaves."""
        tasks = [*self._tasks, *(() if self._alarm is None else (self._alarm,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._rest is not None:
            self._rest.cancel()
        self._tasks.clear()
        self._alarm = None
        self._heart.says = replace(self._heart.says, leaving=True)
        await self._heart.beat()

    # Slots

    def route(self, name: str) -> ModelRoute | None:
        """See `Slots.route`."""
        route = self._routes.get(name)  # a name goes before an alias
        if route is not None:
            return route
        declared = self._authority.resolve(name)
        return None if declared is None else self._routes[declared.model]

    def take(self, wanted: TicketRequest, waiter: Waiter) -> Lease | None:
        """See `Slots.take`."""
        now = self._clock.now()
        if not self._outbox:
            lease = self._authority.take_at_once(wanted, now)
            if lease is not None:
                # Nothing to do and no earlier alarm: the meter that it was counted on has set its own.
                return lease
        lease = None
        for command in self._authority.take(wanted, now):
            if type(command) is Grant and command.lease.request == wanted.request:
                lease = command.lease
            else:
                self._outbox.append(command)
        if lease is None:
            self._waiters[wanted.request] = waiter
        self._work()
        return lease

    def leave(self, request: str) -> None:
        """See `Slots.leave`. Also for a request whose answer is on its way to its waiter: a lease is given back."""
        if self._waiters.pop(request, None) is not None:
            self._do(self._authority.leave(request, self._clock.now()))

    def give_back(self, lease: Lease, outcome: Outcome) -> None:
        """See `Slots.give_back`. Raises LeaseEnded, a ValueError."""
        commands = self._authority.give_back(lease.id, outcome, self._clock.now())
        if commands or outcome.ending is not Ending.FINISHED:  # else no alarm can have changed either
            self._do(commands)
        if not outcome.engine_done:
            self._busy.wake()

    def progress(self, request: str) -> Progress | None:
        """See `Slots.progress`."""
        return self._authority.progress(request, self._clock.now())

    # Catalog and statuses

    def entries(self) -> Sequence[CatalogEntry]:
        """See `Catalog.entries`."""
        return [
            CatalogEntry(status.model, status.state.value, self._created[status.model][1], status.aliases)
            for status in self._authority.statuses()
        ]

    def statuses(self) -> Sequence[ModelStatus]:
        """How each declared model stands with this gateway, by name."""
        return list(self._authority.statuses())

    @property
    def running(self) -> int:
        """Live leases."""
        return self._authority.live_leases

    @property
    def counts(self) -> DeskCounts:
        """For metrics."""
        return DeskCounts(
            news_dropped=self._news.dropped,
            news_pending=self._news.pending,
            beats_missed=self._heart.missed,
            interruptions=self._follower.interruptions,
            unreadable=self._unreadable,
            commands_failed=self._failed,
            polls=self._busy.asked,
            polls_unanswered=self._busy.unanswered,
            refused_states=self._observers.refused,
        )

    async def _pulse(self) -> None:
        while True:
            next_at = Instant(self._clock.now() + BEAT)
            await self._heart.beat()
            self._news.flush()
            await self._clock.sleep_until(next_at)

    # What is followed

    def _take_states(self, batch: Batch) -> None:
        for record in batch.records:
            if self._observers.admits(record):
                self._apply(record.envelope)

    def _apply(self, envelope: AnyEnvelope) -> None:
        data = envelope.data
        now = self._clock.now()
        if isinstance(data, ReplicasObserved):
            if data.model == self._waking and data.replicas and self._front is not None:
                self._waking = ""
                self._front.end_way()
            self._do(self._authority.observe(data, now))
        elif isinstance(data, CacheObserved):
            self._authority.hear(data, envelope.time)
        elif isinstance(data, ModelDeclared) and data.deleted:
            self._routes.pop(data.model, None)
            self._created.pop(data.model, None)
            self._do(self._authority.delete(ModelName(data.model), now))
        elif isinstance(data, ModelDeclared):
            try:
                declared = read_declaration(data)
            except ValidationError as error:  # of another release, or of another writer: what was known stands
                self._unreadable += 1
                logger.warning("the declaration of %s cannot be read: %s", data.model, error)
                return
            if self._created.get(data.model, ("",))[0] != data.uid:
                self._created[data.model] = (data.uid, int(envelope.time))
            self._routes[data.model] = _route(declared)
            self._do(self._authority.declare(declared, now))

    def _engine_running(self, poll: Poll, count: int, asked_at: Instant) -> None:
        self._do(self._authority.engine_running(poll, count, asked_at, self._clock.now()))

    # What the authority commands

    def _do(self, commands: Sequence[Command]) -> None:
        self._outbox.extend(commands)
        self._work()

    def _work(self) -> None:
        """Do what is in the outbox, in order; also what is added meanwhile (a waiter may call any method here).

        All of it, but for leases: of a thousand, most are told in the next turns.
        """
        if self._outbox and not self._working and self._rest is None:
            self._working = True
            left = self._portion
            try:
                while self._outbox and left:
                    command = self._outbox.popleft()
                    self._execute_safely(command)
                    left -= type(command) is Grant
            finally:
                self._working = False
            if self._outbox:
                self._portion = min(2 * self._portion, LEASES_MOST)
                self._rest = asyncio.get_running_loop().call_soon(self._work_on)
            else:
                self._portion = LEASES_A_TURN
        due = self._authority.due()
        if due is not None and due < self._alarm_at:
            self._set_alarm(due)

    def _work_on(self) -> None:
        self._rest = None
        self._work()

    def _execute_safely(self, command: Command) -> None:
        """One waiter's bug, or one event that cannot be written, must not keep the others from their slots."""
        try:
            self._execute(command)
        except Exception:
            self._failed += 1
            logger.exception("a command was not carried out: %s", command)

    def _execute(self, command: Command) -> None:
        match command:
            case Grant():
                self._lease(command.lease)
            case Refuse():
                self._refuse(command.request, command.refusal)
            case SendWindow():
                self._send(command.window)
            case Expect():
                if self._front is not None:
                    self._front.expect(command.host, command.port, command.requests)
            case Drained():
                self._news.tell(ReplicaDrained(model=command.model, replica=command.replica))
            case Suspect():
                reason = command.reason
                self._news.tell(ReplicaSuspected(model=command.model, replica=command.replica, reason=reason))
            case TellColdStart():
                self._news.tell(command.finished)

    def _send(self, window: RequestWindow) -> None:
        self._news.tell(window)
        if window.edge and self._front is not None and self._authority.asleep(window.model):
            self._waking = window.model
            self._front.make_way()

    def _lease(self, lease: Lease) -> None:
        waiter = self._waiters.pop(lease.request, None)
        if waiter is None:  # left while the lease was on its way to it
            self.give_back(lease, Outcome(ending=Ending.CLIENT_LEFT))
            return
        waiter.leased(lease)

    def _refuse(self, request: str, refusal: Refusal) -> None:
        waiter = self._waiters.pop(request, None)
        if waiter is not None:  # else it left while the refusal was on its way to it
            waiter.refused(refusal)

    # Time

    def _set_alarm(self, at: Instant) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._spawn(self._ring(at), "desk-alarm")

    async def _ring(self, at: Instant) -> None:
        await self._clock.sleep_until(at)
        self._alarm, self._alarm_at = None, NEVER
        self._do(self._authority.advance(self._clock.now()))

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(_report)
        return task


def _route(declared: Declared) -> ModelRoute:
    heartbeat = declared.cold_start.heartbeat
    return ModelRoute(
        model=declared.model,
        uid=declared.uid,
        revision=declared.revision,
        timeouts=declared.timeouts,
        max_wait=declared.cold_start.hold.max_wait,
        heartbeat=None if heartbeat is None else Heartbeat(every=heartbeat),
    )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s ended with an error", task.get_name(), exc_info=error)
