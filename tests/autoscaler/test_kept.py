"""What of a wish only lives on, and whether requests wait for it: what may be given to others, and to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.model import Memory, Snapshot
from autoscaler.core.peers import Sample
from autoscaler.core.policy import ScalingPolicy
from autoscaler.outcome import after_sentences
from autoscaler.record import read_wish, wish_of
from events.types.grants import GrantDecided
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, Run, declared, seen

NOW = Instant(T0)
IDLE = {"last_active_at": T0 - 70}


def needed(amount: float, ago: float) -> Memory:
    """So many replicas were needed last so long ago."""
    return Memory(kept=(Sample(at=T0 - ago, amount=amount),), raised_at=T0 - 1000, lowered_at=T0 - 1000)


KEPT = [
    pytest.param(seen(wished=1, ready=1, demand=IDLE), {}, 1, id="quiet for a stable window: all of it"),
    pytest.param(seen(wished=3, ready=3, memory=needed(3, 70), demand=IDLE), {}, 3, id="three that nobody needs"),
    pytest.param(seen(wished=1, ready=1, memory=needed(1, 59), demand=IDLE), {}, 0, id="needed within the window"),
    pytest.param(
        seen(wished=3, ready=3, running=4, memory=needed(3, 70), demand={"stable": 4, "panic": 4}), {}, 2, id="one of 3"
    ),
    pytest.param(seen(wished=3, ready=3, demand={"stable": None}), {}, 0, id="unknown is not idle"),
    pytest.param(seen(wished=1, ready=1, demand={"silent": 1}), {}, 0, id="a silent gateway is not idle"),
    pytest.param(seen(wished=1, ready=1, demand={"stale_signals": 1}), {}, 0, id="nor is a signal that ran out"),
    pytest.param(seen(wished=2, ready=2, demand={"signal_recent": 1.5}), {}, 0, id="what a signal needs"),
    pytest.param(seen(wished=1, ready=1, history_read=False, followed_since=None), {}, 0, id="unread history"),
    pytest.param(
        seen(wished=3, ready=3, memory=needed(3, 70), demand=IDLE), {"min_replicas": 2}, 1, id="a floor is no luxury"
    ),
    pytest.param(seen(wished=2, ready=2, floor=2, floor_until=T0 + 9), {}, 0, id="somebody asked that it be awake"),
    pytest.param(
        seen(wished=1, ready=1, demand={"stable": 0.01, "last_active_at": T0 - 9}), {"keep_alive": Seconds(30.0)}, 0,
        id="a short keep-alive remembers nothing: the window has seen a request",
    ),
    pytest.param(seen(waiting=1), {}, 0, id="who waits needs it"),
    pytest.param(
        seen(wished=1, ready=1, demand={"stable": 0.05, "last_active_at": T0 - 9}), {}, 0,
        id="what woke it for one short request, nine seconds ago",
    ),
    pytest.param(
        seen(wished=3, ready=3, memory=needed(3, 70), demand={"stable": 0.05, "last_active_at": T0 - 9}), {}, 2,
        id="and of three that nobody else needs",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("snapshot", "policy", "kept"), KEPT)
def test_kept_is_what_nothing_has_needed_for_a_stable_window(
    snapshot: Snapshot, policy: dict[str, Any], kept: int
) -> None:
    """And never more than what is wished."""
    decision = decide(snapshot, replace(POLICY, **policy), NOW)
    assert decision.kept == kept <= decision.replicas


@pytest.mark.parametrize(
    ("snapshot", "waits"),
    [
        pytest.param(seen(waiting=1), True, id="at zero"),
        pytest.param(seen(wished=1, starting=1, waiting=1), True, id="while it starts"),
        pytest.param(seen(wished=1, ready=1, running=4, waiting=1), True, id="one more is wished"),
        pytest.param(seen(wished=10, ready=10, running=40, waiting=9), False, id="all that may be are there"),
        pytest.param(seen(wished=1, starting=1), False, id="who asked has left"),
    ],
)
def test_waits_is_requests_that_wait_for_what_is_wished(snapshot: Snapshot, *, waits: bool) -> None:
    """Requests wait, and fewer replicas are ready than are wished."""
    assert decide(snapshot, POLICY, NOW).waits is waits


@pytest.mark.parametrize("name", ["kpa", "keda", "hpa", "concurrency", "keepalive", "hybrid-histogram"])
def test_others_policies_wait_too_and_keep_nothing(name: str) -> None:
    """Whose wish says nothing of what is only kept has none of it taken."""
    policy: ScalingPolicy = replace(POLICY, name=name)
    assert decide(seen(waiting=1), policy, NOW).waits
    assert decide(seen(wished=1, ready=1, demand=IDLE), policy, NOW).kept == 0


def test_it_travels_with_the_wish() -> None:
    """What is decided is recorded, and read again."""
    snapshot = seen(wished=1, ready=1, demand=IDLE)
    decision = decide(snapshot, POLICY, NOW)
    wish, _ = read_wish(wish_of(snapshot, POLICY, decision), NOW)
    assert (wish_of(snapshot, POLICY, decision).kept, wish.use) == (1, (1, False))


def test_explain_says_what_went_to_others() -> None:
    """The grant is less than the wish, and that is no shortage."""
    snapshot = seen(wished=1, ready=1, demand=IDLE)
    wish = wish_of(snapshot, POLICY, decide(snapshot, POLICY, NOW))
    grant = GrantDecided(
        model="m", uid="u", revision=1, wished=0, replicas=(), reasons=("wish", "gives_up_what_is_only_kept")
    )
    (sentence,) = after_sentences(wish, grant, None, None)
    assert sentence == (
        "The allocator granted 0 of 0; 1 replica that nothing needed went to others for which requests wait."
    )
    (plain,) = after_sentences(wish, replace(grant, wished=1, reasons=("wish",)), None, None)
    assert plain == "The allocator granted 0 of 1."


def test_what_is_needed_again_is_recorded_at_once() -> None:
    """Becoming idle may be told with the reasons, ten seconds apart; being needed is told in the same instant."""
    run = Run(declared(keepAlive="10m"))
    run.serve(running=1)
    run.stop()
    run.advance(300.0)
    assert (run.wish().replicas, run.wish().kept) == (1, 1)
    run.serve(running=1, seconds=0)
    assert run.wish().kept == 0
    assert run.wishes[-1][0] == round(run.now - T0, 3)
