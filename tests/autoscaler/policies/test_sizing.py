"""What requests need: those at hand and on average, with what is known of how long they take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.burn import BurnFloor
from autoscaler.core.model import Memory, Replicas, Snapshot
from autoscaler.core.peers import Sample
from autoscaler.core.policies.relume import decide
from autoscaler.core.policies.sizing import Sizing
from autoscaler.core.policy import ScalingPolicy
from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Outcome, Task
from deploy.simulation.requests import Rows
from deploy.simulation.setting import Service, Setting
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

WIDE = replace(POLICY, max_replicas=1000)
PROMISES = replace(WIDE, target=3.0, wait_most=Seconds(1.5))
NOW = Instant(T0)


def asked(waiting: int, lately: float | None, *, seconds: float | None = 5.0, start: float | None = 30.0) -> Snapshot:
    """One replica at work, others wait; so many came within the time of a request."""
    demand = {"seconds_per_request": seconds, "lately": lately, "arrivals_per_second": (lately or 0.0) / 5.0}
    return seen(wished=1, ready=1, running=4, waiting=waiting, demand=demand, start_seconds=start)


SIZES = [
    pytest.param(asked(96, None, seconds=None), WIDE, 25, id="how long a request takes is not known: all at once"),
    pytest.param(asked(96, None), WIDE, 25, id="what came lately is not known: all at once"),
    pytest.param(asked(96, 100.0), WIDE, 25, id="all of them came at once: all at once"),
    pytest.param(asked(96, 100.0, start=None), WIDE, 25, id="no start was ever seen: all at once"),
    pytest.param(asked(96, 20.0), WIDE, 8, id="a stream: what came lately, and a seventh of what has gathered"),
    pytest.param(asked(0, 0.0), WIDE, 1, id="what runs was never held up"),
    pytest.param(asked(96, 100.0), PROMISES, 20, id="some may wait for as long as is promised"),
    pytest.param(asked(96, 20.0), PROMISES, 7, id="and what has gathered waits for no longer than a start takes"),
    pytest.param(asked(96, 20.0, start=1.0), PROMISES, 20, id="a start shorter than that changes nothing"),
]


@pytest.mark.parametrize(("snapshot", "policy", "replicas"), SIZES)
def test_at_hand(snapshot: Snapshot, policy: ScalingPolicy, replicas: int) -> None:
    """Replicas for what runs and waits, by hand: (20 + 80 * 5 / 35) / 4 = 7.9; with the promise 100 * 5 / 6.5 / 4 is
    19.2 and (20 * 5 / 6.5 + 80 * 5 / 35) / 4 is 6.7."""
    assert Sizing(snapshot, policy).at_hand == replicas


@given(
    waiting=st.integers(0, 400), more=st.integers(0, 400), lately=st.floats(0, 400), later=st.floats(0, 400),
    seconds=st.floats(0.01, 600), start=st.floats(0.1, 600), promised=st.sampled_from((None, 0.1, 1.5, 60.0)),
)  # fmt: skip
def test_more_of_anything_never_needs_fewer(  # noqa: PLR0917 - what a need hangs on
    waiting: int, more: int, lately: float, later: float, seconds: float, start: float, promised: float | None
) -> None:
    """Monotone in what waits and in what came lately; never more than if nothing were known of the start."""
    policy = replace(WIDE, wait_most=None if promised is None else Seconds(promised))
    one = Sizing(asked(waiting, lately, seconds=seconds, start=start), policy).at_hand
    assert Sizing(asked(waiting + more, lately, seconds=seconds, start=start), policy).at_hand >= one
    assert Sizing(asked(waiting, lately + later, seconds=seconds, start=start), policy).at_hand >= one
    assert Sizing(asked(waiting, lately, seconds=seconds, start=None), policy).at_hand >= one


def slower(seconds: float, waiting: int, came: float = 3.2) -> Snapshot:
    """Four replicas full; on average of the last minute one was; `came` a second."""
    demand = {"seconds_per_request": seconds, "lately": came * seconds, "arrivals_per_second": came, "stable": 4.0,
              "panic": 4.0}  # fmt: skip
    return seen(wished=4, ready=4, running=16, waiting=waiting, demand=demand, start_seconds=30.0)


def test_what_comes_times_how_long_it_takes_now_is_needed_at_once() -> None:
    """Ten seconds each, 3.2 a second: 32 at a time, eleven replicas of three; the average of a minute will say so when
    it is over. While nobody waits the average is right."""
    assert Sizing(slower(10.0, 1), PROMISES).lasting == pytest.approx(32.0 / 3.0)
    assert decide(slower(10.0, 1), PROMISES, NOW).replicas == 11
    assert Sizing(slower(10.0, 0), PROMISES).lasting == pytest.approx(4.0 / 3.0)
    assert decide(slower(1.0, 1), PROMISES, NOW).replicas == 4


def test_what_waits_is_worked_off_beside_what_goes_on_coming() -> None:
    """Of 56 there are 24 more than came within ten seconds. In the thirty of a start 1.6 a second more gather: 48, as
    much as is believed. Those 72 take 72 / 4 slots * 10 / 40 s replicas, beside the eleven."""
    assert Sizing(slower(10.0, 40), PROMISES).lasting == pytest.approx(32.0 / 3.0 + 4.5)
    soon = replace(slower(10.0, 40), replicas=Replicas(ready=4, starting=3, ready_in=5.0, all_ready_in=10.0))
    assert Sizing(soon, PROMISES).lasting == pytest.approx(32.0 / 3.0 + 2.5)
    enough = replace(soon, replicas=Replicas(ready=8, starting=3, ready_in=5.0, all_ready_in=10.0))
    assert Sizing(enough, PROMISES).lasting == pytest.approx(32.0 / 3.0 + 1.5)


@given(seconds=st.floats(0.01, 600), longer=st.floats(0, 600), came=st.floats(0, 100), waiting=st.integers(0, 50))
def test_the_slower_or_the_more_the_more_is_needed(seconds: float, longer: float, came: float, waiting: int) -> None:
    """What lasts is monotone in how long a request takes, in what comes, and in whether any wait."""
    one = Sizing(slower(seconds, waiting, came), PROMISES).lasting
    assert Sizing(slower(seconds + longer, waiting, came), PROMISES).lasting >= one - 1e-9
    assert Sizing(slower(seconds, waiting, came * 2), PROMISES).lasting >= one - 1e-9
    assert Sizing(slower(seconds, waiting + 1, came), PROMISES).lasting >= one


def test_how_long_a_request_takes_is_remembered() -> None:
    """From one that has ended, then from eight; between, what was remembered stands."""
    first = decide(asked(0, 4.0), WIDE, NOW).memory
    assert first.seconds == 5.0
    few = {"seconds_per_request": 9.0, "finished": 7.9}
    assert decide(seen(memory=first, demand=few), WIDE, NOW).memory.seconds == 5.0
    many = {"seconds_per_request": 9.0, "finished": 8.0}
    assert decide(seen(memory=first, demand=many), WIDE, NOW).memory.seconds == 9.0


def test_what_an_objective_holds_does_not_forget_what_bursts_need() -> None:
    """While a floor (of an objective, or a schedule) is all that is wished and nobody asks, the steps of the last burst
    stay: after the floor they are held to their end."""
    memory = Memory(kept=(Sample(at=T0 - 100, amount=6.0),), last_busy_at=T0 - 100, burn_floor=BurnFloor().replicas)
    snapshot = seen(wished=6, ready=6, memory=memory, demand={"last_active_at": T0 - 100})
    held = decide(snapshot, replace(WIDE, min_replicas=6), NOW)
    assert held.replicas == 6
    after = decide(replace(snapshot, memory=held.memory), WIDE, Instant(T0 + 199))
    assert after.replicas == 6


def test_a_backlog_that_is_worked_off_slowly_takes_nothing_away() -> None:
    """Six replicas, all slots in use, and two hundred that wait since long: in a start's time fewer would do, but none
    is taken, nor given to others. One that is idle goes."""
    demand = {"seconds_per_request": 1.0, "lately": 4.0, "arrivals_per_second": 4.0, "stable": 6.0, "panic": 6.0}
    priced = replace(PROMISES, cold_start_cost=Seconds(1.0))
    full = seen(wished=6, ready=6, running=24, waiting=200, demand=demand, start_seconds=60.0)
    assert Sizing(full, priced).at_hand < 6
    held = decide(full, priced, NOW)
    assert (held.replicas, held.kept) == (6, 0)
    freed = decide(replace(full, demand=replace(full.demand, running=20)), priced, NOW)
    assert freed.replicas == 5


def test_a_burst_that_is_being_measured_raises_no_sooner_for_fewer() -> None:
    """Within the twentieth of a second after a rise fewer requests than a moment ago do not raise it either; what a
    schedule or a floor wants is given at once, whatever else is asked."""
    memory = Memory(raised_at=T0, panic_floor=20, panic_until=T0 + 60)
    for waiting in (40, 76, 80, 84, 400):
        burst = seen(wished=17, starting=17, waiting=waiting, memory=memory)
        assert decide(burst, WIDE, NOW).replicas == 17
        assert decide(burst, replace(WIDE, min_replicas=19), NOW).replicas == 19


def stream(policy: str, gap: float) -> Outcome:
    """Ten requests a second of four seconds for two minutes; a pause so that nothing is left; the same again."""
    rows = Rows.empty()
    for begin in (0.0, 120.0 + gap):
        for at in range(1200):
            rows.add(begin + at / 10, "m", (0, 0), 4.0)
    return Task(rows.trace(), read_typed(policy), Setting(service=Service(crowding=0.0))).run()


@pytest.mark.parametrize("policy", ["relume", "relume:slo=0"])
def test_a_stream_that_meets_nothing_is_not_given_several_times_what_it_needs(policy: str) -> None:
    """Forty at a time need three replicas of sixteen slots. The first time nobody knows how long a request takes, so
    what waits through the start counts in full (three hundred: fifteen and more); the second time six are asked for,
    since three hundred wait again, and with a promise that burns two more."""
    told = stream(policy, gap=1000.0)
    most = {
        turn: max(wish.replicas for wish in told.wishes if begin <= wish.at < begin + 120.0)
        for turn, begin in enumerate((0.0, 1120.0))
    }
    assert most[0] >= 15
    assert 3 <= most[1] <= 8
    assert told.figures.activations == 2
