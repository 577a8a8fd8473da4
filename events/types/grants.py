"""`relume.grants`: what may run, by name. Written by the allocator; followed by the cluster adapter and people."""

from __future__ import annotations

from typing import Final

from events.kinds import event, value
from events.names import Topic
from events.types.shared import At, Count, Resources

CALL_LATE: Final = "late"
"""Why a call for nodes was taken back: none came in time."""
CALL_CANCELLED: Final = "cancelled"
"""Likewise: somebody took a stand-in of it away."""


@value
class Placement:
    """Where a replica runs and which cards of that node it has (ids as in `relume.cards`)."""

    node: str
    gpus: tuple[str, ...] = ()


@value
class ReplicaGrant:
    """One replica that may run. `drain`: it must take no new request and go when its last one is done."""

    replica: str
    revision: Count
    placement: Placement
    resources: Resources
    drain: bool = False


@value
class NodeCall:
    """More nodes are asked for: `replicas` stand-ins wait, from `since` on and at most `until` then.

    Taken back (`replicas` 0, `reason` says why) it is made again at `again_at`; `tries` were taken back in a row.
    """

    replicas: Count
    since: At
    until: At
    tries: Count = 0
    again_at: At | None = None
    reason: str = ""


@value
class Shortage:
    """What the wish needs and is not free: how many replicas are not granted, of which resources each, and why.
    `call`: what is asked of whoever adds nodes to the cluster."""

    replicas: Count
    resources: Resources
    message: str
    call: NodeCall | None = None


@event("relume.grant.decided", Topic.GRANTS)
class GrantDecided:
    """All replicas that a model may have, by name. State of key ``model/NAME``.

    A replica that is not named here must stop. `reasons` are enum values of the allocator. `wished` is the number it
    answered (wish or override). `asleep`: so many that are not wanted any more are worth keeping in their sleep; None:
    as their declaration says.
    """

    model: str
    uid: str
    revision: Count
    wished: Count
    replicas: tuple[ReplicaGrant, ...]
    shortage: Shortage | None = None
    reasons: tuple[str, ...] = ()
    asleep: Count | None = None


@event("relume.leadership.taken", Topic.GRANTS)
class LeadershipTaken:
    """From this record's offset on, `leader` alone writes grants of `pool`; the offset is its epoch.

    State of key ``pool/NAME``. The cluster adapter refuses grants with a smaller epoch.
    """

    pool: str
    leader: str
