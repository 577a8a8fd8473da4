"""What explanations say of policies that are not ours: what these go by, and not what ours would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.model import Demand, Memory, Reason, Replicas, Snapshot
from autoscaler.core.peers import IdleMemory, KpaMemory, KpaOptions
from autoscaler.core.policy import ScalingPolicy
from autoscaler.explain import Records, explain
from autoscaler.peer_words import by_idle_times, knative_panics
from autoscaler.record import wish_of
from autoscaler.words import clock_time
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

NAMES = ("kpa", "keda", "hpa", "keepalive", "concurrency", "hybrid-histogram")


def clock(instant: float) -> str:
    """Of the day of the tests."""
    return clock_time(instant, T0)


def texts(snapshot: Snapshot, policy: ScalingPolicy) -> dict[str, str]:
    """The sentence of each reason of a decision."""
    wish = wish_of(snapshot, policy, decide(snapshot, policy, Instant(snapshot.taken_at)))
    reasons = explain(Records(wish)).facts["reasons"]
    assert isinstance(reasons, list)
    return {str(one["reason"]): str(one["text"]) for one in reasons if isinstance(one, dict)}


def test_knatives_panic_is_told_by_its_own_rule() -> None:
    """It looks at what is ready, by its own threshold, and ends at an instant, whether anybody asks or not."""
    policy = replace(POLICY, name="kpa", options=KpaOptions(panic_threshold=2.5))
    memory = Memory(peer=KpaMemory(decided_at=T0 - 2, panic_since=T0 - 20, panic_most=2, active_since=T0 - 20))
    text = texts(seen(wished=2, ready=2, memory=memory), policy)[Reason.PANIC]
    assert text == (
        "Over 6s at least 2.5 times what was ready (2 replicas now) was needed in the last 1m, or kpa had just begun "
        "with more than one: nothing is taken away before 01:47:20 UTC."
    )
    assert "while anybody asks" not in text
    assert knative_panics(policy, KpaMemory(decided_at=T0), 1, clock).endswith("nothing is taken away.")


IDLE = IdleMemory(ends_at=T0 + 30, needed=3, idle=4, counts=((4, 6), (5, 1)), beyond_count=2)


@pytest.mark.parametrize(
    ("memory", "wished", "says"),
    [
        (
            IDLE,
            3,
            "3 replicas were needed when it was last busy, 4m before this minute; it was seen to idle 9 times, and by",
        ),
        (
            replace(IDLE, idle=0, counts=(), beyond_count=0),
            3,
            "in the minute before; it was never seen to idle, so it may",
        ),
        (
            replace(IDLE, most=3),
            3,
            "3 replicas were needed in the minute that ends at 01:47:10 UTC, and what was stays",
        ),
        (replace(IDLE, idle=None, most=1), 1, "1 replica was needed in the minute"),
    ],
)
def test_idle_times_are_told(memory: IdleMemory, wished: int, says: str) -> None:
    """What was needed when, and from how many idle times it is known when it may be asked again."""
    assert says in by_idle_times(memory, wished, clock)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_day_is_told_without_a_rule_of_ours(name: str) -> None:
    """A burst each ten minutes, and in between nothing: no sentence speaks of panic while anybody asks, of a price, or
    of a forecast that is not there."""
    policy = replace(POLICY, name=name, max_replicas=20, keep_alive=Seconds(100.0))
    memory, wished, said = Memory(), 0, set[str]()
    for tick in range(1200):
        at, level = T0 + 2.0 * tick, 30 if tick % 300 < 20 else 0
        snapshot = Snapshot(
            model="m", uid="u", revision=1, taken_at=at, wished=wished, replicas=Replicas(ready=wished),
            demand=Demand(running=level, stable=float(level), panic=float(level), last_active_at=at if level else T0),
            memory=memory, history_read=True, followed_since=T0 - 600,
        )  # fmt: skip
        decision = decide(snapshot, policy, Instant(at))
        memory, wished = decision.memory, decision.replicas
        if tick % 7 == 0 or tick % 300 < 30:
            said |= set(texts(snapshot, policy).values())
    for text in said:
        assert not any(word in text for word in ("while anybody asks", "worth holding", "A forecast asked")), text


def test_where_nothing_was_ever_wished_the_allocator_owes_no_answer() -> None:
    """It tells nothing of a model that it was never asked for."""
    for wished, owes in ((0, False), (1, True)):
        snapshot = seen(wished=0, waiting=wished)
        sentences = explain(Records(wish_of(snapshot, POLICY, decide(snapshot, POLICY, Instant(T0))))).sentences
        assert ("The allocator has not answered yet." in sentences) is owes


def test_averages_that_are_not_known_yet_are_no_hole() -> None:
    """Followed for less than a stable window: since when is said, and not that 100 % is known."""
    policy = replace(POLICY, name="kpa")
    text = texts(seen(wished=2, ready=2, demand={"stable": None}, followed_since=T0 - 20), policy)
    assert text == {Reason.DEMAND_UNKNOWN: "Demand is known only since 01:46:20 UTC: nothing is taken away."}
