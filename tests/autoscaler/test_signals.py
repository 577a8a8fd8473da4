"""Signals: numbers from outside, told by anyone or measured, from their events to the wish and its explanation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.core.model import Reason, SignalSeen
from autoscaler.core.policy import ScalingPolicy, SignalPolicy
from autoscaler.core.signals import RECENT_MOST, SIGNALS_MOST, Reading, Signals
from autoscaler.explain import Records, explain
from autoscaler.record import read_wish, replay
from events.types.metrics import LagMeasured, SignalMeasured
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, Run, declared


def at(seconds: float) -> Instant:
    return Instant(T0 + seconds)


def policy(target: float = 4.0, *signals: SignalPolicy) -> ScalingPolicy:
    return replace(POLICY, target=target, signals=signals)


def reading(value: float, target: float | None = None, valid_for: float = 60.0) -> Reading:
    return Reading(value, target, Seconds(valid_for))


class TestKept:
    """What is kept of each signal."""

    def test_the_largest_need_counts_until_it_runs_out(self) -> None:
        """Valid, then stale for as long again, then forgotten."""
        signals = Signals()
        assert signals.measured("queue", reading(30.0, 10.0), at(0), policy()) == 3.0
        signals.measured("lag", reading(8.0, None, 10.0), at(0), policy())
        assert signals.needed(at(5), policy(4.0)).replicas == pytest.approx(3.0)
        assert signals.needed(at(5), policy(4.0)).changes_at == at(10)
        assert signals.needed(at(5), policy(2.0)).replicas == pytest.approx(4.0)
        later = signals.needed(at(15), policy(2.0))
        assert (later.replicas, later.stale, later.changes_at) == (3.0, 1, at(20))
        assert signals.needed(at(20), policy(2.0)).stale == 0
        assert signals.needed(at(60), policy(2.0)).stale == 1
        assert signals.needed(at(120), policy(2.0)).replicas == 0.0
        assert len(signals) == 0

    def test_they_are_bounded(self) -> None:
        """The one that runs out first makes room; declared ones stay, whoever says what."""
        signals, declares = Signals(), policy(4.0, SignalPolicy(name="ours"))
        signals.measured("ours", reading(12.0, 1.0, 1.0), at(0), declares)
        for number in range(3 * SIGNALS_MOST):
            signals.measured(str(number), reading(1.0, 1.0), at(0.01 * number), declares)
        assert len(signals) == SIGNALS_MOST
        assert signals.needed(at(0.9), declares).replicas == 12.0

    def test_a_declared_one_says_what_a_replica_takes(self) -> None:
        """Its target stands before the sender's; what is not above its activation needs nothing."""
        signals, declares = Signals(), policy(4.0, SignalPolicy(name="queue", target=5.0, activation=10.0))
        assert signals.measured("queue", reading(10.0, 1.0), at(0), declares) == 0.0
        assert signals.measured("queue", reading(11.0, 1.0), at(1), declares) == pytest.approx(2.2)

    def test_a_declared_one_that_was_never_told_is_unknown(self) -> None:
        """Unknown is not zero, and never forgotten."""
        signals, declares = Signals(), policy(4.0, SignalPolicy(name="queue"))
        never = signals.needed(at(0), declares)
        assert (never.stale, never.seen) == (1, (SignalSeen(name="queue"),))
        signals.measured("queue", reading(8.0, 4.0, 10.0), at(0), declares)
        assert signals.needed(at(9), declares).stale == 0
        assert signals.needed(at(9_000), declares).stale == 1
        assert signals.needed(at(9_000), policy()).seen == ()

    def test_the_most_of_the_stable_window_is_known(self) -> None:
        """A number that flickers is not followed down; memory of it is bounded."""
        signals = Signals()
        for second in range(200):
            signals.measured("queue", reading(200.0 - second, 1.0), at(second), policy())
        found = signals.needed(at(199), policy())
        assert found.replicas == 1.0
        assert found.recent == pytest.approx(60.0, abs=3)
        assert len(signals._kept["queue"].recent) <= RECENT_MOST + 1
        assert signals.needed(at(198 + 60), policy()).recent == 1.0

    def test_the_rate_of_a_replica_is_learned_while_it_has_work(self) -> None:
        """Only between two looks that both found work, with the same replicas ready."""
        signals, declares = Signals(), policy()

        def told(second: float, lag: float, consumed: float | None, ready: int) -> float | None:
            measured = LagMeasured(model="m", name="s", lag=lag, standing=lag, partitions=9, consumed=consumed)
            signals.lag(measured, at(second), declares, ready)
            return signals._kept["s"].per_replica

        assert told(0, 100, None, 2) is None
        assert told(5, 90, 8.0, 3) is None, "one became ready meanwhile"
        assert told(10, 80, 9.0, 3) == 3.0
        assert told(15, 70, 21.0, 3) == pytest.approx(4.0)
        assert told(20, 0, 1.0, 3) == pytest.approx(4.0), "it ran out of work"
        assert told(25, 50, 1.0, 3) == pytest.approx(4.0)


LAG: dict[str, Any] = {"kafkaLag": {"group": "g", "topic": "orders", "target": 10}, "name": "orders"}


def orders(lag: float | None, **fields: Any) -> LagMeasured:
    numbers = {"partitions": 6, "with_lag": 6, "standing": lag or 0.0}
    return LagMeasured(model="m", name="orders", lag=lag, **{**numbers, **fields})


def explained(run: Run) -> str:
    return " ".join(explain(Records(run.wish())).sentences)


