"""When a model that nobody asks goes to zero, as the autoscaler's newest decision tells."""

from __future__ import annotations

from autoscaler.codec import read_memory, read_policy
from autoscaler.core.model import Reason
from events.types.decisions import WishDecided
from events.units import Instant


def idle_at(wish: WishDecided | None) -> Instant | None:
    """When a model that nobody asks goes to zero; None: it does not, or only its forecast could tell."""
    if wish is None or Reason.KEEP_ALIVE not in wish.reasons:
        return None
    try:
        policy, memory = read_policy(wish.policy), read_memory(wish.memory)
    except ValueError:  # another release wrote it
        return None
    if policy.min_replicas or policy.cold_start_cost is not None or memory.last_busy_at is None:
        return None
    return Instant(memory.last_busy_at + policy.keep_alive)
