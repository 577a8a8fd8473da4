"""Policies at equal cost: what counts of each, what is read between two points, and that all are tried as often."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.simulation.frontier import (
    COSTS,
    SWEEPS,
    TRIED,
    Point,
    as_json,
    equal_costs,
    frontier,
    frontiers,
    kept_at,
    swept,
)
from deploy.simulation.frontier_page import page_text
from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Task
from deploy.simulation.requests import Rows
from deploy.simulation.setting import Setting
from events.units import Seconds


def point(cost: float, kept: float, policy: str = "p") -> Point:
    return Point(policy, cost, kept, (cost, cost), (kept, kept))


POINTS = [point(10.0, 0.5), point(20.0, 0.9), point(20.0, 0.8), point(15.0, 0.4), point(40.0, 0.9), point(30.0, 0.95)]


def test_what_another_beats_does_not_count() -> None:
    """Dearer is a point only if it keeps more; of two of one cost the better."""
    assert [(one.gpu_seconds, one.within_slo) for one in frontier(POINTS)] == [(10.0, 0.5), (20.0, 0.9), (30.0, 0.95)]
    assert frontier([]) == ()


@pytest.mark.parametrize(
    ("cost", "kept"),
    [(9.9, None), (10.0, 0.5), (15.0, 0.7), (20.0, 0.9), (25.0, 0.925), (30.0, 0.95), (1000.0, 0.95)],
)
def test_between_two_points_lines_are_straight(cost: float, kept: float | None) -> None:
    """Below the cheapest nothing is known; beyond the dearest it keeps what that keeps."""
    assert kept_at(frontier(POINTS), cost) == (None if kept is None else pytest.approx(kept))
    assert kept_at((), cost) is None


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1)), min_size=1, max_size=20), st.floats(1, 1e6))
def test_a_frontier_rises_and_no_point_is_above_it(pairs: list[tuple[float, float]], cost: float) -> None:
    """And what is read off it rises with the cost."""
    best = frontier([point(*pair) for pair in pairs])
    assert all(one.gpu_seconds < more.gpu_seconds and one.within_slo < more.within_slo for one, more in pairwise(best))
    for price, kept in pairs:
        at = kept_at(best, price)
        assert at is not None
        assert at >= kept - 1e-9
    one, more = kept_at(best, cost), kept_at(best, cost * 1.5)
    assert one is None or (more is not None and more >= one - 1e-12)


def test_costs_are_those_of_which_two_policies_tell() -> None:
    """In equal proportions up to the dearest point of any."""
    rows = equal_costs({"a": frontier(POINTS), "b": (point(15.0, 0.6), point(60.0, 0.99))})
    assert len(rows) == COSTS
    assert rows[0].gpu_seconds == 15.0
    assert rows[-1].gpu_seconds == 60.0
    assert rows[-1].within_slo == {"a": 0.95, "b": 0.99}
    steps = [more.gpu_seconds / one.gpu_seconds for one, more in pairwise(rows)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert [row.gpu_seconds for row in equal_costs({"a": (point(5.0, 0.5),)})] == [5.0]
    assert equal_costs({}) == ()


@pytest.mark.parametrize("slots", [1, 2, 16, 100])
def test_each_policy_is_tried_as_often_and_each_setting_can_be_declared(slots: int) -> None:
    """However many slots there are; a promise that is a knob follows the one that is judged by."""
    setting = Setting(slots=slots, slo=Seconds(2.0))
    for name, tried in SWEEPS.items():
        assert len(tried(name, setting)) == TRIED
        for typed in swept([read_typed(name)], setting):
            typed.resolve(setting)
    texts = [typed.text for typed in swept([read_typed("relume"), read_typed("relume:slo=4s")], setting)]
    assert "relume" in texts
    assert texts.count("relume:slo=4s") == 1


@pytest.mark.parametrize("most", [1, 2, 64])
def test_none_has_more_replicas_than_there_may_be(most: int) -> None:
    """Bounds that are tried are within the one that is set."""
    setting = Setting(max_replicas=most)
    for name in SWEEPS:
        bounds = {typed.resolve(setting).max_replicas for typed in swept([read_typed(name)], setting)}
        assert bounds == {*range(1, min(most, 3) + 1), most}


def test_what_has_settings_stays_as_it_is() -> None:
    """As do policies without knobs, and those of one's own."""
    typed = [read_typed(text) for text in ("kpa:target=8", "oracle", "hybrid-histogram", "mine:decide")]
    assert swept(typed, Setting()) == typed


def test_means_over_seeds() -> None:
    """With the least and the most of them; a line a policy, on the page too."""
    rows = Rows.empty()
    for at in range(200):
        rows.add(at * 0.5, "m", (0, 0), 4.0)
    typed = [read_typed(text) for text in ("relume:keepAlive=61s", "relume:keepAlive=5m", "kpa:target=8")]
    runs = [
        {one.text: Task(rows.trace(), one, Setting(seed=seed, settles=Seconds(600.0))).run() for one in typed}
        for seed in (0, 1)
    ]
    found = frontiers(typed, runs)
    assert set(found.frontiers) == {"relume", "kpa"}
    least, most = found.points["kpa"][0].gpu_seconds_range
    assert least < found.points["kpa"][0].gpu_seconds < most
    told = as_json(found)
    assert told["tried"] == {"relume": 2, "kpa": 1}
    assert told["seeds"] == 2
    page = page_text("<trace>", found)
    assert "&lt;trace&gt;" in page
    assert page.count("<polyline") == 2
    assert "kpa:target=8: " in page
