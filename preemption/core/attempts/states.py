"""The states of an attempt and what can happen to it; the table of where each leads.

Source: the state machine of our study of peers (Kueue, KAI, Volcano, Slurm, SkyPilot, KEP-4563), whose closure and
liveness were checked before it was built; the tests check this table again. It differs in one thing: cards pass through
"seen empty" on every way out of a victim that has ended, also when the shortage is gone meanwhile; and disruption
budgets have no state of their own: they govern evictions, and trainers are told, and leave by themselves. One that does
not, and that a budget keeps from being evicted, is told to go on. A pair that is not in the table changes nothing:
messages come late, twice, or not at all; what is the case is told again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where an attempt is."""

    SELECTED = "selected"
    """The victim is chosen and that is on record; nothing was sent."""
    NOTIFIED = "notified"
    """The notice went out."""
    SAVING = "saving"
    """The trainer heard it."""
    SAVED = "saved"
    """A checkpoint of after the notice is committed and was verified."""
    CANCELLING = "cancelling"
    """The shortage is gone; the trainer is told to go on."""
    STOPPING = "stopping"
    """Told to end (SIGTERM or eviction); the grace is running."""
    KILLING = "killing"
    """Told to end at once."""
    DRAINING = "draining"
    """The processes have ended; the cards must be seen empty before anybody gets them."""
    DRAINING_DONE = "draining_done"
    """Likewise, and the job has finished by itself: there is nothing to resume."""
    QUARANTINE = "quarantine"
    """A card is still in use by something that should be gone."""
    CLAIMED = "claimed"
    """The cards are set aside for the shortage."""
    LOST = "lost"
    """The node is gone, or its cards cannot be freed: they count as neither free nor taken."""
    PARKED = "parked"
    """The job waits for capacity."""
    PARKED_AGED = "parked_aged"
    """It has waited so long that it goes before others of its priority."""
    RESUMING = "resuming"
    """The job was started again from its checkpoint."""
    RESUMING_OLDER = "resuming_older"
    """That one could not be loaded; it was started from the one before."""
    CONTINUED = "continued"
    FINISHED = "finished"
    RESUMED = "resumed"
    SKIPPED = "skipped"
    FAILED = "failed"


class Happened(StrEnum):
    """What is seen of the victim, the cluster, the shortage and the clock."""

    SENT = "sent"
    ACK = "ack"
    NACK = "nack"
    PROGRESS = "progress"
    CHECKPOINTED = "checkpointed"
    SAVE_FAILED = "save_failed"
    EXIT_DONE = "exit_done"
    EXIT_SAVED = "exit_saved"
    EXIT_ERROR = "exit_error"
    GONE = "gone"
    """Its processes or pods are not there any more, and nobody knows how they ended."""
    CARDS_EMPTY = "cards_empty"
    TIMEOUT = "timeout"
    SHORTAGE_GONE = "shortage_gone"
    CLAIM_ALIVE = "claim_alive"
    """The wish that the claim is for still stands."""
    BOUND = "bound"
    """The cards went to the replica that they were claimed for."""
    EVICTION_BLOCKED = "eviction_blocked"
    """A disruption budget forbids to make it end by force."""
    NODE_LOST = "node_lost"
    CAPACITY_BACK = "capacity_back"
    STEP_SEEN = "step_seen"
    """The job reported a step beyond its checkpoint."""
    RESTORE_BAD = "restore_bad"
    YIELDS_AGAIN = "yields_again"
    """The job had to yield once more before it was back: it comes back from the newer attempt, if at all."""


ENDS: Final = frozenset({State.CONTINUED, State.FINISHED, State.RESUMED, State.SKIPPED, State.FAILED})
"""States that nothing leaves."""

HOLDS_CARDS: Final = frozenset({
    State.SELECTED, State.NOTIFIED, State.SAVING, State.SAVED, State.CANCELLING, State.STOPPING,
    State.KILLING, State.DRAINING, State.DRAINING_DONE, State.QUARANTINE, State.CLAIMED, State.LOST,
})  # fmt: skip
"""While an attempt is in one of these, its cards belong to it: they must not be given to anyone but its shortage."""

_S, _H = State, Happened

