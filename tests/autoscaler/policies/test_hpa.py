"""`hpa`, `keda`, `keepalive`, `concurrency`: a row a rule, over time, on exact levels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.model import Demand, Memory, Replicas, Snapshot
from autoscaler.core.peers import ConcurrencyOptions, HpaMemory, HpaOptions, KedaOptions, Options
from autoscaler.core.policies.hpa import step
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

NOW = Instant(T0)


def policy(name: str, options: Options | None = None, **fields: object) -> ScalingPolicy:
    """With a target of ten and no bound in sight."""
    return replace(POLICY, **{"name": name, "target": 10.0, "max_replicas": 500, "options": options, **fields})  # type: ignore[arg-type] # as given


def follow(
    chosen: ScalingPolicy, levels: list[tuple[float, int]], until: float, every: float = 1.0
) -> list[tuple[float, int]]:
    """(seconds, replicas) of each change, while `levels` (from, requests) run and replicas follow at once."""
    memory, wished, changes, ticks = Memory(), 0, [], round(until / every)
    for tick in range(ticks + 1):
        at = tick * every
        level = next((requests for start, requests in reversed(levels) if start <= at), 0)
        snapshot = Snapshot(
            model="m", uid="u", revision=1, taken_at=T0 + at, wished=wished, replicas=Replicas(ready=wished),
            demand=Demand(running=level, stable=float(level), panic=float(level), last_active_at=T0 + at),
            memory=memory, history_read=True, followed_since=T0 - 600,
        )  # fmt: skip
        decision = decide(snapshot, chosen, Instant(T0 + at))
        memory = decision.memory
        if decision.replicas != wished:
            wished = decision.replicas
            changes.append((at, wished))
    return changes


TOLERANCE = [
    pytest.param(10, 10.9, 10, id="within a tenth above"),
    pytest.param(10, 11.1, 12, id="above the tolerance: rounded up"),
    pytest.param(10, 9.1, 10, id="within a tenth below"),
    pytest.param(64, 63.0, 64, id="K2908: stuck at 64 of 63"),
    pytest.param(24, 22.0, 24, id="K4791: stuck at 24 of 22"),
    pytest.param(0, 5.0, 0, id="from zero it does nothing"),
    pytest.param(1, 0.0, 1, id="never to zero"),
    pytest.param(1, 50.0, 5, id="up by four pods"),
    pytest.param(10, 50.0, 20, id="or to twice, the larger"),
]


@pytest.mark.parametrize(("current", "need", "wanted"), TOLERANCE)
def test_a_step_of_the_hpa(current: int, need: float, wanted: int) -> None:
    """Tolerance, rounding and the default policies of `behavior`."""
    assert step(current, need, HpaOptions(stabilisation=Seconds(0.0)), HpaMemory(), NOW)[0] == wanted


def test_down_only_to_the_most_of_the_stabilisation_window() -> None:
    """Ten wanted now and then keep ten; after 300 s without, it falls."""
    memory, current, when = HpaMemory(), 10, NOW
    numbers = []
    for need in [10.0, 3.0, 3.0, 10.0, *[3.0] * 21]:
        current, memory = step(current, need, HpaOptions(), memory, when)
        numbers.append(current)
        when = Instant(when + 15.0)
    assert numbers[:23] == [10] * 23
    assert numbers[23:] == [3, 3]


def test_keda_wakes_to_one_and_sleeps_after_the_cooldown() -> None:
    """From zero to one only, then the HPA each 15 s; from any number to zero 300 s after the last activity."""
    changes = follow(policy("keda"), [(10, 60), (100, 0)], 500)
    assert changes == [(10, 1), (11, 5), (26, 6), (386, 1), (399, 0)]


def test_keda_polls() -> None:
    """A source that is looked at each 30 s wakes up to 30 s late."""
    changes = follow(policy("keda", KedaOptions(polling=Seconds(30.0))), [(10, 5)], 60)
    assert changes[0] == (30, 1)


@pytest.mark.parametrize(("requests", "awake"), [(1, False), (2, True)])
def test_keda_activates_above_its_threshold(requests: int, awake: bool) -> None:
    """Case 31: strictly above the activation threshold."""
    options = KedaOptions(activation=1.0)
    assert bool(follow(policy("keda", options), [(5, requests)], 10)) is awake


def test_hpa_is_never_zero() -> None:
    """One is the least, whatever minReplicas says."""
    assert follow(policy("hpa"), [], 600) == [(0, 1)]


def test_keepalive_holds_the_most_of_its_span() -> None:
    """What was needed at once in the last `keepAlive`, to the second."""
    chosen = policy("keepalive", keep_alive=Seconds(100.0))
    assert follow(chosen, [(10, 25), (20, 5), (50, 0)], 300) == [(10, 3), (119, 1), (149, 0)]


def test_kubeai_takes_550_seconds_for_a_step() -> None:
    """The notes' calculation: 0 to 1,000 in flight at a target of 100: 2 at 70 s, 5 at 250 s, 10 at 550 s."""
    changes = follow(policy("concurrency", target=100.0), [(0, 1000)], 620)
    assert changes == [(0, 1), *[(70 + 60 * more, 2 + more) for more in range(9)]]


def test_kubeai_holds_one_request_for_its_window_and_three_votes() -> None:
    """One request in one sample keeps one replica for 600 s and 30 s more."""
    changes = follow(policy("concurrency", ConcurrencyOptions()), [(9, 1), (11, 0)], 700)
    assert changes[0] == (9, 1)
    assert changes[1:] == [(630, 0)]


def test_what_is_unknown_takes_nothing_away() -> None:
    """A gateway that fell silent: every policy keeps what there is."""
    for name in ("keda", "hpa", "keepalive", "concurrency", "hybrid-histogram", "kpa"):
        snapshot = seen(wished=4, ready=4, demand={"silent": 1, "stable": None, "panic": None})
        assert decide(snapshot, policy(name), NOW).replicas == 4, name
