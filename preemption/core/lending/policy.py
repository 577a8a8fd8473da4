"""Plain numbers of lending, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from events.units import Seconds
from preemption.core.attempts.attempt import AttemptPolicy
from preemption.core.reclaim.values import ReclaimPolicy
from preemption.core.training import TrainingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LendingPolicy:
    """Plain numbers of lending. All are chosen, unless a source is named.

    `reserve_shared`, `reserve_whole`: shares of a node that training cannot take (the issue: a fifth).
    `settle`: for how long there must have been room before a job that had to yield once in the last hour gets it back;
    each further time `settle_growth` times as long, up to `most_settle`, and half as long for each `age_every` that it
    waits. So a load that comes and goes faster finds the cards free, one that comes more rarely leaves training in
    peace, and nobody starves.
    `save`, `restore`: estimates where nothing is known. `drains`: when a draining replica is expected to be gone;
    `drain_bound`: when it surely is (docs/decisions/0008-drain-bound-is-five-minutes.md).
    """

    reclaim: ReclaimPolicy = field(default_factory=lambda: ReclaimPolicy(cool_down=Seconds(60.0)))
    attempts: AttemptPolicy = field(default_factory=AttemptPolicy)
    reserve_shared: float = 0.2
    reserve_whole: float = 0.2
    settle: Seconds = Seconds(5.0)
    settle_growth: float = 4.0
    most_settle: Seconds = Seconds(1200.0)
    save: Seconds = Seconds(30.0)
    restore: Seconds = Seconds(30.0)
    drains: Seconds = Seconds(5.0)
    drain_bound: Seconds = Seconds(300.0)

    def settles(self, yielded: int, waited: Seconds) -> Seconds:
        """How long room must last before a job is started in it that had to yield so often in the last hour, and has
        waited so long."""
        if not yielded:
            return Seconds(0.0)
        longest = min(self.most_settle, self.settle * self.settle_growth ** (yielded - 1))
        return Seconds(longest / 2.0 ** min(32, waited // self.reclaim.age_every))

    def grows(self, members: int, more: int, save: Seconds) -> Seconds:
        """How long there must have been room for `more` members before a job of so many is started again with them:
        until as much has gone by unused as its standing still costs. Who waits so long pays at most twice what the best
        choice would have cost, however long the room lasts."""
        return Seconds((save + self.restore) * members / more)

    def attempt(self, job: TrainingPolicy | None) -> AttemptPolicy:
        """The times of one job's attempts: its own declaration sets those that concern its trainer. One that no channel
        reaches is told by SIGTERM at once."""
        if job is None:
            return self.attempts
        own = job.checkpoint
        ack = own.ack if own.channels else Seconds(0.0)
        return replace(self.attempts, ack=ack, save=own.save, grace=own.grace)


@dataclass(slots=True)
class LendingCounts:
    """Counts since the start."""

    reclaims_selected: int = 0
    """Jobs that were chosen to yield for a shortage."""
    reclaims_resumed: int = 0
    reclaims_continued: int = 0
    """The shortage was gone before they had to stop."""
    reclaims_finished: int = 0
    reclaims_skipped: int = 0
    reclaims_failed: int = 0
    reclaims_bound: int = 0
    """Their cards went to the shortage."""
    notices_acked: int = 0
    escalations_terminate: int = 0
    escalations_kill: int = 0
    gpu_seconds_lost: float = 0.0
    thrash: int = 0
    """Jobs that had to yield again within an hour."""
    training_starts: int = 0
