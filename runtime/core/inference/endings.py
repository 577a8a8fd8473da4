"""How an errand may end, and what the clerk wants done."""

from __future__ import annotations

from dataclasses import dataclass

from events.envelope import AnyEnvelope
from events.types.inference import FailureReason, InferenceCompleted
from events.units import Instant
from runtime.core.inference.errand import Errand, Place


@dataclass(frozen=True, slots=True)
class Answered:
    """The engine's answer. `chunks` that were told before it; `size` bytes of its body."""

    status: int
    body: object
    size: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Copied:
    """The answer that another request with its idempotency key got."""

    answer: InferenceCompleted


@dataclass(frozen=True, slots=True)
class Dead:
    """No answer. `status`: the engine's last one."""

    reason: FailureReason
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """It waits on the topic of parked requests from now on."""

    why: str
    not_before: Instant


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same request stands elsewhere: nothing is told of this one."""


Ending = Answered | Copied | Dead | Parked | Repeated


@dataclass(frozen=True, slots=True)
class Settlement:
    """An offset that is finished as soon as its ending is told. `errand` None: nobody's; `amends` are told of it."""

    place: Place
    offset: int
    errand: Errand | None = None
    ending: Ending = Repeated()
    amends: tuple[AnyEnvelope, ...] = ()


# Commands.


@dataclass(frozen=True, slots=True)
class Ask:
    """Take a ticket of the hold queue."""

    errand: Errand


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give the ticket back."""

    errand: Errand


@dataclass(frozen=True, slots=True)
class Run:
    """It has its lease: send it."""

    errand: Errand


@dataclass(frozen=True, slots=True)
class Cancel:
    """Its time is up, or its partition is another's now: break off the request."""

    errand: Errand


@dataclass(frozen=True, slots=True)
class Settle:
    """Tell the ending and finish the offset, in one transaction."""

    settlement: Settlement


Command = Ask | Withdraw | Run | Cancel | Settle


def answer_of(errand: Errand, ending: Answered) -> InferenceCompleted:
    """The event that tells an answer."""
    arrival = errand.arrival
    return InferenceCompleted(
        model=arrival.model,
        origin=arrival.origin,
        status=ending.status,
        body=ending.body,  # type: ignore[arg-type]  # JSON as orjson gives it
        attempts=errand.attempts,
        chunks=ending.chunks,
        idempotency_key=arrival.requested.idempotency_key,
        correlation_id=arrival.requested.correlation_id,
    )
