"""The cold start's slice of the declaration: the promise, the hold queue, heartbeats, where the weights are."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from coldstart.core.cache.content import check_digest
from coldstart.core.policy import ColdStartPolicy, HoldPolicy
from events.spec import Duration, Quantity, Spec
from events.units import Bytes, Seconds


class HoldSpec(Spec):
    """Bounds of the hold queue: requests that wait for a slot."""

    max_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    """Most requests that wait; one more gets 429."""
    max_bytes: Annotated[Quantity, Field(ge=0)] = 64 << 20
    """Most bytes of their bodies together."""
    max_wait: Duration = 300.0
    """Longest wait for a slot, from arrival; after it the request gets 504."""


class ColdStartSpec(Spec):
    """What a request that finds no replica may expect."""

    sla: Annotated[Duration, Field(gt=0)] = 3.0
    """The promise: arrival to first byte when the model has to start."""
    hold: HoldSpec = HoldSpec()
    """Bounds of the hold queue."""
    heartbeat: Annotated[Duration, Field(gt=0)] | None = None
    """Send held streams an SSE comment this often (phase and ETA); commits the status 200. Absent: never."""

    def resolve(self) -> ColdStartPolicy:
        """Plain numbers."""
        return ColdStartPolicy(
            sla=Seconds(self.sla),
            hold=HoldPolicy(
                max_requests=self.hold.max_requests,
                max_bytes=Bytes(self.hold.max_bytes),
                max_wait=Seconds(self.hold.max_wait),
            ),
            heartbeat=None if self.heartbeat is None else Seconds(self.heartbeat),
        )


class WeightsSpec(Spec):
    """Where the model's weights are."""

    uri: Annotated[str, Field(min_length=1)]
    """What the engine loads: a local path or `file://` URI, used where it lies, or a remote address (`https://` …),
    which the node's weight cache fetches and verifies first."""
    digest: Annotated[str, AfterValidator(check_digest)] | None = None
    """`sha256:` and 64 hexadecimal digits that the content must have. With it, a hit asks nobody."""
    include: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Which of several files, by patterns such as `*.safetensors`; absent: all."""
    exclude: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Which of them not."""
    cache: bool | None = None
    """Whether they go through the node's weight cache. Absent: remote addresses do, local files do not."""
