"""Which events programs other than relume may tell (design §4): demand, numbers, wishes to be awake, and requests."""

from __future__ import annotations

from typing import Final

from events.types.inference import InferenceRequested
from events.types.metrics import BacklogMeasured, LagMeasured, QueryMeasured, ReplicaMetrics, SignalMeasured
from events.types.requests import ActivationRequested, RequestArrived, RequestFinished

FOREIGN: Final = (
    ActivationRequested, RequestArrived, RequestFinished, BacklogMeasured, LagMeasured, QueryMeasured, SignalMeasured,
    ReplicaMetrics, InferenceRequested,
)  # fmt: skip
"""States have one writer each; a window is told by the gateway that holds it."""
