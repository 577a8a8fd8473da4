"""How a model's call for nodes is told: in a word, as a condition, with its numbers."""

from __future__ import annotations

from deploy.api.shapes import Condition, NodeCallStatus
from events.types.grants import CALL_CANCELLED, GrantDecided, NodeCall
from events.types.replicas import ReplicasObserved
from events.units import format_instant
from preemption.core.calling import words

CALLS = "CallsForNodes"
"""Stand-ins wait."""
LATE = "NoNodeCame"
"""The call was taken back: no replica found a place in time."""
CANCELLED = "CallCancelled"
"""Likewise: somebody deleted a stand-in."""


def short_reason(grant: GrantDecided) -> str:
    """The word for a shortage: what is done about it, if anything is."""
    call = _call(grant)
    return "Shortage" if call is None else _word(call)


def call_condition(grant: GrantDecided | None, observed: ReplicasObserved | None) -> list[Condition]:
    """Nothing for a model that calls for nothing."""
    told, call = call_status(grant, observed), _call(grant)
    if told is None or call is None:
        return []
    return [Condition(type="NodesCalled", status=str(call.again_at is None), reason=told.reason, message=told.message)]


def call_status(grant: GrantDecided | None, observed: ReplicasObserved | None) -> NodeCallStatus | None:
    """The numbers, and how many stand-ins are seen to wait (None: nobody has told)."""
    call = _call(grant)
    if call is None:
        return None
    seen = None if observed is None else observed.stand_ins
    return NodeCallStatus(
        replicas=call.replicas, waiting=None if seen is None else seen.waiting, since=format_instant(call.since),
        until=format_instant(call.until), again_at=None if call.again_at is None else format_instant(call.again_at),
        reason=_word(call), message=words(call) if seen is None or not seen.message else seen.message,
    )  # fmt: skip


def _call(grant: GrantDecided | None) -> NodeCall | None:
    return None if grant is None or grant.shortage is None else grant.shortage.call


def _word(call: NodeCall) -> str:
    if call.again_at is None:
        return CALLS
    return CANCELLED if call.reason == CALL_CANCELLED else LATE
