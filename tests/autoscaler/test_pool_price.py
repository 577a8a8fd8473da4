"""One price of a cold start for all models, by the pool's settings: who goes by it, what it does, when it changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.forecast.following import Following, follow
from autoscaler.core.forecast.hold import GRAIN
from autoscaler.core.peers import RelumeOptions
from autoscaler.core.policy import COST_MOST, ScalingPolicy, by_pool
from autoscaler.core.tiering import held, rungs_of
from autoscaler.declared import read_pool
from autoscaler.loop import Autoscaler
from autoscaler.settings import AutoscalerSettings
from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.types.pools import PoolDeclared
from events.units import Instant, Seconds
from events.writer import EventWriter
from tests.support.autoscaling import POLICY, T0, declared


def pool(name: str = "default", *, deleted: bool = False, **spec: object) -> PoolDeclared:
    return PoolDeclared(pool=name, uid="p", revision=1, generation=1, spec=spec, deleted=deleted)  # type: ignore[arg-type]  # tests name real fields


TEN = Seconds(600.0)


@pytest.mark.parametrize(
    ("policy", "cost"),
    [
        (POLICY, 600.0),
        (replace(POLICY, gpus=4.0), 150.0),
        (replace(POLICY, gpus=0.5), 1200.0),
        (replace(POLICY, gpus=0.0001), COST_MOST),
        (replace(POLICY, cold_start_cost=Seconds(7.0)), 7.0),
        (replace(POLICY, keep_alive=Seconds(60.0)), None),
        (replace(POLICY, options=RelumeOptions(keep_extra=Seconds(60.0))), None),
        (replace(POLICY, name="kpa"), None),
    ],
    ids=[
        "one GPU", "four", "half", "next to nothing", "its own price", "its own keep-alive", "its own for the others",
        "another policy",
    ],
)  # fmt: skip
def test_who_goes_by_it(policy: ScalingPolicy, cost: float | None) -> None:
    """In seconds of the model's own replica: of four GPUs a fourth. What a model says itself comes first."""
    assert by_pool(policy, TEN).cold_start_cost == cost
    assert by_pool(policy, None) == policy


def test_what_the_pool_says() -> None:
    """Its field, in GPU-seconds; nothing without it, nor once it is deleted. What cannot be read is an error."""
    assert read_pool(pool(coldStartCost="10m", reserve={"wholeCards": 0})) == 600.0
    assert read_pool(pool()) is None
    assert read_pool(pool(coldStartCost="10m", deleted=True)) is None
    with pytest.raises(ValueError, match="coldStartCost"):
        read_pool(pool(coldStartCost="soon"))


patterns = st.lists(st.integers(0, 3), min_size=5, max_size=60)


@given(patterns, st.floats(1.0, COST_MOST), st.floats(1.0, COST_MOST), st.floats(0.05, 8.0))
def test_dearer_starts_never_hold_less(pattern: list[int], one: float, other: float, gpus: float) -> None:
    """Of any model, after any past: as the knob is turned up the replicas that are held never become fewer."""
    following = followed(pattern)
    policy = replace(POLICY, gpus=gpus)
    counts = []
    for price in sorted((one, other)):
        rungs = rungs_of(by_pool(policy, Seconds(price)), None)
        assert rungs is not None
        counts.append(held(following.past, rungs).warm)
    assert counts == sorted(counts)


@given(patterns.filter(any), st.sampled_from([0.25, 1.0, 4.0]))
def test_the_knob_is_not_dead(pattern: list[int], gpus: float) -> None:
    """Of any model that was ever needed: at its least nothing is held for what may come unless it is nearly certain, at
    its most a replica is."""
    following = followed(pattern)
    policy = replace(POLICY, gpus=gpus)
    least, most = (rungs_of(by_pool(policy, Seconds(price)), None) for price in (1.0, COST_MOST * gpus))
    assert least is not None
    assert most is not None
    assert held(following.past, least).warm == 0
    assert held(following.past, most).warm >= 1


def followed(pattern: list[int]) -> Following:
    """A model that needed so many replicas, minute by minute."""
    following = follow(None, pattern[0], None, Instant(T0))
    for at, needed in enumerate(pattern[1:], 1):
        following = follow(following, needed, None, Instant(T0 + at * GRAIN))
    return follow(following, 0, None, Instant(T0 + len(pattern) * GRAIN))


async def test_it_holds_at_once_and_is_read_again_after_a_restart() -> None:
    """A price that is declared, changed and deleted while models run: each time their policies follow without a
    restart, but for the model that has its own. Another pool's, and one that cannot be read, change nothing. The next
    autoscaler reads it before it decides."""
    clock = SimulatedClock(T0)
    log = MemoryEventLog(clock)
    tell = EventWriter("relume/test", clock)

    async def say(*data: object) -> None:
        await log.append([tell.envelope(one) for one in data])
        await settle()

    def costs(autoscaler: Autoscaler) -> tuple[float | None, float | None]:
        a, b = autoscaler.view("a"), autoscaler.view("b")
        assert a is not None
        assert b is not None
        return a.policy.cold_start_cost, b.policy.cold_start_cost

    four = replace(declared("a"), spec=declared("a").spec | {"resources": {"gpus": 4}})
    await say(four, declared("b", coldStartCost="7s"))
    first = Autoscaler(log, clock, EventWriter("relume/autoscaler/1", clock), AutoscalerSettings("1"))
    await first.start()
    assert costs(first) == (None, 7.0)
    for spoken, cost in [
        (pool(coldStartCost="10m"), 150.0), (pool("other", coldStartCost="1h"), 150.0),
        (pool(coldStartCost="x"), 150.0), (pool(coldStartCost="20m"), 300.0),
        (pool(coldStartCost="20m", deleted=True), None), (pool(coldStartCost="40m"), 600.0),
    ]:  # fmt: skip
        await say(spoken)
        assert costs(first) == (cost, 7.0)
    await first.close()
    second = Autoscaler(log, clock, EventWriter("relume/autoscaler/2", clock), AutoscalerSettings("2"))
    await second.start()
    assert costs(second) == (600.0, 7.0)
    await second.close()
