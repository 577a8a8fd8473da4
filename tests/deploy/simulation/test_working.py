"""Requests that slow each other while they run; nodes, and what is busy beside one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.simulation.nodes import Nodes
from deploy.simulation.request_policies import read_typed
from deploy.simulation.requests import RequestTrace, Rows
from deploy.simulation.running import Run, Simulation
from deploy.simulation.setting import Service, Setting, Slowness, Starting
from deploy.simulation.setting_text import BadSetting, read_setting

ALONE = Setting(
    service=Service(base=0.0, crowding=1.0), starting=Starting(seconds=10.0, spread=0.0), slots=8, max_replicas=1,
    sharing=True,
)  # fmt: skip
"""n at once take n times as long: a processor that is shared evenly."""


def trace(*requests: tuple[float, float, str]) -> RequestTrace:
    """(arrival, seconds alone, model)."""
    rows = Rows.empty()
    for arrived, seconds, model in requests:
        rows.add(arrived, model, (0, 0), seconds)
    return rows.trace()


def run(given_: RequestTrace, setting: Setting) -> tuple[Run, list[tuple[float, int]]]:
    """What came of it, and when each request ended, in order."""
    policy = read_typed("relume:slo=0").resolve(setting)
    simulated = Simulation(given_, dict.fromkeys(given_.names, policy), setting)
    ended: list[tuple[float, int]] = []
    due = simulated._work.due

    def told(now: float):  # type: ignore[no-untyped-def] # as the one that it wraps
        found = due(now)
        ended.extend((now - 1_600_000_000.0, request) for request, _ in found)
        return found

    simulated._work.due = told  # type: ignore[method-assign]  # a test hears what becomes due
    return simulated.run(), ended


def test_who_comes_later_slows_who_is_there() -> None:
    """Ten seconds alone, begun at 10. At 15 another of five comes: five are left of each, shared: both end at 25."""
    _, ended = run(trace((0.0, 10.0, "m"), (15.0, 5.0, "m")), ALONE)
    assert ended == [(pytest.approx(25.0), 0), (pytest.approx(25.0), 1)]
    _, fixed = run(trace((0.0, 10.0, "m"), (15.0, 5.0, "m")), replace(ALONE, sharing=False))
    assert fixed == [(pytest.approx(20.0), 0), (pytest.approx(25.0), 1)]


def test_who_is_alone_takes_as_long_either_way() -> None:
    """Nobody beside it: sharing changes nothing."""
    alone = trace((0.0, 4.0, "m"), (30.0, 4.0, "m"), (60.0, 4.0, "m"))
    shared, fixed = run(alone, ALONE), run(alone, replace(ALONE, sharing=False))
    assert [at for at, _ in shared[1]] == pytest.approx([at for at, _ in fixed[1]])
    assert list(shared[0].first) == pytest.approx(list(fixed[0].first))


def test_an_engine_that_slows_slows_what_runs() -> None:
    """Half way through, twice as slow: four seconds become six."""
    slows = replace(ALONE, slowness=(Slowness(12.0, 2.0),))
    _, ended = run(trace((0.0, 4.0, "m")), slows)
    assert ended == [(pytest.approx(16.0), 0)]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(10.5, 40.0), st.floats(0.1, 9.0)), min_size=1, max_size=8))
def test_a_shared_processor_does_all_the_work_there_is(requests: list[tuple[float, float]]) -> None:
    """n at once take n times as long, so the last ends when all work is done, whatever the order: never sooner, and
    without a gap while anything runs."""
    given_ = trace((0.0, 0.001, "m"), *((at, seconds, "m") for at, seconds in requests))
    _, ended = run(given_, ALONE)
    assert len(ended) == len(given_)
    done = 0.0
    for arrived, seconds in sorted(requests):
        done = max(done, arrived) + seconds
    assert max(at for at, _ in ended) == pytest.approx(max(done, 10.001), abs=1e-3)


def test_neighbours_on_a_node_slow_each_other() -> None:
    """Two models on one node with half more for each other busy one; on nodes of their own they do not meet."""
    both = trace((0.0, 10.0, "a"), (0.0, 10.0, "b"))
    beside = replace(ALONE, neighbours=0.5, nodes=(2,))
    assert [at for at, _ in run(both, beside)[1]] == pytest.approx([25.0, 25.0])
    apart = replace(beside, nodes=(1, 1))
    assert [at for at, _ in run(both, apart)[1]] == pytest.approx([20.0, 20.0])
    later = trace((0.0, 10.0, "a"), (5.0, 5.0, "b"))
    assert [at for at, _ in run(later, beside)[1]] == pytest.approx([22.5, 22.5])


def test_a_replica_is_on_one_node() -> None:
    """Four GPUs in all, and no node with four: nothing of four starts. The node that fits best is taken."""
    whole = replace(ALONE, nodes=(2, 2), gpus_each=4)
    assert run(trace((0.0, 1.0, "m")), whole)[0].cost.starts == 0
    nodes = Nodes(replace(ALONE, nodes=(8, 2, 4), gpus_each=2))
    assert [nodes.take() for _ in range(4)] == [1, 2, 2, 0]
    nodes.give(1)
    assert nodes.take() == 1
    heap = Nodes(replace(ALONE, gpus=3, gpus_each=2))
    assert (heap.room, heap.take(), heap.room) == (True, None, False)


def test_a_curve_between_its_points() -> None:
    """Straight lines between points; what is below the first and above the last is as they are."""
    service = Service(curve=((1, 1.0), (5, 2.0), (9, 10.0)))
    assert [service.slow(running) for running in (1, 3, 5, 7, 9, 50)] == [1.0, 1.5, 2.0, 6.0, 10.0, 10.0]
    assert Service(crowding=0.1).slow(3) == pytest.approx(1.2)


def test_as_it_is_typed() -> None:
    """What is written is what is set, and what is wrong says what would be right."""
    setting = read_setting(["sharing=on", "curve=1:1,8:1.4", "nodes=2x8+1x4", "neighbours=0.05"], 0)
    assert (setting.sharing, setting.service.curve) == (True, ((1, 1.0), (8, 1.4)))
    assert (setting.nodes, setting.neighbours) == ((8, 8, 4), 0.05)
    for wrong in ("sharing=yes", "curve=1", "curve=2:1,1:2", "curve=1:0", "nodes=8", "nodes=0x8", "neighbours=-1"):
        with pytest.raises(BadSetting):
            read_setting([wrong], 0)
