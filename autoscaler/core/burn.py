"""An objective that is used up too fast asks for more replicas. It can only add.

Three things burn: the time to the first token, the time to the whole answer, and availability. What is late or refused,
more replicas may mend; what fails, they do not. So while errors use the promised availability up, nothing is added for
any objective: a broken model would be started again and again, and pay for it.

Alerting on the burn rate of an error budget over two pairs of windows: Google's Site Reliability Workbook, chapter 5
("multiwindow, multi-burn-rate alerts"): 14.4 over one hour and five minutes, 6 over six hours and thirty minutes. Both
windows of a pair must burn, so that it ends soon after the trouble does. Whose objective burns also comes first among
models of equal priority that lack the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from autoscaler.core.model import Burn, Snapshot
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant

FAST: Final = 14.4
SLOW: Final = 6.0

ADDED: Final = 0.25
"""The part of what there is that is added at once: small, since latency may have another cause than too few. Chosen."""

LOADED: Final = 0.5
"""Nothing is added while less than this part of the ready replicas is needed over the stable window: then it is bursts
or starts that are late, which `relume` sizes for by itself. (Without it a promise that bursts break cost 37 % more on
Azure's code trace, and kept less.) Chosen."""

ADDED_MOST: Final = 2.0
"""Never above so many times what demand needs: adding does not help an engine that is slow by itself. Chosen."""


@dataclass(frozen=True, slots=True)
class BurnFloor:
    """At least so many replicas until then."""

    replicas: int = 0
    until: Instant | None = None


NO_FLOOR: Final = BurnFloor()


def burns(burn: Burn | None) -> bool:
    """Whether a pair of windows burns too fast."""
    return _pair(burn) > 1.0


def urgency(snapshot: Snapshot) -> float:
    """How much more each request counts, among models of equal priority, while its model's promise is used up: as many
    times as the pair of windows that burns says. 1 where nothing is promised or none burns, and where it is errors that
    burn: a replica would not mend them."""
    return 1.0 if snapshot.burn is None or burns(snapshot.failing) else _pair(snapshot.burn)


def _pair(burn: Burn | None) -> float:
    """What the pair of windows that burns is about; 1: none does."""
    if burn is None:
        return 1.0
    if min(burn.fast or 0.0, burn.fast_now or 0.0) >= FAST:
        return FAST
    return SLOW if min(burn.slow or 0.0, burn.slow_now or 0.0) >= SLOW else 1.0


def floor(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> BurnFloor:
    """What a burning objective asks for: a quarter more than there is, for a stable window; then it looks again.

    While what was added still starts, nothing more is added: it cannot have helped yet.
    """
    memory, have = snapshot.memory, snapshot.replicas
    level = snapshot.demand.running + snapshot.demand.waiting
    until = memory.burn_until
    stands = until is not None and now < until <= now + policy.stable_window
    if stands and until is not None:
        return BurnFloor(memory.burn_floor, Instant(until))
    if not burns(snapshot.burn) or burns(snapshot.failing) or not level or not have.ready:
        return NO_FLOOR
    ends = Instant(now + policy.stable_window)
    if have.starting:
        return BurnFloor(min(have.ready + have.starting, policy.max_replicas), ends)
    needed = (snapshot.demand.stable or 0.0) / policy.target
    if needed < LOADED * have.ready:
        return NO_FLOOR
    most = max(ceil(ADDED_MOST * needed), 1)
    asked = min(have.ready + max(1, ceil(ADDED * have.ready)), most, policy.max_replicas)
    return BurnFloor(asked, ends) if asked > policy.min_replicas else NO_FLOOR
