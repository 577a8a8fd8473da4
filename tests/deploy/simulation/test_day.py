"""What a day of some models comes to, to the last digit: whoever makes the simulation faster changes none of it."""

from __future__ import annotations

import json

import pytest

from bench.day import day
from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import as_json, replay
from deploy.simulation.requests import first_seconds
from deploy.simulation.setting import Setting

TOLD = {
    "relume": {
        "coldStarts": 110, "memoryGbSeconds": None, "gpuSeconds": 40148.63, "idleGpuSeconds": 36230.748,
        "requests": 144, "withinSlo": 0.145833, "heldSecondsP99": 45.327, "decisions": 2797, "flaps": 12,
        "heldSecondsP50": 28.248, "firstTokenSecondsP95": 40.823, "refused": 0, "starts": 110, "failedStarts": 0,
        "mostReplicas": 6, "recorded": 608, "policyFailures": 0,
    },
    "kpa": {
        "coldStarts": 125, "memoryGbSeconds": None, "gpuSeconds": 12301.297, "idleGpuSeconds": 7915.411,
        "requests": 144, "withinSlo": 0.041667, "heldSecondsP99": 45.327, "decisions": 6926, "flaps": 17,
        "heldSecondsP50": 30.554, "firstTokenSecondsP95": 40.848, "refused": 0, "starts": 125, "failedStarts": 0,
        "mostReplicas": 3, "recorded": 652, "policyFailures": 0,
    },
}  # fmt: skip
"""Of the first six hours of 30 models. Who makes a policy decide otherwise changes it, and says so in the commit."""


def _report(policy: str, seed: int) -> str:
    trace = first_seconds(day(30, seed=0, each=20.0), 21_600.0)
    outcomes = replay(trace, [read_typed(policy)], Setting(seed=seed), 1, lambda _: None)
    return json.dumps(as_json(outcomes)[policy])


@pytest.mark.parametrize("policy", TOLD)
def test_a_day_is_what_it_was(policy: str) -> None:
    """The same report, byte for byte."""
    assert _report(policy, 1) == json.dumps(TOLD[policy])


def test_another_seed_draws_other_starts() -> None:
    """Figures that did not depend on it would be none."""
    assert json.loads(_report("relume", 2))["gpuSeconds"] != TOLD["relume"]["gpuSeconds"]
