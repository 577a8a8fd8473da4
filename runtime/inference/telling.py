"""How errands end, as events. Their ids follow from the request: told twice, it is the same event."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from events.codec import Unencodable, to_binary
from events.envelope import AnyEnvelope, Envelope
from events.types.inference import FailureReason, InferenceChunk, InferenceFailed, InferenceParked
from events.units import Instant
from runtime.core.inference.endings import Answered, Copied, Dead, Ending, Parked, Settlement, answer_of
from runtime.core.inference.errand import Arrival, Errand, Ident
from runtime.inference.settings import LETTER_BYTES, SOURCE


def events_of(settlement: Settlement, now: Instant) -> list[AnyEnvelope]:
    """What is told of a settlement; nothing of a repetition."""
    errand = settlement.errand
    if errand is None:
        return []
    data = _data(errand, settlement.ending, now)
    if data is None:
        return []
    parks = f"/{errand.arrival.parks + 1}" if isinstance(data, InferenceParked) else ""
    kind = "parked" if parks else "outcome"
    return [_envelope(errand.arrival, f"{kind}/{_digest(errand.arrival.ident)}{parks}", data, now)]


def small_events_of(settlement: Settlement, now: Instant) -> list[AnyEnvelope]:
    """The same for one whose events cannot be written: a dead letter that says so, without the request."""
    try:
        told = events_of(settlement, now)
        for one in told:
            to_binary(one)
    except Unencodable as error:
        assert settlement.errand is not None
        arrival = settlement.errand.arrival
        reason = FailureReason.ANSWER_TOO_LARGE if isinstance(settlement.ending, Answered) else FailureReason.INVALID
        dead = _dead(settlement.errand, Dead(reason, str(error)[:1000]), now, repeat=False)
        return [_envelope(arrival, f"outcome/{_digest(arrival.ident)}", dead, now)]
    return told


def chunk(errand: Errand, index: int, data: str, now: Instant) -> AnyEnvelope:
    """A part of a streamed answer. It is the last one when `data` is what ends an event stream."""
    arrival = errand.arrival
    part = InferenceChunk(
        model=arrival.model, origin=arrival.origin, attempt=errand.attempts + 1, index=index, data=data,
        last=data == "[DONE]",
    )  # fmt: skip
    return _envelope(arrival, f"chunk/{_digest(arrival.ident)}/{errand.attempts + 1}/{index}", part, now)


def _data(errand: Errand, ending: Ending, now: Instant) -> object | None:
    arrival = errand.arrival
    match ending:
        case Answered():
            return answer_of(errand, ending)
        case Copied(answer=answer):
            return replace(answer, origin=arrival.origin, correlation_id=arrival.requested.correlation_id)
        case Dead():
            return _dead(errand, ending, now, repeat=arrival.size <= LETTER_BYTES)
        case Parked(why=why, not_before=not_before):
            return InferenceParked(
                model=arrival.model, origin=arrival.origin, requested=arrival.requested, since=arrival.since,
                not_before=not_before or None, attempts=errand.attempts, parks=arrival.parks + 1, why=why,
            )  # fmt: skip
    return None


def _dead(errand: Errand, ending: Dead, now: Instant, *, repeat: bool) -> InferenceFailed:
    arrival = errand.arrival
    requested = arrival.requested
    return InferenceFailed(
        model=arrival.model, origin=arrival.origin, reason=ending.reason, message=ending.message,
        status=ending.status, attempts=errand.attempts, failed_at=now,
        requested=requested if repeat and requested.body else None,
        idempotency_key=requested.idempotency_key, correlation_id=requested.correlation_id,
    )  # fmt: skip


def _envelope(arrival: Arrival, ident: str, data: object, now: Instant) -> AnyEnvelope:
    return Envelope(
        id=ident, source=SOURCE, subject=arrival.model, key=arrival.model, time=now, data=data, cause=arrival.origin.id
    )


def _digest(ident: Ident) -> str:
    """128 bits: a source and an id may be longer together than an id may be."""
    return hashlib.sha256("\0".join(ident).encode()).hexdigest()[:32]
