"""Reclaims of the past: read back from the log, page by page."""

from __future__ import annotations

import pytest

from deploy.api import past_reclaims
from deploy.api.past_reclaims import find, read_page
from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock
from events.types.reclaims import ReclaimChanged
from events.units import Instant
from events.writer import EventWriter
from tests.support.admin import Admin
from tests.support.training_events import reclaim, resumed


async def told(*reclaims: ReclaimChanged, every: float = 10.0) -> tuple[MemoryEventLog, Instant]:
    """A log with these, one every so often; and when the first was said."""
    clock = SimulatedClock()
    log, writer, began = MemoryEventLog(clock), EventWriter("relume/test", clock), clock.now()
    for one in reclaims:
        await log.append([writer.envelope(one)])
        await clock.advance(every)
    return log, began


def everyone(_: ReclaimChanged) -> bool:
    return True


async def test_pages_lead_through_all_of_them() -> None:
    """Each is on one page, as it stood last; where the page before begins is told until there is none."""
    log, began = await told(*(resumed(f"r{index}") for index in range(7)), reclaim("saving", "r9"), resumed("r2"))
    until, pages = None, []
    for _ in range(5):
        page = await read_page(log, (began, until), 3, everyone)
        pages.append([one.id for one in page.items])
        until = page.before
        if until is None:
            break
    assert pages == [["r6", "r9", "r2"], ["r3", "r4", "r5"], ["r0", "r1"]]


async def test_what_was_recorded_at_one_time_is_on_one_page() -> None:
    """A boundary between two of one instant would lose one of them."""
    clock = SimulatedClock()
    log, writer, began = MemoryEventLog(clock), EventWriter("relume/test", clock), clock.now()
    for names in (("a", "b"), ("c", "d", "e"), ("f",)):
        await log.append([writer.envelope(resumed(name)) for name in names])
        await clock.advance(1 / 3)
    page = await read_page(log, (began, None), 2, everyone)
    assert [one.id for one in page.items] == ["c", "d", "e", "f"]
    page = await read_page(log, (began, page.before), 2, everyone)
    assert ([one.id for one in page.items], page.before) == (["a", "b"], None)


async def test_a_span_and_a_choice() -> None:
    """From a time on, up to another, of one job only; what went on after that belongs to a later page."""
    log, began = await told(resumed("a"), reclaim("saving", "b"), resumed("c", job_uid="x"), resumed("b"))
    page = await read_page(log, (Instant(began + 5), Instant(began + 25)), 9, everyone)
    assert ([one.id for one in page.items], page.before) == (["c"], None)
    page = await read_page(log, (began, None), 9, lambda one: one.job_uid == "x")
    assert [one.id for one in page.items] == ["c"]
    assert (await read_page(log, (Instant(began + 99), None), 9, everyone)).items == ()


async def test_what_one_reading_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that the older ones are on the pages before."""
    monkeypatch.setattr(past_reclaims, "MOST_READ", 3)
    log, began = await told(*(resumed(f"r{index}") for index in range(5)))
    first = await read_page(log, (began, None), 9, everyone)
    assert [one.id for one in first.items] == ["r2", "r3", "r4"]
    second = await read_page(log, (began, first.before), 9, everyone)
    assert ([one.id for one in second.items], second.before) == (["r0", "r1"], None)


async def test_one_is_found_by_its_id() -> None:
    """As it stood last."""
    log, _ = await told(reclaim("saving", "r1"), resumed("r2"), resumed("r1"))
    one = await find(log, "r1")
    assert one is not None
    assert one.state == "resumed"
    assert await find(log, "r3") is None


async def test_the_admin_port_reads_them_back(admin: Admin) -> None:
    """Those that the board has let go are listed since a time, explained by id, and led to page by page."""
    admin.server.training._most_ended = 2
    for index in range(5):
        await admin.say(resumed(f"r{index}"))
    _, now = await admin.get("/v1alpha1/reclaims")
    assert len(now["items"]) == 2  # type: ignore[arg-type]  # what the test's client gives
    assert now["before"] is None
    status, page = await admin.get("/v1alpha1/reclaims?since=2020-01-01T00:00:00Z&limit=4")
    assert (status, len(page["items"])) == (200, 4)  # type: ignore[arg-type]  # as above
    assert (await admin.get("/v1alpha1/reclaims/r0/explain"))[0] == 200
    assert (await admin.get("/v1alpha1/reclaims/r9"))[0] == 404
    status, problem = await admin.get("/v1alpha1/reclaims?since=yesterday")
    assert (status, problem["type"]) == (400, "urn:relume:problem:bad-parameter")
