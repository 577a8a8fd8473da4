"""An autoscaler that is behind its log: what it has not read is nobody's silence, and nothing else changes."""

from __future__ import annotations

import pytest

from autoscaler.core.gateways import BEHIND_FOR, Behind, Gateways, World
from autoscaler.core.signals import NO_SIGNALS
from autoscaler.core.sources import SILENCE
from autoscaler.core.windows import Windows
from events.types.gateways import GatewayBeat
from events.types.requests import Levels
from events.units import Instant, Seconds
from tests.support.autoscaling import T0, Run, declared, window

FAR = 45.0
"""Seconds behind the log, many times what a gateway may be silent."""


def at(seconds: float) -> Instant:
    """So long after T0."""
    return Instant(T0 + seconds)


@pytest.mark.parametrize(
    ("took", "now", "behind"),
    [
        ([], 0.0, 0.0),
        ([(0.0, 5.0)], 5.5, 5.0),
        ([(0.0, 5.0)], 5.0 + BEHIND_FOR, 0.0),  # nothing comes: not behind, or the log is away
        ([(0.0, 5.0), (4.9, 5.1)], 5.2, 5.0),  # an edge that was folded ahead says nothing of the rest
        ([(0.0, 5.0), (5.9, 6.1)], 6.2, 0.2),  # it has caught up
        ([(0.0, 5.0), (0.5, 6.5)], 7.0, 6.0),
        ([(3.0, 2.0)], 2.5, 0.0),  # a log whose clock is ahead
    ],
    ids=["nothing read", "read late", "nothing comes", "edge ahead", "caught up", "farther", "clock ahead"],
)
def test_how_far_behind(took: list[tuple[float, float]], now: float, behind: float) -> None:
    """By what was folded within the last second."""
    reader = Behind()
    for appended, folded in took:
        reader.took(at(appended), at(folded))
    assert reader.by(at(now)) == pytest.approx(behind)


def test_what_is_unread_is_no_silence() -> None:
    """Its levels stand for three seconds of what was read, and then the gateway is silent as ever."""
    windows, world = Windows(Seconds(60.0), Seconds(6.0)), World(Gateways(), at(-3600))
    windows.window("relume/gateway/g", window(at(-1), at(0), 1, 2), at(0), world)
    world.behind.took(at(0), at(FAR))
    demand = windows.measure(at(FAR), world, NO_SIGNALS)
    assert (demand.silent, demand.running, demand.waiting, demand.age) == (0, 1, 2, FAR)
    world.behind.took(at(2.5), at(FAR + 2.5))
    assert windows.measure(at(FAR + 2.6), world, NO_SIGNALS).silent == 0
    world.behind.took(at(SILENCE + 0.1), at(FAR + SILENCE + 0.1 + BEHIND_FOR))
    assert windows.measure(at(FAR + SILENCE + 0.2 + BEHIND_FOR), world, NO_SIGNALS).silent == 1


def test_it_wakes_a_model_however_far_behind() -> None:
    """An edge that is read late is acted on when it is read: its caller waits still."""
    run = Run(declared(), obey=False)
    run.advance(FAR)
    run.put(window(T0, T0, now=Levels(waiting=3)), "relume/gateway/g", at=T0)
    assert run.wish().replicas == 1
    assert run.wish().reasons == ("Activation", "Backlog")


def test_it_scales_with_the_log_and_takes_nothing_away() -> None:
    """Behind all along, by as much: replicas follow what is read; nothing falls for what is unread."""
    run, level = Run(declared(keepAlive="10s"), obey=True), 0
    run.advance(FAR)
    asked = []
    for second in range(60):
        level = 12 if second < 30 else 24
        run.put(window(T0 + second, T0 + second + 1, running=level), "relume/gateway/g", at=T0 + second + 1)
        run.advance(1.0)
        asked.append(run.wish().replicas)
    assert asked == sorted(asked)
    assert (asked[20], asked[-1]) == (3, 6)


def test_once_nothing_comes_any_more_the_gateway_is_silent() -> None:
    """The log is away while it is behind: as ever what is unknown holds, for as long as it takes."""
    run = Run(declared(keepAlive="10s"))
    run.put(GatewayBeat(gateway="g", boot="1"), at=T0)
    run.advance(FAR)
    run.put(window(T0, T0 + 1, running=8), "relume/gateway/g", at=T0 + 1)
    assert run.wish().replicas == 2
    run.advance(2000)
    assert (run.wish().replicas, run.wish().reasons) == (2, ("DemandUnknown",))
