"""A simulated run, small enough to check by hand; and what is true of all runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Figures, Task, replay
from deploy.simulation.requests import RequestTrace, Rows
from deploy.simulation.running import Simulation, Wished, flaps
from deploy.simulation.setting import Service, Setting, Starting

PLAIN = Setting(
    service=Service(base=0.0, crowding=0.0), starting=Starting(seconds=10.0, spread=0.0), slots=2, max_replicas=8
)


def trace(*requests: tuple[float, float], model: str = "m") -> RequestTrace:
    """(arrival, seconds)."""
    rows = Rows.empty()
    for arrived, seconds in requests:
        rows.add(arrived, model, (0, 0), seconds)
    return rows.trace()


def run(policy: str, given: RequestTrace, setting: Setting = PLAIN) -> Figures:
    """What a policy does."""
    return Task(given, read_typed(policy), setting).run().figures


def test_the_first_request_waits_for_the_start_and_the_next_for_nothing() -> None:
    """Ten seconds, as a start takes; 300 s of keep-alive after the last, to the second."""
    figures = run("relume:slo=0", trace((0.0, 2.0), (12.0, 2.0)))
    assert (figures.held_p99, figures.activations, figures.starts) == (pytest.approx(9.9), 1, 1)
    assert figures.gpu_seconds == pytest.approx(14.0 + 300.0, abs=2.0)
    assert figures.idle_gpu_seconds == pytest.approx(300.0, abs=2.0)
    assert figures.within_slo == 0.5


def test_first_come_first_served() -> None:
    """Five at once on one replica of two slots: two, two, one."""
    simulated = Simulation(
        trace(*[(0.0, 4.0)] * 5), {"m": read_typed("relume:maxReplicas=1").resolve(PLAIN)}, PLAIN
    ).run()
    assert list(simulated.held) == [10.0, 10.0, 14.0, 14.0, 18.0]


def test_who_waits_for_too_long_is_refused() -> None:
    """After `maxWait`, which counts as not kept."""
    figures = run("relume:maxReplicas=1", trace(*[(0.0, 100.0)] * 3), replace(PLAIN, max_wait=60.0))
    assert (figures.refused, figures.held_p99) == (1, pytest.approx(60.0, abs=1.1))


def test_a_policy_that_knows_the_future_lets_nobody_wait_for_a_start() -> None:
    """The oracle starts before the second burst; the first is at the very beginning, which nobody can foresee."""
    burst = trace((0.0, 1.0), *[(100.0, 5.0)] * 6)
    assert run("oracle", burst).within_slo == pytest.approx(6 / 7)
    assert run("oracle", burst).gpu_seconds < run("relume", burst).gpu_seconds


def test_ones_own_policy(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by its path; one that raises is replaced in the end, and counted."""
    assert tmp_path is not None
    from pathlib import Path  # noqa: PLC0415 - beside its only use

    folder = Path(str(tmp_path))
    (folder / "sim_policies.py").write_text(
        "def two(snapshot, policy, now):\n    return 2\ndef no(snapshot, policy, now):\n    raise RuntimeError('no')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(folder)
    assert run("sim_policies:two", trace((0.0, 1.0))).most_replicas == 2
    broken = run("sim_policies:no", trace(*[(float(at), 1.0) for at in range(200)]))
    assert broken.policy_failures == 5
    assert broken.refused == 0


arrivals = st.lists(st.tuples(st.floats(0.0, 120.0), st.floats(0.01, 20.0)), min_size=1, max_size=40)
NAMES = ("relume", "kpa", "keda", "hpa", "keepalive(1m)", "concurrency", "hybrid-histogram", "relume:coldStartCost=5m")


@settings(max_examples=15, deadline=None)
@given(requests=arrivals, policy=st.sampled_from(NAMES), gpus=st.sampled_from([None, 1, 3]), seed=st.integers(0, 3))
def test_every_request_is_served_once_or_refused_and_the_same_again(
    requests: list[tuple[float, float]], policy: str, gpus: int | None, seed: int
) -> None:
    """Nobody is lost, no GPU is used twice, nothing is idle for longer than it is there; and the seed decides all."""
    setting = replace(PLAIN, gpus=gpus, seed=seed, starting=Starting(seconds=5.0, spread=0.3, fails=0.1))
    given = trace(*requests)
    policies = {"m": read_typed(policy).resolve(setting)}
    one, again = (Simulation(given, policies, setting).run() for _ in range(2))
    held, first = np.array(one.held), np.array(one.first)
    assert np.isfinite(held).sum() + np.isinf(held).sum() == len(given)
    assert (np.isinf(held) == np.isinf(first)).all()
    assert (held >= 0).all()
    assert 0 <= one.cost.idle_seconds <= one.cost.gpu_seconds + 1e-6
    if gpus is not None:
        assert one.cost.gpu_seconds <= gpus * one.seconds + 1e-6
    assert (list(again.held), again.wishes, again.cost) == (list(one.held), one.wishes, one.cost)


def test_over_the_cores_is_the_same() -> None:
    """One process or several: the same figures, in the order they were asked for."""
    given = trace(*[(at * 0.5, 1.0) for at in range(200)])
    policies = [read_typed(text) for text in ("kpa", "relume", "keda:cooldown=1m")]
    told: list[int] = []
    here = replay(given, policies, PLAIN, 1, told.append)
    assert list(here) == ["kpa", "relume", "keda:cooldown=1m"]
    assert sum(told) == 600
    assert here["kpa"] == Task(given, policies[0], PLAIN).run()


def test_a_flap_is_more_soon_after_less() -> None:
    """Within 300 s, of the same model."""
    wishes = [(0, "a", 2), (100, "a", 1), (399, "a", 2), (400, "b", 1), (500, "a", 1), (900, "a", 2)]
    assert flaps(tuple(Wished(float(at), model, replicas) for at, model, replicas in wishes)) == 1
