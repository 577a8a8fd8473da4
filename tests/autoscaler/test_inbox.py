"""News that waits to be folded: by model, in order, an edge ahead of others."""

from __future__ import annotations

from autoscaler.inbox import WAITING_MOST, Inbox
from events.clock import SimulatedClock
from events.log import Position, Record
from events.names import Topic
from events.types.requests import ActivationRequested
from events.units import Instant
from events.writer import EventWriter

WRITER = EventWriter("relume/test", SimulatedClock())


def record(model: str, offset: int) -> Record:
    """What is in it does not matter here."""
    data = ActivationRequested(model=model)
    return Record(Position(Topic.REQUESTS, 0, offset), Instant(1.0), WRITER.envelope(data))


def offsets(records: list[Record]) -> list[int]:
    return [one.position.offset for one in records]


def test_each_models_records_keep_their_order() -> None:
    """Whole models are taken, the one that waits longest first."""
    inbox = Inbox()
    for offset, model in enumerate("abacb"):
        inbox.put(record(model, offset))
    assert offsets(list(inbox.take(3))) == [0, 2, 1, 4]
    assert len(inbox) == 1
    assert offsets(list(inbox.take(3))) == [3]
    assert len(inbox) == 0


def test_an_edge_takes_only_its_own_model_along() -> None:
    """What waits of the model goes before it; others stay."""
    inbox = Inbox()
    for offset, model in enumerate("aba"):
        inbox.put(record(model, offset))
    assert offsets(inbox.with_all_before(record("a", 3))) == [0, 2, 3]
    assert offsets(inbox.with_all_before(record("c", 4))) == [4]
    assert offsets(list(inbox.take(9))) == [1]


def test_a_full_inbox_says_so() -> None:
    """So that no more is read until there is room."""
    inbox = Inbox()
    for offset in range(WAITING_MOST):
        assert not inbox.full
        inbox.put(record(f"m{offset % 100}", offset))
    assert inbox.full
    list(inbox.take(1))
    assert not inbox.full
