"""`relume.reclaims`: attempts to take the cards of a training job for a shortage. Written by the allocator."""

from __future__ import annotations

from dataclasses import field

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Amount, At, Count
from events.types.training import MemberGrant


@value
class ReclaimStep:
    """One change of state: what happened, and where it led."""

    at: At
    happened: str
    state: str


@value
class ReclaimVerdict:
    """Why one training job was taken for the shortage, or was not, with the numbers that said so."""

    job: str
    why: str
    numbers: dict[str, float] = field(default_factory=dict)


@value
class ReclaimLedger:
    """What the reclaim has cost so far.

    `lost`: GPU-seconds of the victim's cards by cause (`since_commit`: work that must be done again; `cards_gone`:
    likewise, because its cards vanished; `save`; `stop`; `drain`; `claim`: set aside and unused; `restore`). `stages`:
    seconds from the demand to the GPU usable, by stage (`plan`, `ack`, `save`, `stop`, `drain`, `bind`). `steps_lost`:
    steps done again; None while unknown.
    """

    gpus: Amount = 0.0
    lost: dict[str, float] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    steps_lost: Count | None = None


@event("relume.reclaim.changed", Topic.RECLAIMS)
class ReclaimChanged:
    """One attempt, whole. State of key ``reclaim/ID``; ended ones are kept as long as the topic keeps them.

    `state` and `happened` are words of `preemption.core.attempts.states`. `job`, `job_uid`, `run`: the victim;
    `members`: which of its gang (all, unless it shrinks). `shortage`: the model that the cards are for, of
    `shortage_uid`. `shortage_since`: since when it lacks them. `due`: by when they are needed. `deadline`: when this
    state has lasted long enough; None: for ever. `cards`: ``NODE/CARD``; `held`: what each of the members held, and
    where. `manifest`, `step`: of the checkpoint that was proven (-1: none). `shortage` is ``training/NAME`` where a job
    of higher priority needs the cards, and empty where nothing is short: `cause` says why the job had to end then, a
    word of `preemption.core.lending.case.Cause` (empty in older records: a shortage, or a person).
    """

    id: str
    job: str
    job_uid: str
    run: Count
    members: tuple[str, ...]
    shortage: str
    shortage_uid: str
    shortage_since: At
    cards: tuple[str, ...]
    held: tuple[MemberGrant, ...] = ()
    state: str
    since: At
    due: At
    deadline: At | None = None
    ended: bool = False
    manifest: str = ""
    step: int = -1
    cost: Amount = 0.0
    history: tuple[ReclaimStep, ...] = ()
    verdicts: tuple[ReclaimVerdict, ...] = ()
    ledger: ReclaimLedger = ReclaimLedger()
    message: str = ""
    cause: str = ""
