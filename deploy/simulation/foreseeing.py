"""`oracle` at the grain of requests: it knows when each request comes and how long it would take alone.

It asks for what will be needed as early as a start takes, so that hardly anybody waits for one. Not quite the bound:
it neither knows that requests slow each other down, nor which start will be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Decision, Policy, Reason, Snapshot
from autoscaler.core.policy import ScalingPolicy
from deploy.simulation.requests import RequestTrace
from deploy.simulation.setting import Setting
from events.units import Instant, Seconds

GRAIN = 1.0
"""Seconds between two numbers of the plan."""

LATE = 2.0
"""Deviations of the spread of starts that are allowed for."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How many requests run at once in each second of the simulation, if all are served at once; of one model."""

    level: NDArray[np.int64]

    def most(self, begin: float, end: float) -> int:
        """Between two times."""
        part = self.level[max(0, int(begin / GRAIN)) : max(0, int(end / GRAIN)) + 1]
        return int(part.max()) if part.size else 0


def foresee(trace: RequestTrace, setting: Setting, begins: float) -> Policy:
    """The oracle of this trace, whose first request comes at the instant `begins`."""
    plans = _plans(trace, setting)
    lead = setting.starting.seconds * exp(LATE * setting.starting.spread) + 2 * GRAIN

    def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        at = now - begins
        level = plans[snapshot.model].most(at, at + lead)
        here = snapshot.demand.running + snapshot.demand.waiting
        replicas = ceil(level / policy.slots) if level else min(1, here)
        return Decision(
            replicas=replicas, reasons=(Reason.FORECAST,), memory=snapshot.memory, again_at=Seconds(now + 2 * GRAIN)
        )

    return decide


def _plans(trace: RequestTrace, setting: Setting) -> Mapping[str, _Plan]:
    cells = int((trace.span + setting.settles) / GRAIN) + 2
    plans = {}
    for model, name in enumerate(trace.names):
        changes = np.zeros(cells + 1, dtype=np.int64)
        for request in np.flatnonzero(trace.model == model):
            tokens = (int(trace.tokens_in[request]), int(trace.tokens_out[request]))
            whole = setting.service.times(tokens, float(trace.seconds[request]), 0)[1]
            arrived = float(trace.arrived[request])
            changes[min(cells, int(arrived / GRAIN))] += 1
            changes[min(cells, int((arrived + whole) / GRAIN) + 1)] -= 1
        plans[name] = _Plan(np.cumsum(changes))
    return plans
