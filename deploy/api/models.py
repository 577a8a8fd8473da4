"""The operations on models, replicas and decisions."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from pydantic import ValidationError

from deploy.api import queries
from deploy.api.board import Board, items_in_breaths, levels_of
from deploy.api.coldstarts import report, told_of
from deploy.api.declaring import MAX_FOR
from deploy.api.fronting import Declarer
from deploy.api.ports import Explainer, Traffic
from deploy.api.problem import bad_parameter, refuse, unknown
from deploy.api.promises import sentence
from deploy.api.shapes import (
    ApplyResult,
    DeadLetterItem,
    DeadLetterList,
    DecisionItem,
    DecisionList,
    Deleted,
    ExplainResult,
    FieldProblem,
    ModelItem,
    ReplicaItem,
    ReplicaItemStatus,
    ReplicaList,
    ReplicaMetadata,
    ReplicaSpec,
    ScaleBody,
)
from deploy.api.status import phase_times
from deploy.spec.problem import shown
from events.clock import Clock
from events.fence import Owners
from events.log import EventLog, Query, Record
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.letters import EventRejected
from events.types.models import Override
from events.types.replicas import ReplicaStatus
from events.units import Instant, format_instant, parse_duration

Wanted = Callable[[Record], bool]

SPANS: Final = (600.0, 6 * 3600.0, 86400.0)
"""Seconds of history that are read, one after the other, until enough was found; then all of it."""


class Models:
    """Declared models: list, read, apply, delete, scale, explain."""

    def __init__(self, board: Board, declarations: Declarer, traffic: Traffic, clock: Clock) -> None:
        self._board = board
        self._declarations = declarations
        self._traffic = traffic
        self._clock = clock

    async def list_models(self, request: web.Request) -> web.Response:
        """All of them, by name (`ModelList`, written piece by piece, since requests run on the same loop)."""
        queries.check_known(request, ())
        items = items_in_breaths(self._board, self._traffic, self._clock)
        pieces = [item.model_dump_json(by_alias=True).encode() async for item in items]
        return web.Response(body=b'{"items":[' + b",".join(pieces) + b"]}", content_type="application/json")

    async def get_model(self, request: web.Request) -> ModelItem:
        """One, by name or alias."""
        queries.check_known(request, ())
        return self._item(request.match_info["name"])

    async def apply_models(self, request: web.Request) -> ApplyResult:
        """The older name of `apply`."""
        return await self.apply(request)

    async def apply(self, request: web.Request) -> ApplyResult:
        """Declare the documents of the body, of any kind."""
        queries.check_known(request, ("dryRun",))
        dry_run = queries.flag(request, "dryRun")
        return await self._declarations.apply_text(await request.read(), dry_run=dry_run)

    async def delete_model(self, request: web.Request) -> Deleted:
        """Declare one no longer. An alias is not enough to delete by."""
        queries.check_known(request, ())
        return Deleted(metadata=await self._declarations.delete(request.match_info["name"]))

    async def scale_model(self, request: web.Request) -> ModelItem:
        """Set a person's number of replicas for a while."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        body = _scale_body(await request.read())
        until = Instant(self._clock.now() + _how_long(body.for_))
        await self._declarations.scale(name, Override(replicas=body.replicas, until=until, by="admin"))
        return self._item(name)

    async def unscale_model(self, request: web.Request) -> ModelItem:
        """Let the autoscaler decide again."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        await self._declarations.scale(name, None)
        return self._item(name)

    def _item(self, name: str) -> ModelItem:
        owner = self._board.owner(name)
        item = self._board.item(owner, levels_of(self._traffic), self._clock.now()) if owner else None
        if item is None:
            raise unknown("model", name, self._board.names())
        return item


class Replicas:
    """Replicas: list. (Their output is in `logs.py`.)"""

    def __init__(self, board: Board) -> None:
        self._board = board

    async def list_replicas(self, request: web.Request) -> ReplicaList:
        """All of them, or those of one model, by name."""
        queries.check_known(request, ("model",))
        wanted = request.query.get("model")
        model = self._board.owner(wanted) if wanted else None
        if wanted and model is None:
            raise unknown("model", wanted, self._board.names())
        return ReplicaList(
            items=[_replica(owner, one) for owner, one in self._board.replicas() if model in (None, owner)]
        )


class Decisions:
    """What was decided, why, and what could not be read."""

    def __init__(self, log: EventLog, board: Board, explainer: Explainer, clock: Clock) -> None:
        self._log = log
        self._board = board
        self._explainer = explainer
        self._clock = clock

    async def explain_model(self, request: web.Request) -> ExplainResult:
        """Why the last decision was taken."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        model = self._board.owner(name)
        if model is None:
            raise unknown("model", name, self._board.names())
        explanation = self._explainer.explain(model)
        if explanation is None:
            return ExplainResult(model=model, sentences=["Nothing was decided for this model yet."], facts={})
        promised = self._board.objectives(model)
        facts = dict(explanation.facts)
        if promised:
            facts["objectives"] = [one.model_dump(by_alias=True) for one in promised]
        entry = self._board.entry(model)
        started = None if entry is None else entry.cold_start
        sentences = [*explanation.sentences, *map(sentence, promised)]
        if started is not None:
            sentences.append(told_of(started))
            facts["coldStart"] = report((started,))[0].model_dump(by_alias=True)
        return ExplainResult(model=model, sentences=sentences, facts=facts)

    async def list_decisions(self, request: web.Request) -> DecisionList:
        """Recorded decisions, newest first."""
        queries.check_known(request, ("model", "limit"))
        model, limit = request.query.get("model"), queries.number(request, "limit", 100)
        model = self._board.owner(model) or model if model else None

        def wishes() -> Wanted:
            """Those that count: a writer that had lost its partition has decided nothing."""
            owners = Owners()

            def wanted(record: Record) -> bool:
                data = record.envelope.data
                return owners.admits(record) and isinstance(data, WishDecided) and model in (None, data.model)

            return wanted

        records = await self._newest(Topic.DECISIONS, limit, wishes)
        return DecisionList(items=[_decision(record) for record in records])

    async def list_dead_letters(self, request: web.Request) -> DeadLetterList:
        """Events that could not be read, newest first."""
        queries.check_known(request, ("limit",))
        limit = queries.number(request, "limit", 100)
        records = await self._newest(Topic.DEAD_LETTERS, limit, lambda: _is_letter)
        return DeadLetterList(items=[_letter(record.envelope.data) for record in records])

    async def _newest(self, topic: Topic, limit: int, judge: Callable[[], Wanted]) -> list[Record]:
        """The newest `limit` records, newest first, reading no more of the past than needed. Each reading is judged
        anew."""
        now = self._clock.now()
        found: list[Record] = []
        for since in (*(Instant(now - span) for span in SPANS), None):
            read = self._log.read(Query(topic, from_time=since))
            wanted = judge()
            found = [record async for record in read if wanted(record)]
            if len(found) >= limit:
                break
        return sorted(found, key=lambda record: (record.appended_at, record.position.offset), reverse=True)[:limit]


