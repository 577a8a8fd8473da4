"""The admin port: an aiohttp application over the board, which follows the log's states."""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from deploy.api.board import NEWS, STATES, Board
from deploy.api.changing import Boards
from deploy.api.coldstarts import ColdStarts
from deploy.api.declaring import Declarations
from deploy.api.following import Streams
from deploy.api.fronting import Declarer, Objects, ObjectsFirst
from deploy.api.gpu_ports import NodeGpus, NoGpus
from deploy.api.gpus import Gpus
from deploy.api.guard import STREAMS, middlewares
from deploy.api.lag import LoopLag
from deploy.api.logs import Logs, NoTrainingLogs
from deploy.api.metrics import Exposition
from deploy.api.models import Decisions, Models, Replicas
from deploy.api.pool_board import PoolBoard
from deploy.api.pools import Cards, Pools
from deploy.api.ports import Explainer, Readiness, Readings, ReplicaLogs, Traffic, TrainingLogs
from deploy.api.process import Process
from deploy.api.routes import ROUTES
from deploy.api.settings import AdminSettings
from deploy.api.shapes import Shape
from deploy.api.tallies import Tallies
from deploy.api.telling import Events
from deploy.api.training import Reclaims, Training
from deploy.api.training_board import TrainingBoard
from deploy.api.training_tallies import TrainingFamilies, TrainingTallies
from deploy.api.weight_ports import NodeWeights
from deploy.api.weights import Caches, NoWeights, Weights
from events.clock import Clock
from events.fence import Observers, Owners
from events.following import Follower
from events.log import Batch, EventLog, Start
from events.writer import EventWriter

Operation = Callable[[web.Request], Awaitable[Shape | web.StreamResponse]]

SHUTDOWN = 6.0
"""Seconds that open answers may take when the port closes: a little more than a stream's farewell."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the admin port speaks for. `readings`: numbers for ``/metrics`` that no event tells."""

    log: EventLog
    clock: Clock
    traffic: Traffic
    logs: ReplicaLogs
    explainer: Explainer
    readiness: Readiness
    readings: Sequence[Readings] = ()
    weights: NodeWeights = field(default_factory=NoWeights)
    gpus: NodeGpus = field(default_factory=NoGpus)
    training_logs: TrainingLogs = field(default_factory=NoTrainingLogs)
    objects: Objects | None = None
    """Where declarations are objects of a cluster."""


