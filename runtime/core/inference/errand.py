"""An errand: an asynchronous request that this process has read and not yet settled. Its states are a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from events.types.inference import InferenceRequested, Origin
from events.units import Instant

Place = tuple[str, int]
"""A (topic, partition)."""

NEVER_BEFORE: Final = Instant(0.0)
"""It may be tried at any time."""

Ident = tuple[str, str]
"""(source, id) of a request: the same pair is the same request."""


class State(StrEnum):
    """Where an errand stands."""

    WAITING = "waiting"  # in its model's line, or until it may be tried again
    FOLLOWING = "following"  # another errand with its idempotency key is under way: its answer will do
    ASKED = "asked"  # it has a ticket in the hold queue
    RUNNING = "running"  # it has a lease
    SETTLING = "settling"  # how it ends is being written, together with its offset


class Happening(StrEnum):
    """What may happen to an errand."""

    ASK = "ask"  # its turn came
    FOLLOW = "follow"
    LEASED = "leased"
    REFUSED = "refused"  # not now: the hold queue is full, the model does not start
    FAILED = "failed"  # an attempt came to nothing, and another one may be made
    END = "end"  # it is answered, dead, parked or a repetition


TABLE: Final[dict[tuple[State, Happening], State]] = {
    (State.WAITING, Happening.ASK): State.ASKED,
    (State.WAITING, Happening.FOLLOW): State.FOLLOWING,
    (State.WAITING, Happening.END): State.SETTLING,
    (State.FOLLOWING, Happening.FAILED): State.WAITING,
    (State.FOLLOWING, Happening.END): State.SETTLING,
    (State.ASKED, Happening.LEASED): State.RUNNING,
    (State.ASKED, Happening.REFUSED): State.WAITING,
    (State.ASKED, Happening.END): State.SETTLING,
    (State.RUNNING, Happening.FAILED): State.WAITING,
    (State.RUNNING, Happening.END): State.SETTLING,
}
"""What is not here does not happen: `Errand.go` refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it was read. `model` is its key; `since` when it was first appended; `size` bytes of its body."""

    place: Place
    offset: int
    origin: Origin
    model: str
    caller: str
    requested: InferenceRequested
    since: Instant
    deadline: Instant
    size: int = 0
    parked: bool = False
    """It was read from the topic of parked requests."""
    not_before: Instant = NEVER_BEFORE
    attempts: int = 0
    parks: int = 0

    @property
    def ident(self) -> Ident:
        """See `Ident`."""
        return self.origin.source, self.origin.id

    @property
    def idempotency(self) -> tuple[str, str] | None:
        """What requests that share an answer have in common."""
        key = self.requested.idempotency_key
        return None if key is None else (self.model, key)


class Errand:
    """One request under way. `number` is its name within this process."""

    __slots__ = ("arrival", "attempts", "lined", "not_before", "number", "parking", "state", "waiting_since")

    def __init__(self, number: int, arrival: Arrival, now: Instant) -> None:
        self.number = number
        self.arrival = arrival
        self.state = State.WAITING
        self.attempts = arrival.attempts
        self.not_before = arrival.not_before
        self.waiting_since = now
        self.lined = False
        """Whether it has an entry in its model's line."""
        self.parking = False
        """It ends by being parked: the next one of its name is itself again."""

    def go(self, happening: Happening) -> None:
        """Go on to the next state. AssertionError for what the table does not know: a bug."""
        following = TABLE.get((self.state, happening))
        assert following is not None, f"errand {self.number} is {self.state}: {happening} cannot happen"
        self.state = following

    @property
    def ticket(self) -> str:
        """The name of its request at the hold queue."""
        return f"errand-{self.number}-{self.attempts}"
