"""What stands on the topics of work, as arrivals for the clerk: checked once, with the deadline that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from events.envelope import AnyEnvelope
from events.types.inference import FailureReason, InferenceParked, InferenceRequested, Origin
from events.units import Instant, parse_instant
from events.work import Unreadable, WorkItem
from runtime.core.inference.endings import Dead
from runtime.core.inference.errand import Arrival
from runtime.inference.settings import REQUEST_BYTES, InferenceSettings

_PATHS: Final = ("/v1/", "/v2/")
"""What the data port serves, asynchronous requests may ask for."""

_NOTHING: Final = InferenceRequested(body={})


@dataclass(frozen=True, slots=True)
class Found:
    """An arrival; `why` it cannot be sent, or None."""

    arrival: Arrival
    why: Dead | None = None


def read_item(item: WorkItem, settings: InferenceSettings) -> Found | None:
    """What a record asks for; None: it is no request."""
    if item.unreadable is not None:
        return _unreadable(item, item.unreadable)
    if item.envelope is None:
        return None
    match item.envelope.data:
        case InferenceRequested() as requested:
            return _requested(item, item.envelope, requested, settings)
        case InferenceParked() as parked:
            return _parked(item, parked, settings)
    return None


def _requested(
    item: WorkItem, envelope: AnyEnvelope, requested: InferenceRequested, settings: InferenceSettings
) -> Found:
    position = item.position
    origin = Origin(
        id=envelope.id, source=envelope.source, topic=position.topic, partition=position.partition,
        offset=position.offset,
    )  # fmt: skip
    size = len(orjson.dumps(requested.body))
    deadline, why = _deadline(requested, item.appended_at, settings)
    arrival = Arrival(
        place=item.place, offset=position.offset, origin=origin, model=envelope.key,
        caller=requested.caller or envelope.source, requested=requested, since=item.appended_at, deadline=deadline,
        size=size,
    )  # fmt: skip
    return Found(arrival, why or _fault(requested, size, settings))


def _parked(item: WorkItem, parked: InferenceParked, settings: InferenceSettings) -> Found:
    deadline, why = _deadline(parked.requested, Instant(parked.since), settings)
    arrival = Arrival(
        place=item.place, offset=item.position.offset, origin=parked.origin, model=parked.model,
        caller=parked.requested.caller or parked.origin.source, requested=parked.requested,
        since=Instant(parked.since), deadline=deadline, size=len(orjson.dumps(parked.requested.body)), parked=True,
        not_before=Instant(parked.not_before or 0.0), attempts=parked.attempts, parks=parked.parks,
    )  # fmt: skip
    return Found(arrival, why)


def _unreadable(item: WorkItem, unreadable: Unreadable) -> Found:
    position = item.position
    origin = Origin(
        id=unreadable.id, source=unreadable.source, topic=position.topic, partition=position.partition,
        offset=position.offset,
    )  # fmt: skip
    arrival = Arrival(
        place=item.place, offset=position.offset, origin=origin, model=unreadable.key, caller=unreadable.source,
        requested=_NOTHING, since=item.appended_at, deadline=item.appended_at,
    )  # fmt: skip
    reason = FailureReason.UNSUPPORTED_VERSION if unreadable.newer else FailureReason.INVALID
    return Found(arrival, Dead(reason, unreadable.why))


def _deadline(
    requested: InferenceRequested, since: Instant, settings: InferenceSettings
) -> tuple[Instant, Dead | None]:
    """By our clock and the log's time of append: a producer's clock does not matter, its deadline does."""
    policy = settings.policy
    if requested.deadline is None:
        return Instant(since + policy.longest_wait), None
    try:
        deadline = parse_instant(requested.deadline)
    except ValueError as error:
        return since, Dead(FailureReason.INVALID, f"deadline: {error}")
    return Instant(min(deadline, since + policy.latest_deadline)), None


def _fault(requested: InferenceRequested, size: int, settings: InferenceSettings) -> Dead | None:
    path = requested.path
    if not path.startswith(_PATHS) or not path.isascii() or any(letter <= " " for letter in path):
        return Dead(FailureReason.INVALID, f"path: must begin with /v1/ or /v2/, got {path[:80]!r}")
    if size > REQUEST_BYTES:
        return Dead(FailureReason.INVALID, f"body: has {size} bytes; the most is {REQUEST_BYTES}")
    if requested.reply_topic is not None and requested.reply_topic not in settings.reply_topics:
        message = f"replyTopic: {requested.reply_topic!r} is not allowed; name it in inference_reply_topics"
        return Dead(FailureReason.REPLY_TOPIC, message)
    return None
