"""The relume policy, one row a rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.core.model import Memory, Reason, Snapshot
from autoscaler.core.peers import Sample
from autoscaler.core.policies.relume import decide
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

R = Reason
NOW = Instant(T0)
CALM = Memory(raised_at=T0 - 1000, lowered_at=T0 - 1000)


def busy(concurrency: float, **more: object) -> dict[str, object]:
    """Averages of both windows."""
    return {"stable": concurrency, "panic": concurrency, "last_active_at": T0, **more}


UP = [
    pytest.param(seen(waiting=1), 1, (R.ACTIVATION, R.BACKLOG), id="edge: one waits at zero, one replica"),
    pytest.param(seen(waiting=4), 1, (R.ACTIVATION, R.BACKLOG), id="a full target is one replica"),
    pytest.param(seen(waiting=5), 2, (R.ACTIVATION, R.BACKLOG, R.PANIC), id="backlog: N in one step"),
    pytest.param(
        seen(wished=1, starting=1, waiting=17), 5, (R.ACTIVATION, R.BACKLOG, R.PANIC), id="backlog while starting"
    ),
    pytest.param(seen(waiting=1000), 10, (R.ACTIVATION, R.BACKLOG, R.PANIC, R.AT_MOST_MAX), id="max bounds"),
    pytest.param(
        seen(waiting=1, history_read=False, followed_since=None), 1, (R.ACTIVATION, R.BACKLOG), id="edge, unread"
    ),
    pytest.param(
        seen(wished=2, ready=2, running=8, waiting=1, demand=busy(9)), 3, (R.BACKLOG,), id="full and one waits"
    ),
    pytest.param(
        seen(wished=1, ready=1, running=3, demand={"stable": 1, "panic": 5}), 2, (R.LOAD, R.PANIC), id="panic average"
    ),
    pytest.param(seen(floor=2, floor_until=T0 + 9), 2, (R.REQUESTED,), id="activation: as many as asked"),
    pytest.param(seen(demand={"signal": 2.2}), 3, (R.SIGNAL,), id="a signal from outside"),
    pytest.param(
        seen(wished=None, ready=2, starting=1), 3, (R.KEEP_ALIVE,), id="no wish on record: what is there stands"
    ),
]


@pytest.mark.parametrize(("snapshot", "replicas", "reasons"), UP)
def test_rises(snapshot: Snapshot, replicas: int, reasons: tuple[Reason, ...]) -> None:
    """Demand wakes and sizes the model at once."""
    snapshot = replace(snapshot, demand=replace(snapshot.demand, last_active_at=T0))
    decision = decide(snapshot, POLICY, NOW)
    assert (decision.replicas, decision.reasons) == (replicas, reasons)


HOLD = [
    pytest.param(
        seen(wished=1, ready=1, running=4, demand=busy(4.1)), (R.STEADY,), id="an average that is over by a little"
    ),
    pytest.param(
        seen(wished=4, ready=4, running=3, history_read=False, followed_since=None), (R.HISTORY_UNREAD,), id="unread"
    ),
    pytest.param(seen(wished=4, ready=4, running=3, demand={"stable": None}), (R.DEMAND_UNKNOWN,), id="unknown"),
    pytest.param(
        seen(wished=4, ready=4, demand={"stable": None, "panic": None, "silent": 1, "last_active_at": T0 - 9000}),
        (R.DEMAND_UNKNOWN,),
        id="a silent gateway is not idle, however long",
    ),
    pytest.param(seen(wished=4, ready=4, running=1, demand={"stale_signals": 1}), (R.SIGNAL_STALE,), id="stale signal"),
    pytest.param(
        seen(wished=4, ready=4, running=1, memory=Memory(panic_until=T0 + 1, panic_floor=4), demand=busy(1)),
        (R.PANIC,),
        id="in panic",
    ),
    pytest.param(
        seen(wished=4, ready=4, running=1, memory=Memory(raised_at=T0 - 59), demand=busy(1)),
        (R.STEADY,),
        id="a stable window after a rise",
    ),
    pytest.param(
        seen(wished=4, ready=4, running=1, memory=Memory(kept=(Sample(at=T0 - 299, amount=4.0),)), demand=busy(1)),
        (R.KEEP_ALIVE,),
        id="what was needed within the keep-alive",
    ),
    pytest.param(
        seen(wished=4, ready=4, running=12, memory=CALM, demand=busy(12.1)), (R.STEADY,), id="no room to spare"
    ),
    pytest.param(
        seen(wished=1, ready=1, memory=CALM, demand={"last_active_at": T0 - 299}), (R.KEEP_ALIVE,), id="keep-alive"
    ),
    pytest.param(
        seen(wished=4, ready=1, running=4, waiting=9, failures=1, retry_at=T0 + 9, demand=busy(13)),
        (R.PANIC,),
        id="failing starts: a wish that fits stands",
    ),
]


@pytest.mark.parametrize(("snapshot", "reasons"), HOLD)
def test_holds(snapshot: Snapshot, reasons: tuple[Reason, ...]) -> None:
    """Whatever speaks against a descent keeps the wish as it is."""
    decision = decide(snapshot, POLICY, NOW)
    assert (decision.replicas, decision.reasons) == (snapshot.wished, reasons)


DOWN = [
    pytest.param(
        seen(wished=8, ready=8, running=24, memory=CALM, demand={"stable": 1, "panic": 1, "last_active_at": T0}),
        6,
        (R.DESCENT,),
        id="not below what runs now, whatever the averages say",
    ),
    pytest.param(
        seen(wished=4, ready=4, running=11, memory=CALM, demand=busy(11)), 3, (R.DESCENT,), id="one fewer fits"
    ),
    pytest.param(
        seen(wished=8, ready=8, running=1, memory=CALM, demand=busy(1)), 4, (R.DESCENT, R.STEP_LIMIT), id="half"
    ),
    pytest.param(
        seen(wished=9, ready=9, running=1, memory=CALM, demand=busy(1)), 5, (R.DESCENT, R.STEP_LIMIT), id="odd half"
    ),
    pytest.param(seen(wished=2, ready=2, running=1, memory=CALM, demand=busy(1)), 1, (R.DESCENT,), id="at least one"),
    pytest.param(
        seen(wished=3, ready=3, memory=CALM, demand={"last_active_at": T0 - 300}), 0, (R.IDLE,), id="keep-alive over"
    ),
    pytest.param(
        seen(wished=1, starting=1, demand={"last_active_at": T0 - 300}), 0, (R.IDLE,), id="before it was ever ready"
    ),
    pytest.param(
        seen(wished=1, ready=1, demand={"last_active_at": T0 - 300}, memory=Memory(panic_until=T0 + 9, panic_floor=1)),
        0,
        (R.IDLE,),
        id="idle ends panic",
    ),
    pytest.param(seen(wished=1, ready=1, followed_since=T0 - 300), 0, (R.IDLE,), id="never asked since it is followed"),
]


@pytest.mark.parametrize(("snapshot", "replicas", "reasons"), DOWN)
def test_falls(snapshot: Snapshot, replicas: int, reasons: tuple[Reason, ...]) -> None:
    """Known and lasting lack of demand takes replicas away, in steps."""
    decision = decide(snapshot, POLICY, NOW)
    assert (decision.replicas, decision.reasons) == (replicas, reasons)


def test_starting_replicas_are_not_asked_for_again() -> None:
    """The same backlog at a slower and slower start never raises the wish a second time."""
    first = decide(seen(waiting=12), POLICY, NOW)
    again = decide(seen(wished=first.replicas, starting=3, waiting=12, memory=first.memory), POLICY, Instant(T0 + 30))
    assert first.replicas == again.replicas == 3


def test_starting_replicas_end_panic() -> None:
    """Replicas that start count against the panic threshold."""
    assert decide(seen(wished=1, ready=1, waiting=8, running=4), POLICY, NOW).memory.panic_until == T0 + 60
    assert decide(seen(wished=3, ready=1, starting=2, waiting=8, running=4), POLICY, NOW).memory.panic_until is None


def test_failing_starts_hold_the_wish_but_wake_the_model() -> None:
    """After a failed start one replica is tried, not the whole backlog."""
    failing = {"failures": 2, "retry_at": T0 + 10}
    assert decide(seen(waiting=40, **failing), POLICY, NOW).replicas == 1
    decision = decide(seen(wished=3, waiting=40, **failing), POLICY, NOW)
    assert decision.replicas == 3
    assert R.STARTS_FAIL in decision.reasons


def test_averages_alone_do_not_wake() -> None:
    """What the panic window remembers of a load that is over raises nothing."""
    assert decide(seen(wished=0, demand={"stable": 9.0, "panic": 9.0}), POLICY, NOW).replicas == 0
    assert decide(seen(wished=0, waiting=1, demand={"stable": 9.0, "panic": 9.0}), POLICY, NOW).replicas == 1
    assert decide(seen(wished=1, ready=1, demand=busy(9.0)), POLICY, NOW).replicas == 1


def test_minimum_holds_without_demand() -> None:
    """`minReplicas` is there from the start and stays."""
    policy = replace(POLICY, min_replicas=2)
    assert decide(seen(wished=None), policy, NOW).replicas == 2
    idle = decide(seen(wished=2, ready=2, demand={"last_active_at": T0 - 900}), policy, NOW)
    assert (idle.replicas, idle.reasons) == (2, (R.IDLE, R.AT_LEAST_MIN))


def test_activation_survives_a_restart_by_memory() -> None:
    """What an activation asked for stands in the memory, and ends in time."""
    first = decide(seen(floor=2, floor_until=T0 + 100), POLICY, NOW)
    later = seen(wished=2, ready=2, memory=first.memory, demand={"last_active_at": T0 - 900})
    assert decide(later, POLICY, Instant(T0 + 99)).replicas == 2
    assert decide(later, POLICY, Instant(T0 + 100)).replicas == 0


@pytest.mark.parametrize(
    ("snapshot", "again"),
    [
        pytest.param(seen(), None, id="nothing to wait for at zero"),
        pytest.param(seen(wished=1, ready=1, demand={"last_active_at": T0 - 100}), 200.0, id="keep-alive"),
        pytest.param(
            seen(wished=1, ready=1, running=1, demand=busy(1)), 5.0, id="requests: when silence would be known"
        ),
        pytest.param(seen(wished=1, ready=1, floor=1, floor_until=T0 + 3), 3.0, id="an activation ends"),
        pytest.param(seen(demand={"changes_at": T0 + 7}), 7.0, id="a signal ends"),
    ],
)
def test_again_at(snapshot: Snapshot, again: float | None) -> None:
    """A quiet model is looked at again when time alone changes the answer, and not before."""
    decision = decide(snapshot, POLICY, NOW)
    assert decision.again_at == (None if again is None else T0 + again)


def test_marginal_gain_prefers_who_has_nothing() -> None:
    """The first replica of a model that waits is worth more than one more for a model that has many."""
    asleep = decide(seen(waiting=1), POLICY, NOW)
    crowded = decide(seen(wished=5, ready=5, running=20, waiting=100), POLICY, NOW)
    assert asleep.marginal_gain > crowded.marginal_gain > 0


def test_deadline_is_that_of_the_first_held_request() -> None:
    """The wish says until when it helps somebody."""
    assert decide(seen(waiting=1, demand={"earliest_deadline": T0 + 5}), POLICY, NOW).deadline == T0 + 5
    assert decide(seen(running=1, demand={"earliest_deadline": T0 + 5}), POLICY, NOW).deadline is None


@pytest.mark.parametrize("keep_alive", [0.0, 1.0, 7.5])
def test_short_keep_alive_beats_the_windows(keep_alive: float) -> None:
    """Idle for the keep-alive is zero, even while the averages still remember the load."""
    policy: ScalingPolicy = replace(POLICY, keep_alive=Seconds(keep_alive))
    snapshot = seen(wished=5, ready=5, demand={"stable": 18.0, "panic": 10.0, "last_active_at": T0 - keep_alive})
    assert decide(snapshot, policy, NOW).replicas == 0


def test_a_burst_regrets_a_descent_once() -> None:
    """A burst that grows in several steps after a descent is one regret: only the first step makes patience longer."""
    memory, counted = Memory(raised_at=T0 - 300.0, lowered_at=T0 - 30.0), []
    for step, waiting in enumerate((5, 9, 17, 40)):
        now = T0 + 2.0 * step
        snapshot = seen(wished=1 + step, ready=1, running=4, waiting=waiting, memory=memory)
        decision = decide(snapshot, POLICY, Instant(now))
        assert decision.replicas > 1 + step
        memory = decision.memory
        counted.append(memory.patience)
    assert counted == [1, 1, 1, 1]


PROMISED = [
    pytest.param(None, 40, 10, id="nothing promised: all at once"),
    pytest.param(30.0, 40, 1, id="requests of 2 s that may wait 30 s: one replica of 4 slots ends 64 in 32 s"),
    pytest.param(2.0, 40, 5, id="who may wait as long as one takes: half"),
    pytest.param(2.0, 1, 1, id="somebody is at least one"),
]


@pytest.mark.parametrize(("wait", "level", "replicas"), PROMISED)
def test_a_promise_says_how_many_may_wait(wait: float | None, level: int, replicas: int) -> None:
    """What is at hand needs as many replicas as serve the last of it in time."""
    policy = replace(POLICY, max_replicas=100, wait_most=None if wait is None else Seconds(wait))
    busy_for_two = {"seconds_per_request": 2.0, "last_active_at": T0}
    decision = decide(seen(waiting=level, demand=busy_for_two), policy, NOW)
    assert decision.replicas == replicas


def test_what_lasts_needs_its_target_whatever_is_promised() -> None:
    """An average of 20 over the stable window needs five replicas at a target of 4, though most could wait."""
    policy = replace(POLICY, max_replicas=100, wait_most=Seconds(60.0))
    snapshot = seen(wished=2, ready=2, running=8, waiting=12, demand=busy(20.0, seconds_per_request=2.0))
    assert decide(snapshot, policy, NOW).replicas == 5


def test_before_a_request_has_ended_nothing_may_wait() -> None:
    """How long one takes is not known yet, which is not zero."""
    policy = replace(POLICY, max_replicas=100, wait_most=Seconds(60.0))
    assert decide(seen(waiting=40), policy, NOW).replicas == 10


def test_without_a_long_keep_alive_a_regretted_descent_doubles_the_pause() -> None:
    """Something must damp: patience does where the keep-alive does not."""
    brief = replace(POLICY, keep_alive=Seconds(5.0))
    snapshot = seen(wished=4, ready=4, running=1, memory=Memory(lowered_at=T0 - 119, patience=1), demand=busy(1))
    assert decide(snapshot, brief, NOW).reasons == (R.STEADY,)
    later = replace(snapshot, memory=Memory(lowered_at=T0 - 120, patience=1))
    assert decide(later, brief, NOW).replicas == 2


def test_each_replica_lives_for_the_keep_alive_after_it_was_needed() -> None:
    """Eight, then three, then one: each step goes when its time is over, and is looked at then."""
    kept = (Sample(at=T0 - 300, amount=8.0), Sample(at=T0 - 100, amount=3.0))
    snapshot = seen(wished=8, ready=8, running=1, memory=replace(CALM, kept=kept), demand=busy(1))
    first = decide(snapshot, POLICY, NOW)
    assert first.replicas == 4
    second = decide(replace(snapshot, wished=4, memory=first.memory), POLICY, Instant(T0 + 60))
    assert second.replicas == 3
    third = decide(replace(snapshot, wished=3, memory=second.memory), POLICY, Instant(T0 + 199))
    assert (third.replicas, third.reasons) == (3, (R.KEEP_ALIVE,))
    assert decide(replace(snapshot, wished=3, memory=third.memory), POLICY, Instant(T0 + 200)).replicas == 2


def test_what_gathered_before_anything_was_ready_is_not_kept() -> None:
    """It tells of the start and not of the load; and so does what waits before one request has ended."""
    assert decide(seen(waiting=40), POLICY, NOW).memory.kept == ()
    at_work = seen(wished=1, ready=1, running=4, waiting=36)
    assert decide(at_work, POLICY, NOW).memory.kept == ()
    known = replace(at_work, demand=replace(at_work.demand, seconds_per_request=1.0))
    assert decide(known, POLICY, NOW).memory.kept[0].amount == 10
