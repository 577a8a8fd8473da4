"""The life of a replica, as one table.

Everything that changes a replica's state is in `TRANSITIONS`; a pair that is not there is a bug of the caller and
raises. What follows from a state (who may lease, what to probe) is decided elsewhere.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from events.types.replicas import ReplicaState


class ReplicaEvent(StrEnum):
    """What can happen to a replica that exists."""

    ANSWERED = "answered"
    """It answered a one-token request: it is ready."""
    DRAIN_ORDERED = "drain-ordered"
    """It shall take no new request and go when its last one is done."""
    DRAIN_TAKEN_BACK = "drain-taken-back"
    """It is wanted after all, and the stop has not begun."""
    FELL_ASLEEP = "fell-asleep"
    """Its last request is done, its engine sleeps: its cards and cores are free."""
    WOKEN = "woken"
    """It is wanted again, on the cards that it had."""
    STOP_BEGAN = "stop-began"
    """It was told to end."""
    BROKE = "broke"
    """It ended by itself, did not start, or was killed because it did not answer or used too much memory."""
    GONE = "gone"
    """No process of it is left: its cards, cores and memory are free."""


class IllegalTransition(Exception):
    """An event that cannot happen in this state: a bug of the caller."""

    def __init__(self, state: ReplicaState, event: ReplicaEvent) -> None:
        super().__init__(f"a replica that is {state} cannot have {event!r}")
        self.state = state
        self.event = event


TRANSITIONS: Final[dict[tuple[ReplicaState, ReplicaEvent], ReplicaState | None]] = {
    (ReplicaState.STARTING, ReplicaEvent.ANSWERED): ReplicaState.READY,
    # A starting replica has no lease, so it is never drained: it is stopped.
    (ReplicaState.STARTING, ReplicaEvent.STOP_BEGAN): ReplicaState.STOPPING,
    (ReplicaState.STARTING, ReplicaEvent.BROKE): ReplicaState.FAILED,
    (ReplicaState.READY, ReplicaEvent.DRAIN_ORDERED): ReplicaState.DRAINING,
    (ReplicaState.READY, ReplicaEvent.STOP_BEGAN): ReplicaState.STOPPING,
    (ReplicaState.READY, ReplicaEvent.BROKE): ReplicaState.FAILED,
    (ReplicaState.DRAINING, ReplicaEvent.DRAIN_TAKEN_BACK): ReplicaState.READY,
    (ReplicaState.DRAINING, ReplicaEvent.STOP_BEGAN): ReplicaState.STOPPING,
    (ReplicaState.DRAINING, ReplicaEvent.BROKE): ReplicaState.FAILED,
    (ReplicaState.DRAINING, ReplicaEvent.FELL_ASLEEP): ReplicaState.SLEEPING,
    (ReplicaState.SLEEPING, ReplicaEvent.WOKEN): ReplicaState.STARTING,
    (ReplicaState.SLEEPING, ReplicaEvent.STOP_BEGAN): ReplicaState.STOPPING,
    (ReplicaState.SLEEPING, ReplicaEvent.BROKE): ReplicaState.FAILED,
    (ReplicaState.STOPPING, ReplicaEvent.GONE): None,
    (ReplicaState.FAILED, ReplicaEvent.GONE): None,
}
"""(state, event) → the next state; None: the replica is no more."""


def after(state: ReplicaState, event: ReplicaEvent) -> ReplicaState | None:
    """The state that follows; None when the replica is no more. Raises IllegalTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
