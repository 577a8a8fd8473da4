"""The board of training: a fold of states, bounded, whatever comes late or twice."""

from __future__ import annotations

from dataclasses import replace

from deploy.api.reclaim_status import reclaim_item
from deploy.api.training_board import TrainingBoard
from events.clock import SimulatedClock
from events.types.accounts import OpenRun, TrainingAccounted
from events.types.training import Ending
from events.units import Instant
from events.writer import EventWriter
from tests.support.training_events import AT, declared, ended, granted, observed, reclaim, resumed

WRITER = EventWriter("relume/test", SimulatedClock())
NOW = Instant(AT + 100)


def board(*data: object, most_ended: int = 1000) -> TrainingBoard:
    """A board that took these, at offsets 0, 1, 2, …"""
    made = TrainingBoard(most_ended)
    for offset, one in enumerate(data):
        made.apply(WRITER.envelope(one), offset)
    return made


def test_a_declaration_never_gives_way_to_an_earlier_one() -> None:
    """Our own write is shown at once; what the subscription delivers late does not bring the past back."""
    made = TrainingBoard()
    made.apply(WRITER.envelope(declared(generation=2)), 5)
    made.apply(WRITER.envelope(declared()), 4)
    item = made.item("tune", NOW)
    assert item is not None
    assert item.metadata.generation == 2


def test_what_is_deleted_is_shown_until_its_cards_are_empty() -> None:
    """A deleted job that still ends is there; once its cards were seen empty it is gone, and comes back as another."""
    made = board(declared(), granted(), observed(), declared(deleted=True))
    assert made.names() == ["tune"]
    made.apply(WRITER.envelope(ended(Ending.SAVED)), 9)
    assert (made.names(), made.item("tune", NOW), dict(made.grants())) == ([], None, {})
    made.apply(WRITER.envelope(declared(uid="v", generation=1)), 10)
    item = made.item("tune", NOW)
    assert item is not None
    assert (item.metadata.uid, item.status.run) == ("v", 0)


def test_a_grant_alone_is_no_job() -> None:
    """A name that nobody declared is not listed."""
    assert board(granted(), observed()).names() == []


def test_members_are_those_that_were_granted_or_seen() -> None:
    """Before the first grant they are those that are declared."""
    assert board(declared()).members("tune") == ["tune-0"]
    assert board(declared(), granted(members=2), observed()).members("tune") == ["tune-0", "tune-1"]
    assert board().members("tune") == []


def test_a_reclaim_that_ended_stays_so() -> None:
    """What is told late of one that ended does not open it again; each is there once."""
    made = board(declared(), resumed(), reclaim())
    assert [(one.id, one.state) for one in made.reclaims()] == [("r1", "resumed")]
    assert made.reclaim("r2") is None


def test_reclaims_that_ended_are_bounded() -> None:
    """The newest are kept, and those that go on are not counted."""
    many = [resumed(f"r{number}") for number in range(5)]
    made = board(*many, reclaim(name="open"), most_ended=2)
    assert len(made.reclaims()) == 3
    assert made.reclaims()[-1].id == "open"


def test_preemptions_are_counted_by_uid() -> None:
    """Only those that cost the job its cards count: not one that was skipped, nor one that only saves yet, nor a
    person's pause."""
    made = board(
        declared(), resumed("a"), resumed("b"), resumed("old", job_uid="before"), reclaim("skipped", "c", ended=True),
        reclaim("saving", "d"), reclaim("stopping", "e"), resumed("by-hand", shortage=""),
    )  # fmt: skip
    item = made.item("tune", NOW)
    assert item is not None
    assert item.status.preemptions == 3
    assert item.status.gpu_seconds_lost == {"save": 5.5, "drain": 2.0, "restore": 10.0}


async def test_goodput_is_what_is_on_record_and_what_was_seen_since() -> None:
    """Of earlier runs only the record tells; the newest run is added to it. Of another job of the name nothing counts,
    and with the job its account is forgotten."""
    record = TrainingAccounted(
        job="tune", uid="u", run=1, parts={"kept": 40_000_000, "save": 2_000_000, "word of another release": 1},
        open=OpenRun(since=round(1000 * (AT + 10)), milli=1000, trained=1, reports=True),
    )  # fmt: skip
    made = board(declared(), granted(), record, observed())
    item = made.item("tune", NOW)
    assert item is not None
    assert item.status.goodput.gpu_seconds == {"kept": 40.0, "going": 90.0, "save": 2.0}
    assert item.status.goodput.held_gpu_seconds == 132.0
    assert item.status.goodput.ratio == round(130 / 132, 6)
    assert sum((await made.goodput(NOW)).values()) == 132_000_000
    fresh = board(declared(uid="v"), record).item("tune", NOW)
    assert fresh is not None
    assert (fresh.status.goodput.ratio, fresh.status.goodput.held_gpu_seconds) == (None, 0.0)
    made.apply(WRITER.envelope(declared(deleted=True)), 8)
    made.apply(WRITER.envelope(ended(Ending.SAVED)), 9)
    assert await made.goodput(NOW) == {}


def test_a_reclaim_with_a_time_beyond_the_calendar_is_shown() -> None:
    """One wrong number in the log hides no other reclaim: such a time is shown as the end of the year 9999."""
    shown = reclaim_item(replace(reclaim(), due=1e14))
    assert shown.status.due == "9999-12-31T23:59:59.000000Z"
