"""What stands on the topics of work becomes arrivals, and endings become events: one for one."""

from __future__ import annotations

from typing import Any

import pytest

from events.envelope import AnyEnvelope, Envelope
from events.log import Position
from events.names import Topic
from events.types.inference import (
    FailureReason,
    InferenceCompleted,
    InferenceFailed,
    InferenceParked,
    InferenceRequested,
)
from events.units import Instant, format_instant
from events.work import Unreadable, WorkItem
from runtime.core.inference.endings import Answered, Copied, Dead, Ending, Parked, Repeated, Settlement, answer_of
from runtime.core.inference.errand import Errand
from runtime.inference.reading import Found, read_item
from runtime.inference.settings import InferenceSettings
from runtime.inference.telling import events_of, small_events_of

NOW = Instant(1_700_000_000.0)
SETTINGS = InferenceSettings(gateway="g", reply_topics=frozenset({"shop.answers"}))


def item(data: object, topic: Topic = Topic.INFERENCE_REQUESTS) -> WorkItem:
    envelope = Envelope(id="r1", source="//shop", subject="llama", key="llama", time=Instant(1.0), data=data)
    return WorkItem(Position(topic, 2, 7), NOW, envelope)


def requested(**fields: Any) -> InferenceRequested:
    return InferenceRequested(**({"body": {"model": "llama"}} | fields))


def read(data: object, topic: Topic = Topic.INFERENCE_REQUESTS) -> Found:
    found = read_item(item(data, topic), SETTINGS)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("deadline", "counts"),
    [
        (None, NOW + 86_400),
        (format_instant(NOW + 60), NOW + 60),
        (format_instant(NOW + 30 * 86_400), NOW + 7 * 86_400),
        ("2001-01-01T00:00:00Z", 978_307_200.0),
    ],
)
def test_the_deadline_counts_from_the_append(deadline: str | None, counts: float) -> None:
    """Whatever the producer's clock says; far ones are cut."""
    found = read(requested(deadline=deadline))
    assert found.why is None
    assert found.arrival.deadline == pytest.approx(counts)
    assert found.arrival.since == NOW
    assert found.arrival.caller == "//shop"


@pytest.mark.parametrize(
    ("fields", "reason", "said"),
    [
        ({"path": "/etc/passwd"}, FailureReason.INVALID, "path: must begin"),
        ({"path": "/v1/chat completions"}, FailureReason.INVALID, "path: must begin"),
        ({"path": "/v1/\r\nHost: x"}, FailureReason.INVALID, "path: must begin"),
        ({"deadline": "tomorrow"}, FailureReason.INVALID, "deadline: 'tomorrow'"),
        ({"reply_topic": "relume.models"}, FailureReason.REPLY_TOPIC, "is not allowed"),
        ({"body": {"model": "llama", "x": "y" * (1 << 20)}}, FailureReason.INVALID, "the most is"),
    ],
)
def test_what_cannot_be_sent_says_why(fields: dict[str, Any], reason: FailureReason, said: str) -> None:
    """With the field, the rule and the value."""
    why = read(requested(**fields)).why
    assert why is not None
    assert why.reason is reason
    assert said in why.message


def test_an_allowed_reply_topic_is_none_of_them() -> None:
    """It was named in the settings."""
    assert read(requested(reply_topic="shop.answers")).why is None


def test_who_is_not_readable_but_named_gets_a_dead_letter() -> None:
    """A newer version says so."""
    unreadable = Unreadable("//shop", "r1", "llama", "newer than this release", newer=True)
    found = read_item(WorkItem(Position(Topic.INFERENCE_REQUESTS, 0, 1), NOW, None, unreadable), SETTINGS)
    assert found is not None
    assert found.why == Dead(FailureReason.UNSUPPORTED_VERSION, "newer than this release")
    assert found.arrival.ident == ("//shop", "r1")
    assert read_item(WorkItem(Position(Topic.INFERENCE_REQUESTS, 0, 1), NOW, None), SETTINGS) is None


def told(ending: Ending, **fields: Any) -> list[AnyEnvelope]:
    errand = Errand(1, read(requested(**fields)).arrival, NOW)
    return events_of(Settlement(errand.arrival.place, 7, errand, ending), NOW)


def test_a_parked_request_is_read_as_it_was() -> None:
    """Its first append, its origin, its attempts; and once more parked, another event."""
    (parked,) = told(Parked("waited", Instant(NOW + 3)), priority=2)
    assert isinstance(parked.data, InferenceParked)
    arrival = read(parked.data, Topic.INFERENCE_PARKED).arrival
    assert (arrival.parked, arrival.parks, arrival.since, arrival.not_before) == (True, 1, NOW, NOW + 3)
    assert (arrival.ident, arrival.requested.priority, arrival.origin.offset) == (("//shop", "r1"), 2, 7)
    errand = Errand(2, arrival, NOW)
    (again,) = events_of(Settlement(arrival.place, 0, errand, Parked("waited", Instant(0.0))), NOW)
    assert again.id != parked.id
    assert again.data.parks == 2


def test_an_outcome_has_one_id_whatever_it_is() -> None:
    """So a log that knows its events writes one of them; the cause is the request."""
    (good,), (dead,) = told(Answered(200, {"a": 1})), told(Dead(FailureReason.DEADLINE, "late"))
    assert good.id == dead.id
    assert (good.cause, good.key) == ("r1", "llama")
    assert isinstance(dead.data, InferenceFailed)
    assert dead.data.requested == requested()
    assert told(Repeated()) == []


def test_a_copied_answer_names_its_own_request() -> None:
    """The body is the other's; what it is correlated with is not."""
    errand = Errand(1, read(requested(correlation_id="mine")).arrival, NOW)
    answer = answer_of(errand, Answered(200, {"a": 1}))
    (copy,) = told(Copied(answer), correlation_id="yours")
    assert isinstance(copy.data, InferenceCompleted)
    assert (copy.data.body, copy.data.correlation_id) == ({"a": 1}, "yours")


def test_an_answer_that_cannot_be_written_becomes_a_small_letter() -> None:
    """It says so, and does not repeat the request."""
    errand = Errand(1, read(requested()).arrival, NOW)
    settlement = Settlement(errand.arrival.place, 7, errand, Answered(200, "x" * (1 << 20)))
    (letter,) = small_events_of(settlement, NOW)
    assert letter.data.reason is FailureReason.ANSWER_TOO_LARGE
    assert letter.data.requested is None