class AdminServer:
    """Start it, ask `address`, close it. `declarations` is the one way to declare anything in this process."""

    def __init__(self, parts: AdminParts, settings: AdminSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._states = Follower(parts.log, parts.clock, STATES, Start("newest_per_key"), self._take_states)
        self._news = Follower(parts.log, parts.clock, NEWS, Start("end"), self._take_news)
        self._caught_up = self._states.caught_up
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self._lag = LoopLag()
        self._owners, self._observers = Owners(), Observers()
        self.tallies = Tallies()
        self._caches = Caches()
        self.board = Board(objectives=self.tallies.objectives)
        self.training = TrainingBoard()
        self.pools = PoolBoard()
        self.training_tallies = TrainingTallies()
        writer = EventWriter(f"relume/admin/{uuid.uuid4().hex[:12]}", parts.clock)  # there may be several
        self._boards = Boards(self.board, self.training, self.pools)
        self._writer = writer
        self.declarations = Declarations(parts.log, self._boards, writer, self._caught_up)
        self._streams = Streams(settings)
        self._exposition = Exposition(self.board, self.tallies, parts.traffic, parts.clock)
        self._exposition.add_families(TrainingFamilies(self.training, self.training_tallies, parts.clock).families)
        for source in (self._lag, *parts.readings):
            self._exposition.add_source(source)

    async def start(self) -> None:
        """Listen, and follow the log. Raises OSError when the port is taken."""
        self._tasks = [
            asyncio.create_task(self._states.run(), name="admin-states"),
            asyncio.create_task(self._follow_news(), name="admin-news"),
            asyncio.create_task(self._lag.run(), name="admin-lag"),
        ]
        # Who leaves is not worked for any more, and a stream's place is free at once. (Declarations finish: see there.)
        for task in self._tasks:
            task.add_done_callback(_report)
        runner = web.AppRunner(
            self.application(), access_log=None, shutdown_timeout=SHUTDOWN, handler_cancellation=True
        )
        await runner.setup()
        self._runner = runner
        site = web.TCPSite(runner, self._settings.host, self._settings.port, ssl_context=_tls(self._settings))
        try:
            await site.start()
        except OSError:
            await self.close()
            raise

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        assert self._runner is not None, "start the server first"
        host, port = self._runner.addresses[0][:2]
        return str(host), int(port)

    @property
    def open_streams(self) -> int:
        """Readers that follow events or logs now."""
        return self._streams.open

    async def caught_up(self) -> None:
        """Wait until the board has everything that stood in the log at the start."""
        await self._caught_up.wait()

    async def close(self) -> None:
        """End streams with a last word, finish answers within their bound, stop following."""
        self._streams.closing.set()
        if self._runner is not None:
            await self._runner.cleanup()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def application(self) -> web.Application:
        """The aiohttp application with every route of the table."""
        app = web.Application(middlewares=middlewares(self._settings), client_max_size=self._settings.max_body)
        served = self._operations()
        streams = set()
        for route in ROUTES:
            handler = _answering(served[route.operation])
            if route.stream:
                streams.add(handler)
            app.router.add_route(route.method, route.path, handler)
        app[STREAMS] = frozenset(streams)
        return app

    def _operations(self) -> dict[str, Operation]:
        parts = self._parts
        groups = (
            Models(self.board, self._declarer(), parts.traffic, parts.clock),
            Replicas(self.board),
            Gpus(self._boards, self._caches, parts.clock, parts.gpus),
            Decisions(parts.log, self.board, parts.explainer, parts.clock),
            Events(parts.log, parts.clock, self._streams),
            Weights(self._caches, parts.weights, self.board),
            ColdStarts(parts.log, self.board),
            Logs(parts.logs, parts.training_logs, self._boards, self._streams),
            Training(self.training, self._declarer(), parts.clock),
            Reclaims(self.training, parts.log, parts.clock),
            Pools((self.pools, self.training), self._declarer(), parts.clock),
            Cards((self.board, self.pools), parts.log, self._writer, parts.clock),
            Process(self._boards, parts.traffic, parts.clock, self._exposition, self),
        )
        return {
            route.operation: next(
                getattr(group, route.operation) for group in groups if hasattr(group, route.operation)
            )
            for route in ROUTES
        }

    def _declarer(self) -> Declarer:
        objects = self._parts.objects
        return self.declarations if objects is None else ObjectsFirst(self.declarations, objects, self._boards)

    def missing(self) -> Sequence[str]:
        """See `deploy.api.ports.Readiness`."""
        own = [] if self._caught_up.is_set() else ["the admin port still reads the event log"]
        own += [f"{task.get_name()} has ended: see the log of this process" for task in self._tasks if task.done()]
        return [*own, *self._parts.readiness.missing()]

    def troubles(self) -> Sequence[str]:
        """See `deploy.api.ports.Readiness`."""
        return self._parts.readiness.troubles()

    async def _follow_news(self) -> None:
        await self._caught_up.wait()
        await self._news.run()

    def _take_states(self, batch: Batch) -> None:
        for record in batch.records:
            if not (self._owners.admits(record) and self._observers.admits(record)):
                continue
            self.board.apply(record.envelope, record.position.offset)
            self.training.apply(record.envelope, record.position.offset)
            self.pools.apply(record.envelope, record.position.offset)
            self._caches.apply(record.envelope)
            for tallies in (self.tallies, self.training_tallies):
                (tallies.apply if self._caught_up.is_set() else tallies.seed)(record.envelope)

    def _take_news(self, batch: Batch) -> None:
        for record in batch.records:
            self.board.apply(record.envelope, record.position.offset)
            self.tallies.apply(record.envelope)
            self.training_tallies.apply(record.envelope)


def _report(task: asyncio.Task[None]) -> None:
    """A follower that breaks is a bug: it is told at once, and readiness says that the board is old."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s ended", task.get_name(), exc_info=error)


def _answering(operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = await operation(request)
        if isinstance(answer, Shape):
            return web.Response(body=answer.model_dump_json(by_alias=True).encode(), content_type="application/json")
        return answer

    return handler


def _tls(settings: AdminSettings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.client_ca)
    context.load_cert_chain(settings.certificate, settings.key)
    if settings.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
