"""Events of the log for readers outside: as lines of JSON and as server-sent events; and events that they tell us."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import orjson
from aiohttp import web

from deploy.api import queries
from deploy.api.following import Form, Streams
from deploy.api.problem import bad_parameter, refuse
from deploy.api.route import NDJSON, SSE
from deploy.api.shapes import Accepted, FieldProblem
from events.clock import Clock
from events.codec import Rejected, decode_structured, encode_structured
from events.dead_letters import letter
from events.envelope import AnyEnvelope, Envelope
from events.foreign import FOREIGN
from events.kinds import KINDS
from events.log import Batch, EventLog, Record, Start
from events.names import model_key
from events.units import Instant, parse_instant

MAX_BATCH: Final = 1000
"""Most events of one POST."""

ADMIN_TOPIC: Final = "POST /v1alpha1/events"
"""What dead letters say of events that were refused here: they had no topic yet."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a reader wants. `seen`: (topic, partition) → offset up to which it has read already."""

    topics: tuple[str, ...]
    start: Start
    model: str | None = None
    seen: tuple[str, int, int] | None = None

    def takes(self, record: Record) -> bool:
        """Whether the reader wants this record."""
        if self.seen is not None:
            topic, partition, offset = self.seen
            place = record.position
            if (place.topic, place.partition) == (topic, partition) and place.offset <= offset:
                return False
        if self.model is None:
            return True
        envelope = record.envelope
        return envelope.key == model_key(self.model) or getattr(envelope.data, "model", None) == self.model


class Events:
    """The operations on events."""

    def __init__(self, log: EventLog, clock: Clock, streams: Streams) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams

    async def list_events(self, request: web.Request) -> web.StreamResponse:
        """CloudEvents, one a line: what stands in the log, or with `follow` also what comes."""
        queries.check_known(request, ("topic", "model", "from", "limit", "follow"))
        follow = queries.flag(request, "follow")
        limit = queries.number(request, "limit", 0, most=10**9)
        selection = Selection(
            topics=queries.topics(request),
            start=_start(request.query.get("from", "now" if follow else "beginning")),
            model=request.query.get("model"),
        )
        return await self._streams.serve(request, LINES, self._lines(selection, follow, limit))

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, without end."""
        queries.check_known(request, ("topic", "model", "from"))
        start, seen = _start(request.query.get("from", "now")), None
        if last := request.headers.get("Last-Event-ID"):
            start, seen = _resume(last)
        selection = Selection(queries.topics(request), start, request.query.get("model"), seen)
        return await self._streams.serve(request, SERVER_SENT, self._sse(selection))

    async def append_events(self, request: web.Request) -> Accepted:
        """Take events of foreign producers; refuse the whole batch when one is wrong."""
        raw = await request.read()
        envelopes, problems = [], []
        for index, one in enumerate(_split(raw)):
            read = decode_structured(one, self._clock.now())
            if isinstance(read, Envelope):
                _check_foreign(read)
                envelopes.append(read)
            else:
                problems.append(
                    FieldProblem(
                        path=f"[{index}]",
                        rule=read.reason,
                        remedy="see docs/how-to/events.md and docs/reference/events/",
                    )
                )
                if isinstance(read, Rejected):
                    await self._log.append([letter(read, ADMIN_TOPIC, one, self._clock.now())])
        if problems:
            detail = f"nothing was appended: {len(problems)} of the events cannot be read"
            raise refuse(HTTPStatus.BAD_REQUEST, "bad-event", detail, fields=problems)
        await self._log.append(envelopes)
        return Accepted(appended=len(envelopes), ids=[envelope.id for envelope in envelopes])

    async def _lines(self, selection: Selection, follow: bool, limit: int) -> AsyncGenerator[bytes, None]:
        left = limit or None
        async with aclosing(self._batches(selection)) as batches:
            async for batch in batches:
                records = [record for record in batch.records if selection.takes(record)] if batch else []
                lines = [encode_structured(record.envelope) + b"\n" for record in records[:left]]
                yield b"".join(lines)
                if left is not None:
                    left -= len(lines)
                if left == 0 or (batch and batch.caught_up and not follow):
                    return

    async def _sse(self, selection: Selection) -> AsyncGenerator[bytes, None]:
        yield b"retry: 2000\n: relume\n\n"
        async with aclosing(self._batches(selection)) as batches:
            async for batch in batches:
                if batch is None:
                    yield b": quiet\n\n"
                else:
                    yield b"".join(_event(record) for record in batch.records if selection.takes(record))

    async def _batches(self, selection: Selection) -> AsyncGenerator[Batch | None, None]:
        subscription = self._log.subscribe(selection.topics, selection.start)
        try:
            async with aclosing(self._streams.ticking(aiter(subscription))) as batches:
                async for batch in batches:
                    yield batch
        finally:
            await subscription.close()


def _start(text: str) -> Start:
    if text == "beginning":
        return Start("beginning")
    if text == "now":
        return Start("end")
    try:
        return Start("time", parse_instant(text))
    except ValueError as error:
        raise bad_parameter("from", text, "beginning, now, or a time such as 2026-11-29T18:53:42Z") from error


def _event(record: Record) -> bytes:
    """One server-sent event. Its id holds the append time and the place, so that a reader can go on there."""
    place = record.position
    ident = f"{record.appended_at!r}/{place.topic}/{place.partition}/{place.offset}"
    kind = KINDS[type(record.envelope.data)].full_name
    return f"id: {ident}\nevent: {kind}\ndata: ".encode() + encode_structured(record.envelope) + b"\n\n"


def _resume(ident: str) -> tuple[Start, tuple[str, int, int]]:
    try:
        at, topic, partition, offset = ident.split("/")
        return Start("time", Instant(float(at))), (topic, int(partition), int(offset))
    except ValueError as error:
        raise bad_parameter("Last-Event-ID", ident, "the id of an event of this stream") from error


def _split(raw: bytes) -> Sequence[bytes]:
    """The events of a body: one object, or an array of them."""
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise refuse(HTTPStatus.BAD_REQUEST, "bad-json", f"the body is not JSON: {error}") from error
    if not isinstance(parsed, list):
        return [raw]
    if len(parsed) > MAX_BATCH:
        raise refuse(HTTPStatus.BAD_REQUEST, "batch-too-large", f"{len(parsed)} events; the most is {MAX_BATCH}")
    return [orjson.dumps(one) for one in parsed]


def _check_foreign(envelope: AnyEnvelope) -> None:
    if isinstance(envelope.data, FOREIGN):
        return
    raise refuse(
        HTTPStatus.FORBIDDEN, "not-yours", f"{type(envelope.data).__name__} has one writer, inside relume",
        remedy="declare, delete and scale models with their own operations; tell demand, backlogs and signals here",
    )  # fmt: skip


def _last_event(reason: str) -> bytes:
    return orjson.dumps({
        "specversion": "1.0", "type": "relume.stream.cut.v1", "source": "relume/admin", "id": "cut",
        "data": {"reason": reason},
    })  # fmt: skip


def _cut_line(reason: str) -> bytes:
    return _last_event(reason) + b"\n"


def _cut_event(reason: str) -> bytes:
    return b"event: relume.stream.cut.v1\ndata: " + _last_event(reason) + b"\n\n"


LINES: Final = Form(NDJSON, _cut_line)
SERVER_SENT: Final = Form(SSE, _cut_event)