_ENDED = {
    _H.EXIT_DONE: _S.DRAINING_DONE, _H.EXIT_SAVED: _S.DRAINING, _H.EXIT_ERROR: _S.DRAINING, _H.GONE: _S.DRAINING,
    _H.NODE_LOST: _S.LOST,
}  # fmt: skip
"""However the processes end, while they hold the cards."""

_STARTED = {
    _H.STEP_SEEN: _S.RESUMED, _H.TIMEOUT: _S.PARKED, _H.NODE_LOST: _S.PARKED, _H.EXIT_ERROR: _S.PARKED,
    _H.EXIT_SAVED: _S.PARKED, _H.EXIT_DONE: _S.FINISHED, _H.GONE: _S.PARKED, _H.YIELDS_AGAIN: _S.FAILED,
}  # fmt: skip

TABLE: Final[dict[State, dict[Happened, State]]] = {
    _S.SELECTED: {
        **_ENDED, _H.SENT: _S.NOTIFIED, _H.ACK: _S.SAVING, _H.TIMEOUT: _S.SKIPPED, _H.SHORTAGE_GONE: _S.SKIPPED,
    },
    _S.NOTIFIED: {
        **_ENDED, _H.ACK: _S.SAVING, _H.NACK: _S.STOPPING, _H.PROGRESS: _S.SAVING, _H.CHECKPOINTED: _S.SAVED,
        _H.SAVE_FAILED: _S.STOPPING, _H.TIMEOUT: _S.STOPPING, _H.SHORTAGE_GONE: _S.CANCELLING,
    },
    _S.SAVING: {
        **_ENDED, _H.PROGRESS: _S.SAVING, _H.CHECKPOINTED: _S.SAVED, _H.NACK: _S.STOPPING,
        _H.SAVE_FAILED: _S.STOPPING, _H.TIMEOUT: _S.STOPPING, _H.SHORTAGE_GONE: _S.CANCELLING,
    },
    _S.SAVED: {
        **_ENDED, _H.TIMEOUT: _S.STOPPING, _H.SHORTAGE_GONE: _S.CANCELLING,
    },
    _S.CANCELLING: {
        **_ENDED, _H.PROGRESS: _S.CONTINUED, _H.STEP_SEEN: _S.CONTINUED, _H.TIMEOUT: _S.STOPPING,
    },
    _S.STOPPING: {**_ENDED, _H.TIMEOUT: _S.KILLING, _H.EVICTION_BLOCKED: _S.CANCELLING},
    _S.KILLING: {**_ENDED, _H.TIMEOUT: _S.LOST, _H.EVICTION_BLOCKED: _S.CANCELLING},
    _S.DRAINING: {
        _H.CARDS_EMPTY: _S.CLAIMED, _H.TIMEOUT: _S.QUARANTINE, _H.NODE_LOST: _S.LOST,
    },
    _S.DRAINING_DONE: {_H.CARDS_EMPTY: _S.FINISHED, _H.TIMEOUT: _S.FINISHED, _H.NODE_LOST: _S.FINISHED},
    _S.QUARANTINE: {
        _H.CARDS_EMPTY: _S.CLAIMED, _H.TIMEOUT: _S.LOST, _H.NODE_LOST: _S.LOST,
    },
    _S.CLAIMED: {
        _H.CLAIM_ALIVE: _S.CLAIMED, _H.BOUND: _S.PARKED, _H.TIMEOUT: _S.PARKED, _H.SHORTAGE_GONE: _S.PARKED,
        _H.NODE_LOST: _S.LOST,
    },
    _S.LOST: {_H.TIMEOUT: _S.PARKED, _H.GONE: _S.PARKED},
    _S.PARKED: {
        _H.CAPACITY_BACK: _S.RESUMING, _H.TIMEOUT: _S.PARKED_AGED, _H.EXIT_DONE: _S.FINISHED,
        _H.YIELDS_AGAIN: _S.FAILED,
    },
    _S.PARKED_AGED: {
        _H.CAPACITY_BACK: _S.RESUMING, _H.TIMEOUT: _S.FAILED, _H.EXIT_DONE: _S.FINISHED, _H.YIELDS_AGAIN: _S.FAILED,
    },
    _S.RESUMING: {**_STARTED, _H.RESTORE_BAD: _S.RESUMING_OLDER},
    _S.RESUMING_OLDER: {**_STARTED, _H.RESTORE_BAD: _S.FAILED},
}  # fmt: skip
