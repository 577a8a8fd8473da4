"""`policyOptions.keepExtra`: replicas beyond the first go sooner than the last one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoscaler.codec import memory_json, policy_json, read_policy, snapshot_json
from autoscaler.core.decide import decide
from autoscaler.core.model import Memory, Reason
from autoscaler.core.peers import RelumeOptions, Sample
from autoscaler.explain import Records, explain
from autoscaler.spec import ScalingSpec
from events.types.decisions import WishDecided
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, Run, declared, seen

NOW = Instant(T0)
EXTRA = replace(POLICY, options=RelumeOptions(keep_extra=Seconds(100.0)))
LONG_AGO = Memory(raised_at=T0 - 1000, lowered_at=T0 - 1000)

STAIRS = [
    pytest.param(99.0, None, 8, Reason.KEEP_ALIVE, id="as long as the first: nothing goes"),
    pytest.param(299.0, None, 8, Reason.KEEP_ALIVE, id="to the last second"),
    pytest.param(300.0, None, 4, Reason.DESCENT, id="and then half"),
    pytest.param(99.0, 100.0, 8, Reason.KEEP_ALIVE, id="needed within a hundred seconds"),
    pytest.param(100.0, 100.0, 4, Reason.DESCENT, id="not since: half of them go"),
    pytest.param(299.0, 900.0, 8, Reason.KEEP_ALIVE, id="never longer than the last one"),
    pytest.param(300.0, 900.0, 4, Reason.DESCENT, id="so at its time they go"),
]


@pytest.mark.parametrize(("ago", "extra", "replicas", "reason"), STAIRS)
def test_what_was_needed_beyond_the_first_stays_for_its_own_time(
    ago: float, extra: float | None, replicas: int, reason: Reason
) -> None:
    """Eight were needed so long ago, one is now."""
    policy = replace(POLICY, options=RelumeOptions(keep_extra=None if extra is None else Seconds(extra)))
    memory = replace(LONG_AGO, kept=(Sample(at=T0 - ago, amount=8.0),))
    busy = {"stable": 1.0, "panic": 1.0, "last_active_at": T0}
    decision = decide(seen(wished=8, ready=8, running=1, memory=memory, demand=busy), policy, NOW)
    assert decision.replicas == replicas
    assert reason in decision.reasons


def test_it_is_looked_at_when_the_time_of_the_others_is_over() -> None:
    """And not only when the last one's is."""
    memory = replace(LONG_AGO, kept=(Sample(at=T0 - 97, amount=2.0),))
    busy = {"stable": 1.0, "panic": 1.0, "last_active_at": T0}
    decision = decide(seen(wished=2, ready=2, running=1, memory=memory, demand=busy), EXTRA, NOW)
    assert decision.again_at == pytest.approx(T0 + 3.0)


@pytest.mark.parametrize("extra", ["0s", "30s", "61s", "2m"])
def test_a_burst_ends_and_one_stays_for_the_keep_alive(extra: str) -> None:
    """Four for half a minute, then nobody: all but one are gone within the time of the others and their steps, the last
    one lives to the end of its own."""
    run = Run(declared(keepAlive="10m", policyOptions={"keepExtra": extra}))
    run.serve(running=16, seconds=30)
    run.stop()
    assert run.wish().replicas == 4
    run.advance(299.0)
    assert run.wish().replicas == 1
    run.advance(300.0)
    assert run.wish().replicas == 1
    run.advance(2.0)
    assert run.wish().replicas == 0


@given(st.lists(st.tuples(st.sampled_from([1, 5, 40]), st.integers(0, 40)), max_size=12), st.floats(0, 400))
def test_it_never_holds_more_than_without(levels: list[tuple[int, int]], extra: float) -> None:
    """Whatever came: with it, there are as many or fewer, and never none where there would be one."""
    without = Run(declared())
    within = Run(declared(policyOptions={"keepExtra": f"{extra:.3f}s"}))
    for seconds, running in levels:
        for one in (without, within):
            if running:
                one.serve(running=running, seconds=seconds)
            else:
                one.stop()
                one.advance(seconds)
        if without.wishes:
            assert min(1, without.wish().replicas) <= within.wish().replicas <= without.wish().replicas


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (3.0, "3 replicas were needed at 01:46:30 UTC, and what was needed lives on until 01:48:10 UTC."),
        (1.0, "Nobody has asked since 01:46:30 UTC; what is idle lives on for 5m, until 01:51:30 UTC."),
    ],
    ids=["three", "the first alone"],
)
def test_explained_is_the_time_that_counts(kept: float, words: str) -> None:
    """Of those beyond the first theirs, of the first its own."""
    memory = Memory(kept=(Sample(at=T0 - 10, amount=kept),), last_busy_at=T0 - 10)
    told = WishDecided(
        model="m", uid="u", revision=1, replicas=int(kept), priority=100, reasons=(Reason.KEEP_ALIVE.value,),
        snapshot=snapshot_json(seen(wished=int(kept), ready=int(kept))), policy=policy_json(EXTRA),
        memory=memory_json(memory),
    )  # fmt: skip
    assert words in explain(Records(told)).sentences


def test_it_is_of_ours_and_not_beside_a_price() -> None:
    """What it cannot be beside is refused when the model is applied; left out, nothing of it is on record."""
    policy = ScalingSpec.model_validate({"policyOptions": {"keepExtra": "90s"}}).resolve(slots=4, priority=100)
    assert policy.options == RelumeOptions(keep_extra=Seconds(90.0))
    assert read_policy(policy_json(policy)) == policy
    assert ScalingSpec.model_validate({}).resolve(slots=4, priority=100).options is None
    for bad, words in (
        ({"policyOptions": {"keepExtra": "90s"}, "coldStartCost": "5m"}, "both say how long replicas live"),
        ({"policyOptions": {"keepExtra": "-1s"}}, "keepExtra"),
        ({"policyOptions": {"keepextra": "1m"}}, "relume has no keepextra; it has keepExtra"),
        ({"policy": "keepalive", "policyOptions": {"keepExtra": "1m"}}, "keepalive has none"),
    ):
        with pytest.raises(ValidationError, match=words):
            ScalingSpec.model_validate(bad)
