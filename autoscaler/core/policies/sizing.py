"""What requests need, in replicas: those at hand now, and those of the last windows on average.

Were every request served at once, those that came within the time that one takes would run now, and no others (a queue
with servers without end). That is what load needs. Who waits beyond that waits because too little was ready; more can
be ready in a start's time, so what gathered until then is worked off in as long again, and not all at once.
"""

from __future__ import annotations

from math import ceil

from autoscaler.core.model import Snapshot
from autoscaler.core.policy import ScalingPolicy

UP_TOLERANCE = 0.05
"""An average asks for one replica more once it is above the target of those there are by this part of one replica's
target. Absolute, not relative: HPA's relative 10 % leaves 64 replicas at 63 for ever. Covers the jitter of a window
that is cut by another clock."""

SLACK = 1.25
"""An average counts in full up to so many times what came: the two are not of quite the same time. Chosen."""

GROWS_MOST = 2.0
"""Until more is ready at most so many times as much gathers as has gathered: it is no burst that ends. Chosen: 1 keeps
less of an engine that gets five times as slow; without a bound the one large burst of the second half of Azure's code
trace is given a replica more, for nothing."""

REPLICAS_MOST = 1e9
"""Beyond any bound: a need larger than this (a target close to zero) is this."""

EPSILON = 1e-6
"""Rounding of averages; Knative rounds to six digits too."""


class Sizing:
    """Of one snapshot, in replicas. `at_hand`: for what runs and waits now; `gathered` of these requests wait since too
    little was ready. `known`: it is known how long a request runs; until then all that waits counts in full.

    `_share`: the part of a request that must find a slot at once; `_late`: of one that has waited for longer than a
    request takes. Both are divided by the target. `goes_on`: requests that would run at a time if they went on coming
    as they do and each took as long as now; 0 while none waits. `waits`: what will have gathered once more is ready.
    """

    __slots__ = (
        "_all", "_came", "_late", "_lately", "_panic", "_share", "_stable", "at_hand", "gathered", "goes_on", "known",
        "waits",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot, policy: ScalingPolicy) -> None:
        demand = snapshot.demand
        seconds, lately = demand.seconds_per_request, demand.lately
        level = demand.running + demand.waiting
        self.known = seconds is not None
        self._all = 1.0 / policy.target
        self._share = share = _share(seconds, policy)
        self._late = late = share if lately is None else _late(share, seconds, snapshot, policy)
        self._lately = SLACK * (lately or 0.0)
        came = demand.arrivals_per_second * (seconds or 0.0)
        self._came, self.goes_on = SLACK * came, came if demand.waiting else 0.0
        self._stable, self._panic = demand.stable, demand.panic
        self.gathered = self.waits = 0.0
        if not level:
            self.at_hand = 0
        elif late == share or lately is None or not demand.waiting:
            self.at_hand = up(level * share, EPSILON)
        else:
            waiting = float(demand.waiting)
            beyond = level - lately
            self.gathered = gathered = 0.0 if beyond <= 0.0 else min(beyond, waiting)
            self.at_hand = up((level - gathered) * share + gathered * late, EPSILON)
            self.waits = gathered + min(GROWS_MOST * gathered, _grows(came, seconds, snapshot, policy))

    @property
    def parted(self) -> bool:
        """Whether a request counts in part, as some may wait and still be served as promised."""
        return self._share != self._all

    @property
    def lately(self) -> float:
        """For the panic window's average."""
        return 0.0 if self._panic is None else self._evened(self._panic, self._lately, self._share)

    @property
    def lasting(self) -> float:
        """For the stable window's average, which counts in full.

        While requests wait it is never less than what comes times how long each takes now (Little's law), and beside it
        what works off what waits: of an engine that has become slower the average is half a window late.
        """
        if self._stable is None:
            return 0.0
        return max(self._evened(self._stable, self._came, self._all), self.going_on)

    @property
    def going_on(self) -> float:
        """For what goes on coming, and what works off what waits; 0 while none waits."""
        return self.goes_on * self._all + self.waits * self._late

    def _evened(self, average: float, served: float, share: float) -> float:
        """`served` of these requests would be there on average if none had waited."""
        if self._late == self._share or average <= served:
            return average * share
        return served * share + (average - served) * self._late


def _share(seconds: float | None, policy: ScalingPolicy) -> float:
    """The part of the requests at hand that must find a slot at once, so that the rest is served as promised.

    Who waits for `wait_most` at most may stand behind others: n replicas of s slots end n * s requests in each
    `seconds` that one takes, so the last of those that wait gets its slot in time if
    (level - n * s) * seconds / (n * s) <= wait_most, which is n * s >= level * seconds / (seconds + wait_most). Then
    slots may be full, so it is slots that count here and not the target.
    """
    if policy.wait_most is None or seconds is None:
        return 1.0 / policy.target
    return seconds / (seconds + policy.wait_most) / policy.slots


def _late(share: float, seconds: float | None, snapshot: Snapshot, policy: ScalingPolicy) -> float:
    """As `_share`, with the time that a start takes in place of the promised one. Never more."""
    start = snapshot.start_seconds
    if seconds is None or start is None or start <= (policy.wait_most or 0.0):
        return share
    return min(share, seconds / (seconds + start) / policy.slots)


def _grows(came: float, seconds: float | None, snapshot: Snapshot, policy: ScalingPolicy) -> float:
    """How many requests more gather until more is ready, if they go on coming: beyond those that end meanwhile. `came`
    of them would run at a time if all did."""
    replicas, start = snapshot.replicas, snapshot.start_seconds
    ahead = replicas.all_ready_in if replicas.starting else start
    if seconds is None or not ahead:
        return 0.0
    return max(0.0, came - replicas.ready * policy.slots) / seconds * ahead


def up(amount: float, tolerance: float) -> int:
    """Replicas for an amount in replicas, rounded up, a small excess forgiven; something is at least one."""
    if not amount > EPSILON:
        return 0
    # `min` and `max` are calls, and every decision comes here four times.
    replicas = ceil((amount if amount < REPLICAS_MOST else REPLICAS_MOST) - tolerance)  # noqa: FURB136 - see above
    return replicas if replicas > 1 else 1  # noqa: FURB136 - see above
