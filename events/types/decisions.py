"""`relume.decisions`: wishes. Written by the autoscaler that owns the partition; followed by allocator and people."""

from __future__ import annotations

from pydantic import JsonValue

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Amount, At, Count


@value
class Tiers:
    """Of a model whose cold start has a price: in which tiers beneath its wished replicas something is worth keeping.

    `asleep`: so many more replicas, in their sleep; None: as its declaration says. `soon`: the chance that it is asked
    within an hour. `second`: GPU-seconds that a second of its start is worth; None: no start was measured. The last two
    are rounded to powers of two, and renewed each ten minutes at most.
    """

    asleep: Count | None = None
    soon: Amount = 0.0
    second: Amount | None = None


@event("relume.wish.decided", Topic.DECISIONS)
class WishDecided:
    """How many replicas the autoscaler wants for a model: not capped by what there is. State of key ``model/NAME``.

    `reasons` are the decision's reasons, in the order they applied, as enum values (`autoscaler.core.model.Reason`).
    `snapshot`, `policy` and `memory` are the autoscaler's own canonical JSON: the decision can be replayed from them.
    `marginal_gain` orders wishes of equal priority: the allocator gives the next replica to the largest.
    `kept`: so many of `replicas` only live on, by their keep-alive or a forecast, and nothing has needed them for a
    stable window; 0 where that is not known. `waits`: requests wait, and fewer replicas are ready than are wished.
    `tiers`: what else is worth keeping; None: its cold start has no price.
    """

    model: str
    uid: str
    revision: Count
    replicas: Count
    priority: int
    marginal_gain: Amount = 0.0
    deadline: At | None = None
    kept: Count = 0
    waits: bool = False
    tiers: Tiers | None = None
    reasons: tuple[str, ...]
    snapshot: dict[str, JsonValue]
    policy: dict[str, JsonValue]
    memory: dict[str, JsonValue]


@event("relume.ownership.taken", Topic.DECISIONS)
class OwnershipTaken:
    """From this record's offset on, `owner` alone writes wishes of `partition`; the offset is its epoch.

    State of key ``ownership/PARTITION``; the partition of such a key is the number in it, so it stands where the wishes
    stand. Whoever reads wishes refuses those with a smaller epoch.
    """

    partition: Count
    owner: str