def _is_letter(record: Record) -> bool:
    return isinstance(record.envelope.data, EventRejected)


def _scale_body(raw: bytes) -> ScaleBody:
    try:
        return ScaleBody.model_validate_json(raw, strict=True)
    except ValidationError as error:
        fields = [
            FieldProblem(
                path=".".join(str(part) for part in one["loc"]), rule=one["msg"],
                value=None if one["type"] == "missing" else shown(one["input"]),
                remedy='write {"replicas": 2, "for": "10m"}',
            )
            for one in error.errors(include_url=False)
        ]  # fmt: skip
        detail = "the body does not say how many replicas for how long"
        raise refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "refused", detail, fields=fields) from error


def _how_long(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise bad_parameter("for", text, "a number and a unit, such as 10m") from error
    if not 0 < seconds <= MAX_FOR:
        raise bad_parameter("for", text, "more than nothing and at most 30d")
    return seconds


def _replica(model: str, replica: ReplicaStatus) -> ReplicaItem:
    return ReplicaItem(
        metadata=ReplicaMetadata(name=replica.replica),
        spec=ReplicaSpec(model=model, revision=replica.revision, node=replica.node, gpus=list(replica.gpus)),
        status=ReplicaItemStatus(
            state=replica.state.value,
            phase=replica.phase.value if replica.phase else None,
            reason=replica.reason,
            message=replica.message,
            address=replica.address,
            slots=replica.slots,
            pid=replica.pid,
            created_at=_time(replica.created_at),
            ready_at=_time(replica.ready_at),
            phases=phase_times(replica.phases),
        ),
    )


def _decision(record: Record) -> DecisionItem:
    envelope = record.envelope
    data: WishDecided = envelope.data
    return DecisionItem(
        id=envelope.id, time=format_instant(envelope.time), model=data.model, replicas=data.replicas,
        reasons=list(data.reasons), cause=envelope.cause, snapshot=dict(data.snapshot), policy=dict(data.policy),
        memory=dict(data.memory),
    )  # fmt: skip


def _letter(data: EventRejected) -> DeadLetterItem:
    return DeadLetterItem(
        topic=data.topic, partition=data.partition, offset=data.offset, reason=data.reason, type=data.type,
        source=data.source, raw=data.raw, raw_bytes=data.raw_bytes, at=format_instant(data.at),
    )  # fmt: skip


def _time(instant: float | None) -> str | None:
    return None if instant is None else format_instant(instant)
