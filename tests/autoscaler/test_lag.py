"""Lag of a consumer group: KEDA's cases by their numbers in its tests and issues, and what is better here."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.lag import LagWatch, Look, Offsets, even, lag_of, need
from autoscaler.core.policy import LagPolicy
from events.types.metrics import LagMeasured
from events.units import Instant, Seconds

POLICY = LagPolicy(
    group="g", topic="t", partitions=(), servers=(), cluster="", every=Seconds(5.0), target=10.0, drain_within=None,
    from_earliest=False, no_offset_is_zero=False, allow_idle_consumers=False, limit_to_partitions_with_lag=False,
    even_distribution=False, exclude_after=None,
)  # fmt: skip
EARLIEST = replace(POLICY, from_earliest=True)


def measured(lag: float, partitions: int, with_lag: int | None = None, produced: float | None = None) -> LagMeasured:
    """A lag over so many partitions; all of them have some unless `with_lag` says otherwise."""
    busy = partitions if with_lag is None else with_lag
    return LagMeasured(
        model="m", name="s", lag=lag, standing=lag, partitions=partitions, with_lag=busy, produced=produced
    )  # fmt: skip


def whole(amount: float) -> int:
    """Whole replicas."""
    return ceil(amount - 1e-6)


@pytest.mark.parametrize(
    ("offsets", "policy", "lag"),
    [
        pytest.param(Offsets(0, 150, 100), POLICY, 50, id="34: committed 100, end 150"),
        pytest.param(Offsets(None, None, 100), POLICY, 0, id="34: the partition is missing"),
        pytest.param(Offsets(0, 150, None), POLICY, 1, id="34: no committed offset, latest"),
        pytest.param(Offsets(0, 150, -1), POLICY, 1, id="34: committed offset -1, latest"),
        pytest.param(Offsets(0, 150, None), replace(POLICY, no_offset_is_zero=True), 0, id="34: latest, zero flag"),
        pytest.param(Offsets(0, 150, None), EARLIEST, 150, id="no committed offset, earliest: the whole history"),
        pytest.param(Offsets(0, 150, None), replace(EARLIEST, no_offset_is_zero=True), 0, id="earliest, zero flag"),
        pytest.param(Offsets(120, 150, None), EARLIEST, 30, id="K7936, PR 7937: earliest, deleted history is no lag"),
        pytest.param(Offsets(120, 150, 100), POLICY, 30, id="K7936: committed before what is deleted"),
        pytest.param(Offsets(0, 90, 100), POLICY, 0, id="committed beyond the end: the topic was made anew"),
        pytest.param(Offsets(0, 0, None), EARLIEST, 0, id="an empty partition"),
    ],
)
def test_the_lag_of_a_partition(offsets: Offsets, policy: LagPolicy, lag: int) -> None:
    """Records that the group has still to do."""
    assert lag_of(offsets, policy) == lag


LIMITED = replace(POLICY, limit_to_partitions_with_lag=True)
IDLE = replace(POLICY, allow_idle_consumers=True)
EVEN = replace(POLICY, even_distribution=True)
ONE = replace(POLICY, target=1.0)


@pytest.mark.parametrize(
    ("lag", "partitions", "policy", "fields", "expected"),
    [
        pytest.param(1, 3, ONE, {"activation": 1}, 0, id="31: not above activation"),
        pytest.param(2, 3, ONE, {"activation": 1}, 2, id="31: above activation"),
        pytest.param(7, 3, ONE, {"activation": 1}, 3, id="31: capped by the partitions"),
        pytest.param(0, 3, POLICY, {}, 0, id="no lag"),
        pytest.param(1, 3, POLICY, {}, 1, id="any lag is at least one replica"),
        pytest.param(25, 2, POLICY, {}, 2, id="K4483: threshold 10, 2 partitions, lag 25"),
        pytest.param(29, 2, POLICY, {}, 2, id="K4483: lag 29"),
        pytest.param(240, 24, POLICY, {}, 24, id="K4791: 24 of 24, no tolerance"),
        pytest.param(640, 64, POLICY, {}, 64, id="K2908: 64 of 64"),
        pytest.param(70, 3, IDLE, {}, 7, id="allowIdleConsumers"),
        pytest.param(70, 3, LIMITED, {"with_lag": 2}, 2, id="K5880: limitToPartitionsWithLag"),
        pytest.param(15, 3, LIMITED, {"with_lag": 3}, 2, id="limitToPartitionsWithLag, fewer are needed"),
        *(
            pytest.param(lag, 100, EVEN, {}, expected, id=f"33: even, 100 partitions, lag {lag}")
            for lag, expected in ((10, 1), (20, 2), (40, 4), (50, 5), (99, 10), (100, 10), (101, 20))
        ),
        pytest.param(10_000, 100, EVEN, {}, 100, id="33: even, all partitions"),
        pytest.param(0, 100, EVEN, {}, 0, id="even, nothing to do: KEDA would keep one"),
        pytest.param(500, 7, replace(EVEN, allow_idle_consumers=True), {}, 7, id="even, idle consumers allowed"),
    ],
)
def test_replicas_for_a_lag(
    lag: float, partitions: int, policy: LagPolicy, fields: dict[str, int], expected: int
) -> None:
    """Records over records a replica, within the partitions."""
    told = measured(lag, partitions, fields.get("with_lag"))
    assert whole(need(told, policy, fields.get("activation", 0), None).replicas) == expected


def look(at: float, *offsets: Offsets) -> Look:
    return Look(Instant(at), {("t", index): one for index, one in enumerate(offsets)})


def test_rates_between_two_looks() -> None:
    """Produced and consumed a second; the first look knows none; a topic that was made anew tells none."""
    watch = LagWatch()
    first = watch.measure("m", "s", POLICY, look(100, Offsets(0, 100, 40), Offsets(0, 10, None)))
    assert (first.lag, first.partitions, first.with_lag, first.produced, first.consumed) == (61, 2, 2, None, None)
    second = watch.measure("m", "s", POLICY, look(110, Offsets(0, 150, 120), Offsets(0, 10, 10)))
    assert (second.lag, second.with_lag, second.produced, second.consumed) == (30, 1, 5.0, 8.0)
    anew = watch.measure("m", "s", POLICY, look(120, Offsets(0, 3, None), Offsets(0, 0, None)))
    assert (anew.produced, anew.consumed) == (None, None)


def test_partitions_of_which_nothing_is_told_are_counted() -> None:
    """Unknown is not zero: whoever decides must know that this lag is not all of it."""
    found = LagWatch().measure("m", "s", POLICY, look(1, Offsets(0, 7, 2), Offsets(None, None, 3)))
    assert (found.lag, found.partitions, found.unknown) == (5, 2, 1)


def test_lag_that_stands_still_keeps_one_replica_and_sizes_nothing() -> None:
    """K7516, K5906, K5675: by time, for each partition, not after one look; it counts again once it moves."""
    policy = replace(POLICY, exclude_after=Seconds(60.0))
    watch = LagWatch()
    poison = Offsets(0, 500, 100)
    for at, other in ((0, 0), (30, 50), (59, 60)):
        assert watch.measure("m", "s", policy, look(at, poison, Offsets(0, 100, other))).lag == 500 - other
    late = watch.measure("m", "s", policy, look(60, poison, Offsets(0, 100, 70)))
    assert (late.lag, late.standing, late.with_lag) == (30, 430, 1)
    alone = watch.measure("m", "s", policy, look(200, poison, Offsets(0, 100, 100)))
    assert (alone.lag, alone.standing) == (0, 400)
    assert need(alone, policy, 0.0, None).replicas == 1.0, "it is still work"
    assert watch.measure("m", "s", policy, look(201, Offsets(0, 500, 101), Offsets(0, 100, 100))).lag == 399


class TestDraining:
    """Lag as time to drain: (lag ÷ time + records that come) ÷ records that a replica does."""

    POLICY = replace(POLICY, drain_within=Seconds(30.0))

    def test_by_the_measured_rate(self) -> None:
        """600 records in 30 s while 20 more come each second, at 8 a replica: 5 replicas."""
        found = need(measured(600, 12, produced=20.0), self.POLICY, 0.0, 8.0)
        assert (found.replicas, found.drained, found.most) == (5.0, True, 12)

    def test_before_the_rate_is_known(self) -> None:
        """By records a replica, as without it."""
        found = need(measured(60, 12, produced=20.0), self.POLICY, 0.0, None)
        assert (found.replicas, found.drained) == (6.0, False)

    def test_within_the_partitions(self) -> None:
        """More consumers than partitions would have nothing to do; what was wanted is told."""
        found = need(measured(60_000, 12), self.POLICY, 0.0, 8.0)
        assert (found.replicas, found.wanted) == (12, 250.0)

    def test_who_keeps_up_is_kept(self) -> None:
        """A little lag and a steady stream: as many as the stream needs, where records a replica would say one."""
        assert need(measured(9, 12, produced=24.0), self.POLICY, 0.0, 8.0).replicas == pytest.approx(3.0375)


policies = st.builds(
    replace,
    st.just(POLICY),
    target=st.floats(0.5, 1000),
    drain_within=st.none() | st.floats(1, 600),
    allow_idle_consumers=st.booleans(),
    even_distribution=st.booleans(),
)


@given(policies, st.integers(0, 10_000), st.integers(1, 200), st.floats(0, 100), st.none() | st.floats(0.1, 1000))
def test_laws_of_the_need(
    policy: LagPolicy, lag: int, partitions: int, produced: float, per_replica: float | None
) -> None:
    """Never beyond the partitions unless idle consumers are allowed; more lag never needs fewer; none needs none."""
    found = need(measured(lag, partitions, produced=produced), policy, 0.0, per_replica)
    assert (found.replicas == 0.0) == (lag == 0)
    assert 0.0 <= found.replicas < inf
    if not policy.allow_idle_consumers:
        assert found.replicas <= partitions
    more = need(measured(lag + 1, partitions, produced=produced), policy, 0.0, per_replica)
    assert more.replicas >= found.replicas


@given(st.floats(0, 300), st.integers(1, 300))
def test_even_shares(wanted: float, partitions: int) -> None:
    """A factor of the partitions that is enough; all partitions when no factor is; nothing for nothing."""
    found = even(wanted, partitions)
    if found:
        assert partitions % found == 0
        assert found >= wanted - 1e-6 or found == partitions
    assert (found == 0) == (wanted <= 1e-9)
