"""What is not known of a model's demand. Unknown is not zero: no policy takes anything away by it.

`relume` has rules of its own, which know more; the others hold what is wished while any of this is so.
"""

from __future__ import annotations

from dataclasses import replace

from autoscaler.core.model import Decision, Reason, Snapshot


def unknown(snapshot: Snapshot) -> Reason | None:
    """Why what is seen may be too little: a gateway fell silent, the past has not been read back since a restart, or a
    number from outside has run out. None: all is known."""
    if snapshot.demand.silent:
        return Reason.DEMAND_UNKNOWN
    if not snapshot.history_read:
        return Reason.HISTORY_UNREAD
    return Reason.SIGNAL_STALE if snapshot.demand.stale_signals else None


def wished(snapshot: Snapshot) -> int:
    """What was wished last; without a wish on record, what is there."""
    have = snapshot.replicas.ready + snapshot.replicas.starting
    return have if snapshot.wished is None else snapshot.wished


def holding(snapshot: Snapshot, decision: Decision) -> Decision:
    """The decision, but nothing less than what was wished while something is not known."""
    before, why = wished(snapshot), unknown(snapshot)
    if why is None or decision.replicas >= before:
        return decision
    return replace(decision, replicas=before, reasons=(why,), kept=0)
