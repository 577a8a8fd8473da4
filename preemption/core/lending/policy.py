"""Plain numbers of lending, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from events.units import Seconds
from preemption.core.attempts.attempt import AttemptPolicy
from preemption.core.reclaim.values import ReclaimPolicy
from preemption.core.training import TrainingPolicy

_LONGER: Final = 1.5
_SURELY: Final = 2.0
"""Times what room usually lasted, or lasted at the longest, after which this is taken to be another kind of room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LendingPolicy:
    """Plain numbers of lending. All are chosen, unless a source is named.

    `reserve_shared`, `reserve_whole`: shares of a node that training cannot take (the issue: a fifth).
    `settle`: for how long there must have been room before a job that had to yield once in the last hour gets it back;
    each further time `settle_growth` times as long, up to `most_settle`, but not longer than `patience` times what it
    costs to give it back once more: a card that lies idle for longer costs more than it can save.
    Once it is known how long such room usually lasts, that decides: see `settles`.
    `save`, `restore`: estimates where nothing was seen (`preemption.core.reclaim.usual`). `drains`: when a draining
    replica is expected to be gone; `drain_bound`: when it surely is
    (docs/decisions/0008-drain-bound-is-five-minutes.md).
    """

    reclaim: ReclaimPolicy = field(default_factory=lambda: ReclaimPolicy(cool_down=Seconds(60.0)))
    attempts: AttemptPolicy = field(default_factory=AttemptPolicy)
    reserve_shared: float = 0.2
    reserve_whole: float = 0.2
    settle: Seconds = Seconds(5.0)
    settle_growth: float = 4.0
    most_settle: Seconds = Seconds(1200.0)
    patience: float = 4.0
    save: Seconds = Seconds(30.0)
    restore: Seconds = Seconds(30.0)
    drains: Seconds = Seconds(5.0)
    drain_bound: Seconds = Seconds(300.0)

    def settles(self, yielded: int, waited: Seconds, costs: Seconds, usual: Seconds | None) -> Seconds:
        """How long room must last before a job is started in it that had to yield so often in the last hour, and has
        waited so long. `costs`: what it costs to give it back once more. `usual`: how long such room lasted lately;
        None: not known.

        Room that usually lasts for longer than anybody should wait is taken soon. Shorter one is of little use, so it
        is waited for whether this lasts longer. What is the longest that anybody should wait halves with each
        `age_every` that the job has waited, so nobody starves.
        """
        if not yielded:
            return Seconds(0.0)
        most = min(self.most_settle, self.patience * costs) / 2.0 ** min(32, waited // self.reclaim.age_every)
        if usual is None:
            return Seconds(min(most, self.settle * self.settle_growth ** (yielded - 1)))
        return Seconds(min(most, self.settle if usual > most else _LONGER * usual))

    def outlasts(self, longest: Seconds | None) -> Seconds:
        """How long room must last before a job gets it that has spent its budget, and so could not give it back:
        surely longer than any did lately."""
        return self.most_settle if longest is None else Seconds(min(self.most_settle, _SURELY * longest))

    def grows(self, members: int, more: int, restart: Seconds) -> Seconds:
        """How long there must have been room for `more` members before a job of so many is started again with them:
        until as much has gone by unused as its standing still (`restart`: its save and restore) costs. Who waits so
        long pays at most twice what the best choice would have cost, however long the room lasts."""
        return Seconds(restart * members / more)

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
