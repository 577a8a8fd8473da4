"""Ours against the others at equal GPU-seconds, on published traces of requests to language models.

Each policy has a knob between cost and attainment; its curve is what it keeps at each cost. Compared are the best
points that cost no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from deploy.simulation.request_files import read_azure_llm
from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Task
from deploy.simulation.requests import RequestTrace, Rows
from deploy.simulation.setting import Setting
from tests.support.needs import traces_folder

pytestmark = [pytest.mark.needs("traces"), pytest.mark.slow]

HALF = 1740.0
"""Seconds after which the second half of Azure's hours begins: the rules were found on the first half, so only the
second is judged here (docs/decisions/0061-how-many-may-wait.md)."""


def second_half(name: str) -> RequestTrace:
    """Of one of Azure's traces."""
    whole = read_azure_llm(traces_folder() / name, 0)
    rows = Rows.empty()
    for index in np.flatnonzero(whole.arrived >= HALF):
        tokens = (int(whole.tokens_in[index]), int(whole.tokens_out[index]))
        rows.add(float(whole.arrived[index]), whole.names[whole.model[index]], tokens, float(whole.seconds[index]))
    return rows.trace()


def curve(trace: RequestTrace, policies: Sequence[str]) -> list[tuple[float, float]]:
    """(GPU-seconds, part within the objective) of each."""
    runs = [Task(trace, read_typed(policy), Setting()).run().figures for policy in policies]
    return [(one.gpu_seconds, one.within_slo) for one in runs]


def best(points: Sequence[tuple[float, float]], cost: float) -> float:
    """The most that is kept at no more than this cost."""
    return max((kept for price, kept in points if price <= cost), default=0.0)


def test_bursts_to_a_code_model() -> None:
    """Azure's code trace (a fifth of its minutes empty, peaks of four times the mean): at the cost of each of the
    others' ours keeps more, three points and more of a hundred than KEDA's where that is dearest."""
    trace = second_half("AzureLLMInferenceTrace_code.csv")
    ours = curve(trace, ["relume", "relume:slo=3s", "relume:slo=0"])
    for cost, kept in curve(trace, ["keda:target=12", "concurrency:target=4", "kpa:target=16,lastReplicaRetention=5m"]):
        assert best(ours, cost) > kept, f"{kept:.4f} for {cost:.0f}"
    ((cost, kept),) = curve(trace, ["keda:target=8"])
    assert best(ours, cost) >= kept + 0.025


def test_conversations() -> None:
    """Azure's conversation trace (hardly any bursts): at the cost of each of the others' ours keeps more."""
    trace = second_half("AzureLLMInferenceTrace_conv.csv")
    ours = curve(trace, [f"relume:target={target},keepAlive=61s" for target in (14, 10, 8)])
    peers = ["kpa:target=16", "kpa:target=12", "kpa:target=8", "keda:target=12", "concurrency:target=8"]
    for cost, kept in curve(trace, peers):
        assert best(ours, cost) > kept, f"{kept:.4f} for {cost:.0f}"
