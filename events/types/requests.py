"""`relume.requests`: demand. Written by gateways and foreign producers; followed by the autoscaler and dashboards."""

from __future__ import annotations

from typing import Final

from events.kinds import event, hot_value
from events.names import Topic
from events.types.shared import Amount, At, Count, Sketch


@hot_value
class Levels:
    """How many requests run (hold a lease) and wait (hold a ticket) at one instant."""

    running: Count = 0
    waiting: Count = 0


@event("relume.request.window", Topic.REQUESTS, hot=True)
class RequestWindow:
    """What one gateway saw of one model's revision from `started_at` to `ended_at` (of the gateway's clock).

    `running_seconds` and `waiting_seconds` are exact integrals of the two levels over the interval (request-seconds).
    A window with the same (source, model, revision, `started_at`) replaces the earlier one: it has grown. Sent at once
    on an edge, each second while anything runs or waits, and once with zeros at the end.
    """

    model: str
    uid: str
    revision: Count
    gateway: str
    started_at: At
    ended_at: At
    running_seconds: Amount = 0.0
    waiting_seconds: Amount = 0.0
    now: Levels = Levels()
    peak: Levels = Levels()
    arrivals: Count = 0
    starts: Count = 0
    finishes: Count = 0
    failures: Count = 0
    refusals: Count = 0
    abandoned: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    bytes_in: Count = 0
    bytes_out: Count = 0
    held: Sketch = Sketch()
    first_byte: Sketch = Sketch()
    total: Sketch = Sketch()
    oldest_waiting_since: At | None = None
    earliest_deadline: At | None = None
    edge: bool = False


COUNTS: Final = (
    "arrivals", "starts", "finishes", "failures", "refusals", "abandoned", "tokens_in", "tokens_out", "bytes_in",
    "bytes_out",
)  # fmt: skip
"""The fields of a window that count what happened in it: within an interval they only grow."""


@event("relume.activation.requested", Topic.REQUESTS)
class ActivationRequested:
    """Anybody asks that a model be awake: `replicas` at least, until `until` (default: until they are ready, and its
    keep-alive after that; a start that fails or takes too long ends the wait)."""

    model: str
    replicas: Count = 1
    until: At | None = None


@event("relume.request.arrived", Topic.REQUESTS)
class RequestArrived:
    """A foreign gateway saw a request arrive; it runs or waits until `relume.request.finished` names it too."""

    model: str
    request: str


@event("relume.request.finished", Topic.REQUESTS)
class RequestFinished:
    """The request that arrived elsewhere is done."""

    model: str
    request: str
    ok: bool = True