class TestWishes:
    """What the wish becomes, and what is told about it."""

    def test_a_lag_wakes_at_once_and_sizes(self) -> None:
        """In one step, capped by the partitions; the numbers stand in the record, and it replays."""
        run = Run(declared(signals=[LAG]))
        assert (run.wish().replicas, run.wish().reasons) == (0, ("SignalStale",))
        run.put(orders(35))
        assert (run.numbers(), run.wish().reasons) == ([0, 4], ("Signal",))
        run.advance(1)
        run.put(orders(900, produced=3.5))
        assert run.wish().replicas == 6
        text = explained(run)
        for part in ("orders", "900 records", "10 a replica", "90", "6 partitions"):
            assert part in text, text
        assert replay(run.wish()).replicas == 6

    def test_drained_in_time(self) -> None:
        """Once the rate of a replica is known, the time to drain sizes; the sentence has its numbers."""
        lag = {**LAG, "kafkaLag": {**LAG["kafkaLag"], "drainWithin": "30s", "target": 1000}}
        run = Run(declared(signals=[lag]))
        run.put(orders(900))
        assert run.wish().replicas == 1
        for _ in range(3):
            run.advance(5)
            run.put(orders(900, produced=10.0, consumed=10.0))
        assert run.wish().replicas == 4, "(900 ÷ 30 + 10) ÷ 10"
        text = explained(run)
        for part in ("30s", "10 records a second", "4 replicas"):
            assert part in text, text

    def test_a_number_that_never_came_is_explained_once_it_is_known_why(self) -> None:
        """Neither number nor reason of the wish changes by it; it is recorded once for as long as it lasts, and a new
        process that reads the record knows that it was. So is its end."""
        run = Run(declared(signals=[LAG]))
        for second in range(60):
            run.put(orders(None, error=f"there is no cluster shop (try {second})"))
            run.advance(5)
        assert [wish.replicas for _, wish in run.wishes] == [0, 0]
        assert run.wish().reasons == ("SignalStale",)
        assert "has never been told (there is no cluster shop" in explained(run)
        read, _ = read_wish(run.wish(), run.now)
        assert read.unmeasured == ("orders",)
        run.put(orders(35))
        assert run.wish().replicas == 4
        assert read_wish(run.wish(), run.now)[0].unmeasured == ()

    def test_what_cannot_be_measured_holds(self) -> None:
        """K4098: brokers away: what is there stays, and the record says why; then it goes on."""
        run = Run(declared(signals=[LAG], keepAlive="30s"))
        run.put(orders(35))
        for _ in range(60):
            run.advance(5)
            run.put(orders(None, error="Kafka at b1:9092: nobody answered"))
        assert (run.wish().replicas, run.wish().reasons) == (4, ("SignalStale",))
        assert "orders" in explained(run)
        assert "nobody answered" in explained(run)
        for _ in range(60):
            run.advance(5)
            run.put(orders(0))
        assert run.wish().replicas == 0

    def test_a_failed_measurement_takes_nothing_from_what_was_told(self) -> None:
        """Somebody else tells a number under the same name: it stands until it has run out."""
        run = Run(declared(signals=[LAG]))
        run.put(SignalMeasured(model="m", name="orders", value=30, target=10, valid_for=300))
        assert run.wish().replicas == 3
        for _ in range(40):
            run.advance(5)
            run.put(orders(None, error="away"))
        assert run.wish().replicas == 3

    def test_partly_known_may_raise_and_not_lower(self) -> None:
        """A partition whose leader is away: the others still count."""
        run = Run(declared(signals=[LAG], keepAlive="30s"))
        run.put(orders(15))
        run.advance(1)
        run.put(orders(25, unknown=2))
        assert run.wish().replicas == 3
        for _ in range(60):
            run.advance(5)
            run.put(orders(0, unknown=2))
        assert run.wish().replicas == 3

    def test_the_highest_need_counts(self) -> None:
        """Signals and requests together: the largest, not the sum."""
        run = Run(declared(signals=[LAG, {"name": "queue", "target": 7}]))
        run.put(orders(35))
        run.advance(1)
        run.put(SignalMeasured(model="m", name="queue", value=40, target=1))
        assert run.wish().replicas == 6, "40 ÷ 7"
        assert "queue" in explained(run)
        run.serve(running=4, waiting=30)
        assert run.wish().replicas == 9, "34 ÷ 4"

    def test_a_flickering_lag_does_not_flap(self) -> None:
        """K7516: raw lag goes up and down; the wish goes up once."""
        run = Run(declared(signals=[LAG]))
        for step in range(60):
            run.put(orders(50 if step % 2 else 5))
            run.advance(5)
        assert run.numbers() == [0, 1, 5]

    def test_keep_alive_counts_from_the_last_need(self) -> None:
        """Not from when the process began to follow."""
        run = Run(declared(signals=[LAG], keepAlive="100s", stableWindow="10s"))
        run.advance(1000)
        run.put(orders(5))
        run.advance(5)
        for _ in range(15):
            run.put(orders(0))
            run.advance(5)
        assert run.wish().replicas == 1
        for _ in range(8):
            run.put(orders(0))
            run.advance(5)
        assert (run.wish().replicas, run.wish().reasons) == (0, ("Idle",))

    def test_what_is_told_only_now_and_then_holds_from_the_start(self) -> None:
        """A declared signal that nobody tells: replicas of an earlier run stay, and the record says so."""
        run = Run(declared(signals=[{"name": "queue"}], minReplicas=1))
        assert Reason.SIGNAL_STALE not in run.wish().reasons or run.wish().replicas == 1
        assert run.wish().replicas == 1
