"""What the slot authority wants done. The desk does it, in order."""

from __future__ import annotations

from dataclasses import dataclass

from events.names import ModelName, ReplicaName
from events.types.phases import ColdStartFinished
from events.types.requests import RequestWindow
from runtime.core.records import Record
from runtime.ports import Lease, Refusal


class Grant(Record):
    """Tell the request that a slot is its own."""

    FIELDS = ("lease",)
    __slots__ = FIELDS

    def __init__(
        self,
        lease: Lease,
    ) -> None:
        self.lease = lease


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the request that there will be none."""

    request: str
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class SendWindow:
    """Publish a window of demand."""

    window: RequestWindow


@dataclass(frozen=True, slots=True)
class Drained:
    """Publish that a draining replica has no lease left."""

    model: ModelName
    replica: ReplicaName


@dataclass(frozen=True, slots=True)
class Suspect:
    """Publish that a replica should be probed."""

    model: ModelName
    replica: ReplicaName
    reason: str


@dataclass(frozen=True, slots=True)
class TellColdStart:
    """Publish how long the first request of a cold start took."""

    finished: ColdStartFinished


@dataclass(frozen=True, slots=True)
class Expect:
    """A replica that is not ready yet listens at this address, and `requests` wait for it."""

    host: str
    port: int
    requests: int


Command = Grant | Refuse | SendWindow | Drained | Suspect | TellColdStart | Expect
