"""The operations on the process itself: health, readiness, metrics, OpenAPI document, and the load of everything."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from http import HTTPStatus

import orjson
from aiohttp import web

from deploy.api import metrics, queries
from deploy.api.board import ModelBoard, items_in_breaths
from deploy.api.card_parts import part_of_gpu, share_of_gpu
from deploy.api.changing import Boards
from deploy.api.metrics import Exposition
from deploy.api.openapi import document
from deploy.api.ports import Readiness, Traffic
from deploy.api.shapes import Health, ModelItem, NodeRow, ReadinessShape, Top, TopRow
from events.clock import Clock
from events.types.grants import ReplicaGrant
from events.types.replicas import CardsObserved
from events.types.requests import RequestWindow
from events.types.training import MemberGrant
from events.units import Instant, format_instant
from runtime.core.sketch import merged, quantile

FRESH = 5.0
"""A window older than this says nothing about the load now (a gateway unseen for 5 s is dead: design §4)."""


class Process:
    """Health, readiness, metrics, OpenAPI, top."""

    def __init__(
        self, boards: Boards, traffic: Traffic, clock: Clock, exposition: Exposition, readiness: Readiness
    ) -> None:
        self._board = boards.models
        self._training = boards.training
        self._traffic = traffic
        self._clock = clock
        self._exposition = exposition
        self._readiness = readiness
        self._document = orjson.dumps(document())

    async def healthz(self, request: web.Request) -> Health:  # noqa: ARG002 - all operations take a request
        """The process lives: it answers."""
        return Health(status="ok", version=importlib.metadata.version("relume"))

    async def readyz(self, request: web.Request) -> web.Response:  # noqa: ARG002 - as above
        """Whether it can do its work."""
        missing = list(self._readiness.missing())
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        shape = ReadinessShape(ready=not missing, missing=missing, troubles=list(self._readiness.troubles()))
        return web.json_response(shape.model_dump(mode="json", by_alias=True), status=status)

    async def metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002 - as above
        """Prometheus's exposition."""
        return web.Response(body=await self._exposition.text(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def openapi(self, request: web.Request) -> web.Response:  # noqa: ARG002 - as above
        """The document that `docs/reference/openapi.yaml` holds too."""
        return web.Response(body=self._document, content_type="application/json")

    async def top(self, request: web.Request) -> Top:
        """The load now."""
        queries.check_known(request, ())
        now, rows = self._clock.now(), []
        async for item in items_in_breaths(self._board, self._traffic, self._clock):
            entry = self._board.entry(item.metadata.name)
            if entry is not None:
                rows.append(_row(item, entry, now))
        granted: list[ReplicaGrant | MemberGrant] = [
            *(replica for grant in self._board.grants().values() for replica in grant.replicas),
            *(member for job in self._training.grants().values() for member in job.members),
        ]
        nodes = [
            _node(node, [one for one in granted if one.placement.node == node.node]) for node in self._board.nodes()
        ]
        return Top(at=format_instant(now), models=rows, nodes=nodes)


def _row(item: ModelItem, entry: ModelBoard, now: Instant) -> TopRow:
    status = item.status
    windows = [window for window in entry.windows.values() if window.uid == item.metadata.uid]
    fresh = [window for window in windows if now - window.ended_at <= FRESH]
    sketch = None
    for window in fresh:
        sketch = window.first_byte if sketch is None else merged(sketch, window.first_byte)
    return TopRow(
        model=item.metadata.name, state=status.state, ready_replicas=status.ready_replicas, replicas=status.replicas,
        wish=status.wish, held_requests=status.held_requests, running_requests=status.running_requests,
        arrivals_per_second=_rate(windows, fresh, lambda window: window.arrivals),
        tokens_out_per_second=_rate(windows, fresh, lambda window: window.tokens_out),
        first_byte_p50_seconds=None if sketch is None else quantile(sketch, 0.5),
        first_byte_p95_seconds=None if sketch is None else quantile(sketch, 0.95),
    )  # fmt: skip


def _rate(
    windows: Sequence[RequestWindow], fresh: Sequence[RequestWindow], count: Callable[[RequestWindow], int]
) -> float | None:
    """Per second over fresh windows; zero when all are old (idle gateways are silent); None before the first."""
    if not windows:
        return None
    return round(sum(count(one) / max(one.ended_at - one.started_at, 0.001) for one in fresh), 3)


def _node(node: CardsObserved, granted: Sequence[ReplicaGrant | MemberGrant]) -> NodeRow:
    cards = {card.id: card for card in node.cards}
    held = [share_of_gpu(cards[gpu], one.resources) for one in granted for gpu in one.placement.gpus if gpu in cards]
    return NodeRow(
        node=node.node, cpu=node.cpu, cpu_granted=round(sum(one.resources.cpu for one in granted), 3),
        memory_bytes=node.memory_bytes, memory_granted_bytes=sum(one.resources.memory_bytes for one in granted),
        gpus=round(sum(map(part_of_gpu, node.cards)), 2), gpus_granted=round(sum(held), 2),
    )  # fmt: skip
