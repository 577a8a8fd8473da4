"""A decision as it stands in the log, and the same decision taken again from there."""

from __future__ import annotations

import logging
from typing import Final

from autoscaler.codec import memory_json, policy_json, read_memory, read_policy, read_snapshot, snapshot_json
from autoscaler.core.decide import decide
from autoscaler.core.model import Decision, Memory, Reason, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.view import Wish
from autoscaler.own import own_policy
from events.types.decisions import WishDecided
from events.units import Instant

logger = logging.getLogger(__name__)
_KNOWN: Final = frozenset(reason.value for reason in Reason)


def wish_of(snapshot: Snapshot, policy: ScalingPolicy, decision: Decision) -> WishDecided:
    """The event that records a decision, with all that it was taken from."""
    return WishDecided(
        model=snapshot.model,
        uid=snapshot.uid,
        revision=snapshot.revision,
        replicas=decision.replicas,
        priority=policy.priority,
        marginal_gain=decision.marginal_gain,
        deadline=decision.deadline,
        kept=decision.kept,
        waits=decision.waits,
        tiers=decision.tiers,
        reasons=tuple(reason.value for reason in decision.reasons),
        snapshot=snapshot_json(snapshot),
        policy=policy_json(policy),
        memory=memory_json(decision.memory),
    )


def replay(wish: WishDecided) -> Decision:
    """The decision of a record, taken again by today's code. ValueError when it cannot be read,
    OwnPolicyFailed when the model's own policy is not here.

    (Decisions that record that a policy failed show what the policy would have said without the failure.)
    """
    snapshot, policy = read_snapshot(wish.snapshot), read_policy(wish.policy)
    return decide(snapshot, policy, Instant(snapshot.taken_at), own_policy(policy.name))


def read_wish(wish: WishDecided, at: Instant) -> tuple[Wish, Memory]:
    """The wish that stands in the log, as another process (or release) left it.

    Its number counts whatever else is unreadable: reasons that this release does not know are dropped, a memory or a
    policy that it cannot read is empty or None.
    """
    memory, policy = Memory(), None
    try:
        memory = read_memory(wish.memory)
        policy = read_policy(wish.policy)
    except ValueError as error:
        logger.warning("wish of %s has a memory or policy that cannot be read: %s", wish.model, error)
    reasons = tuple(Reason(reason) for reason in wish.reasons if reason in _KNOWN)
    use = (wish.kept, wish.waits)
    return Wish(
        wish.uid,
        wish.revision,
        wish.replicas,
        reasons,
        policy,
        at,
        memory.recommended,
        use,
        wish.tiers,
        _unmeasured(wish),
    ), memory


def _unmeasured(wish: WishDecided) -> tuple[str, ...]:
    """As `Needed.unmeasured`, of the signals that the decision saw."""
    told = wish.snapshot.get("signals")
    seen = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return tuple(str(one.get("name")) for one in seen if one.get("need") is None and one.get("error"))
