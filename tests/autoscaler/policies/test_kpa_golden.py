"""`kpa` against the cases of Knative's own tables (knative/serving 98e5ef90), by the numbers of our notes on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.model import Memory, Reason, Snapshot
from autoscaler.core.peers import KpaMemory, KpaOptions, Sample
from autoscaler.core.policies.kpa import Numbers, Seen, fresh, scale
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

NOW = Instant(T0)
KPA = replace(POLICY, name="kpa", max_replicas=500, target=10.0, options=KpaOptions(utilisation=1.0))


def numbers(target: float, burst: float = 0.0, **options: float) -> Numbers:
    """As in Knative's tables: `target` is 0.75 of the total, rates are 10, panic is twice, the window a minute."""
    rates: dict[str, float] = {"up_rate": 10.0, "down_rate": 10.0, **options}
    made = KpaOptions(utilisation=0.75, burst=burst, **rates)  # type: ignore[arg-type] # all are numbers
    return Numbers(target / 0.75, Seconds(60.0), made)


@dataclass(frozen=True)
class Step:
    """At `at` seconds: averages and ready replicas in, replicas out."""

    stable: float
    panic: float
    ready: int
    wanted: int
    at: float = 0.0
    burst_left: float | None = None
    panicking: bool | None = None


CASES = [
    pytest.param(numbers(10, 101), [Step(50, 10, 1, 5, burst_left=-98), Step(100, 100, 1, 10, 1)], id="1"),
    pytest.param(numbers(10), [Step(50, 100, 1, 10)], id="3: panic wins"),
    pytest.param(numbers(10), [Step(1000, 1001, 1, 10), Step(1000, 1001, 10, 100, 2)], id="7: up by rate"),
    pytest.param(
        numbers(10),
        [
            Step(100, 100, 1, 10, -2), Step(100, 1000, 10, 100), Step(1, 1, 10, 100, 30), Step(1, 1, 10, 1, 61),
        ],
        id="9: panic holds for a window",
    ),
    pytest.param(
        numbers(1),
        [Step(11, 25, 10, 25), Step(30, 41, 40, 41, 30, panicking=True), Step(50, 56, 55, 50, 62, panicking=False)],
        id="10: the start of panic is not moved",
    ),
    pytest.param(
        numbers(1),
        [Step(6, 6, 1, 6), Step(36, 36, 6, 36, 2), Step(216, 216, 36, 216, 4), Step(1296, 1296, 216, 1296, 6),
         Step(1296, 1296, 1296, 1296, 8)],
        id="12: a load that grows with the replicas",
    ),
    pytest.param(
        numbers(10, activation_scale=2), [Step(0, 0, 0, 0), Step(1, 1, 0, 2, 2)], id="13: activation scale"
    ),
    pytest.param(
        numbers(10, delay=300.0, panic_threshold=100.0),
        [Step(40, 40, 0, 4, 2), Step(0, 0, 0, 4, 300), Step(0, 0, 0, 0, 302)],
        id="15: scale-down delay",
    ),
    pytest.param(
        numbers(10, delay=300.0, panic_threshold=100.0),
        [Step(40, 40, 0, 4, 540), Step(30, 30, 0, 4, 600), Step(0, 0, 0, 4, 660), Step(0, 0, 0, 3, 840),
         Step(0, 0, 0, 0, 900)],
        id="16: the delay remembers each step",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("set_to", "steps"), CASES)
def test_scale(set_to: Numbers, steps: list[Step]) -> None:
    """Averages and ready replicas in, the number that Knative's tables say out."""
    memory = KpaMemory(decided_at=T0 - 10)
    for step in steps:
        scaled = scale(Seen(step.stable, step.panic, step.ready), set_to, memory, Instant(T0 + step.at))
        assert scaled.replicas == step.wanted, step
        if step.burst_left is not None:
            assert abs(scaled.burst_left - step.burst_left) <= 1  # the tolerance of Knative's own test
        if step.panicking is not None:
            assert scaled.panicking is step.panicking
        memory = scaled.memory


@pytest.mark.parametrize(("stable", "panic", "wanted"), [(50, 30, 50), (20, 30, 30)])
def test_in_panic_it_never_falls(stable: float, panic: float, wanted: int) -> None:
    """Case 4: the most of what both windows want and of what was wanted in this panic."""
    memory = KpaMemory(decided_at=T0 - 2, panic_since=T0 - 2, panic_most=5)
    assert scale(Seen(stable, panic, 5), numbers(1), memory, NOW).replicas == wanted


@pytest.mark.parametrize(("reachable", "wanted"), [(True, 90), (False, 1)])
def test_down_by_rate(reachable: bool, wanted: int) -> None:
    """Case 6: a hundred go to ninety at a rate of 1.1, and at once when nobody can reach them."""
    seen_now = Seen(1, 1, 100, reachable)
    assert scale(seen_now, numbers(10, down_rate=1.1), KpaMemory(decided_at=T0), NOW).replicas == wanted


@pytest.mark.parametrize(("ready", "floor"), [(0, None), (1, None), (2, 2)])
def test_a_new_scaler_begins_in_panic(ready: int, floor: int | None) -> None:
    """Case 18: with more than one ready it takes none away for a stable window."""
    memory = fresh(ready, NOW)
    assert (memory.panic_since is not None) == (floor is not None)
    assert memory.panic_most == (floor or 0)


def at(snapshot: Snapshot, **memory: object) -> Snapshot:
    """The snapshot with this of `kpa` remembered."""
    peer = KpaMemory(**{"decided_at": T0 - 2, "active_since": T0 - 500, **memory})  # type: ignore[arg-type] # as given
    return replace(snapshot, memory=Memory(peer=peer))


@pytest.mark.parametrize(
    "snapshot",
    [
        seen(wished=3, ready=3, demand={"stable": None}),
        seen(wished=3, ready=3, demand={"stable": 1.0, "panic": None}),
        seen(wished=3, ready=3, demand={"silent": 1}),
    ],
)
def test_without_data_nothing_is_touched(snapshot: Snapshot) -> None:
    """Cases 19 and 30, the last: no metric is no decision."""
    decision = decide(at(snapshot), KPA, NOW)
    assert (decision.replicas, decision.reasons) == (3, (Reason.DEMAND_UNKNOWN,))


@pytest.mark.parametrize(
    ("load", "bounds", "wanted"),
    [(100.0, {"max_replicas": 8}, 8), (0.0, {"min_replicas": 2}, 2)],
)
def test_bounds(load: float, bounds: dict[str, int], wanted: int) -> None:
    """Case 30: want ten of at most eight; want none of at least two."""
    snapshot = at(seen(wished=2, ready=2, running=int(load), demand={"stable": load, "panic": load}), began_at=T0 - 99)
    policy: ScalingPolicy = replace(KPA, **bounds)  # type: ignore[arg-type] # both are numbers
    assert decide(snapshot, policy, NOW).replicas == wanted


def test_the_least_is_not_for_what_nobody_can_reach() -> None:
    """Case 30: want none of at least two, unreachable. What nobody can reach here is what is deleted."""
    snapshot = at(seen(wished=2, ready=2, deleted=True))
    assert decide(snapshot, replace(KPA, min_replicas=2), NOW).replicas == 0


ZERO = [
    pytest.param({"active_since": T0 - 59}, 1, id="active for less than a stable window"),
    pytest.param({"path_since": T0 - 29}, 1, id="idle only now, and the hold queue not long in the path"),
    pytest.param({"path_since": T0 - 30}, 0, id="the hold queue has been in the path for the grace"),
    pytest.param({"idle_since": T0 - 29, "path_since": T0 - 1}, 1, id="within the grace"),
    pytest.param({"idle_since": T0 - 30, "path_since": T0 - 1}, 0, id="after the grace"),
]


@pytest.mark.parametrize(("memory", "wanted"), ZERO)
def test_to_zero(memory: dict[str, float], wanted: int) -> None:
    """Zero comes after a stable window, and after the grace unless the hold queue has been in the path."""
    snapshot = at(seen(wished=1, ready=1), **memory)
    assert decide(snapshot, KPA, NOW).replicas == wanted


def test_retention_outlasts_the_path() -> None:
    """The last replica stays for its retention however the requests go."""
    policy = replace(KPA, options=KpaOptions(retention=Seconds(100.0)))
    assert decide(at(seen(wished=1, ready=1), idle_since=T0 - 99, path_since=T0 - 500), policy, NOW).replicas == 1
    assert decide(at(seen(wished=1, ready=1), idle_since=T0 - 100, path_since=T0 - 500), policy, NOW).replicas == 0


def test_it_decides_by_its_tick_and_when_it_is_poked() -> None:
    """Each two seconds, since its rates are by tick; at once when there is nothing and somebody asks."""
    busy = seen(wished=1, ready=1, running=50, demand={"stable": 50.0, "panic": 50.0})
    early = decide(at(busy, decided_at=T0 - 1, began_at=T0 - 99), KPA, NOW)
    assert (early.replicas, early.again_at) == (1, T0 + 1)
    poked = decide(at(seen(wished=0, waiting=1), decided_at=T0 - 1, active_since=None), KPA, NOW)
    assert poked.replicas == 1


def test_a_young_average_is_divided_by_its_age() -> None:
    """Buckets divide by the seconds since demand began: forty requests for three seconds are forty, not two."""
    snapshot = seen(wished=1, running=40, demand={"stable": 3 * 40 / 60, "panic": 3 * 40 / 6})
    policy = replace(KPA, panic_window=Seconds(6.0))
    decision = decide(at(snapshot, began_at=T0 - 2.5, active_since=T0 - 2), policy, NOW)
    assert decision.replicas == 4


def test_a_delay_window_keeps_what_later_steps_do_not_reach() -> None:
    """Only falling steps are remembered, since a later and higher one covers those before it."""
    memory = KpaMemory(decided_at=T0 - 2, delayed=(Sample(at=T0 - 10, amount=3.0), Sample(at=T0 - 5, amount=1.0)))
    scaled = scale(Seen(20, 20, 3), numbers(10, delay=300.0), memory, NOW)
    assert [one.amount for one in scaled.memory.delayed] == [3.0, 2.0]
