"""One attempt, and what each thing that happens makes of it. The caller persists it, then does the commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from events.units import Instant, Seconds
from preemption.core.attempts.states import ENDS, TABLE, Happened, State

HISTORY_MOST: Final = 20
"""Changes of state that an attempt remembers: enough for every path of the table but a job that is parked for ever."""


class Command(StrEnum):
    """What the caller must do, once the attempt that says so is on record. All may be done twice without harm."""

    NOTICE = "notice"
    """Send the notice (same id, same deadline, whenever it is sent)."""
    WITHDRAW = "withdraw"
    TERMINATE = "terminate"
    """SIGTERM, or an eviction or a suspension where there is a cluster."""
    KILL = "kill"
    PROVE_EMPTY = "prove_empty"
    """Look whether anything still uses the cards."""
    CORDON = "cordon"
    """Take the cards out of use until a person or the node says that they are clean."""
    CLAIM = "claim"
    """Set the cards aside for the shortage."""
    RELEASE = "release"
    """The claim ends: the cards are bound, or free; those that were cordoned stay so."""
    START = "start"
    START_OLDER = "start_older"


ON_ENTRY: Final[dict[State, tuple[Command, ...]]] = {
    State.NOTIFIED: (Command.NOTICE,),
    State.CANCELLING: (Command.WITHDRAW,),
    State.STOPPING: (Command.TERMINATE,),
    State.KILLING: (Command.KILL,),
    State.DRAINING: (Command.PROVE_EMPTY,),
    State.DRAINING_DONE: (Command.PROVE_EMPTY,),
    State.QUARANTINE: (Command.CORDON, Command.PROVE_EMPTY),
    State.CLAIMED: (Command.CLAIM,),
    State.LOST: (Command.CORDON,),
    State.PARKED: (Command.RELEASE,),
    State.RESUMING: (Command.START,),
    State.RESUMING_OLDER: (Command.START_OLDER,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPolicy:
    """How long each state may last, seconds. The job's own declaration sets the first two.

    Sources: `grace` is Kubernetes' terminationGracePeriodSeconds and torchrun's shutdown timeout; `lost` is Kubernetes'
    time to declare a node unreachable, rounded up; the rest is of our study of peers.
    """

    ack: Seconds = Seconds(10.0)
    save: Seconds = Seconds(120.0)
    stall: Seconds = Seconds(30.0)
    """Without any progress of a save."""
    selected: Seconds = Seconds(5.0)
    exit: Seconds = Seconds(5.0)
    """From the commit to the end of the process."""
    cancel: Seconds = Seconds(60.0)
    grace: Seconds = Seconds(30.0)
    kill: Seconds = Seconds(15.0)
    drain: Seconds = Seconds(60.0)
    quarantine: Seconds = Seconds(300.0)
    claim: Seconds = Seconds(60.0)
    """Without a word that its wish still stands."""
    lost: Seconds = Seconds(60.0)
    aged: Seconds = Seconds(600.0)
    parked: Seconds = Seconds(86_400.0)
    resume: Seconds = Seconds(900.0)

    def of(self, state: State) -> Seconds:
        """How long `state` may last."""
        return Seconds({
            State.SELECTED: self.selected, State.NOTIFIED: self.ack, State.SAVING: self.save, State.SAVED: self.exit,
            State.CANCELLING: self.cancel, State.STOPPING: self.grace,
            State.KILLING: self.kill, State.DRAINING: self.drain, State.DRAINING_DONE: self.drain,
            State.QUARANTINE: self.quarantine, State.CLAIMED: self.claim, State.LOST: self.lost,
            State.PARKED: self.aged, State.PARKED_AGED: self.parked, State.RESUMING: self.resume,
            State.RESUMING_OLDER: self.resume,
        }[state])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One line of an attempt's history."""

    at: Instant
    happened: Happened
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt, whole: what is persisted.

    `id` names the notice too. `job`, `uid`: the victim. `shortage`: the model that needs the cards. `cards`: what is to
    be freed. `due`: by when the shortage needs them. `deadline`: when the state has lasted long enough. `manifest`,
    `step`: of the checkpoint that was proven.
    """

    id: str
    job: str
    uid: str
    shortage: str
    cards: tuple[str, ...]
    epoch: int
    due: Instant
    state: State
    since: Instant
    deadline: Instant
    manifest: str = ""
    step: int = -1
    history: tuple[Change, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether nothing can change it any more."""
        return self.state in ENDS


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened, with what is known of it.

    `eta`: seconds that the trainer thinks its save takes. `manifest`, `step`: of a commit that was verified, or of a
    step that was reported.
    """

    happened: Happened
    eta: Seconds | None = None
    manifest: str = ""
    step: int = -1


def advance(attempt: Attempt, news: News, now: Instant, policy: AttemptPolicy) -> tuple[Attempt, tuple[Command, ...]]:
    """What becomes of the attempt, and what to do once that is on record.

    What has no meaning in its state leaves it as it is. A timeout counts only once the deadline has passed, so that a
    late alarm of an earlier state is harmless.
    """
    happened = news.happened
    if happened is Happened.TIMEOUT and now < attempt.deadline:
        return attempt, ()
    target = TABLE.get(attempt.state, {}).get(happened)
    if target is None:
        return attempt, ()
    if target is attempt.state:
        return replace(attempt, deadline=_renewed(attempt, now, policy)), ()
    proven = news if happened is Happened.CHECKPOINTED else attempt
    after = replace(
        attempt,
        state=target,
        since=now,
        deadline=_deadline(attempt, target, news, now, policy),
        history=(*attempt.history, Change(now, happened, target))[-HISTORY_MOST:],
        manifest=proven.manifest,
        step=proven.step,
    )
    return after, ON_ENTRY.get(target, ())


def again(attempt: Attempt) -> tuple[Command, ...]:
    """What a new controller must do for an attempt that it finds on record: what its state demands, once more."""
    return ON_ENTRY.get(attempt.state, ())


def _deadline(attempt: Attempt, target: State, news: News, now: Instant, policy: AttemptPolicy) -> Instant:
    """The clock of the shortage goes before that of the save: it must not wait longer for a checkpoint than it can."""
    if target in ENDS:
        return Instant(float("inf"))
    lasts = policy.of(target)
    if target is State.SAVING:
        expected = policy.save if news.eta is None else min(policy.save, Seconds(1.5 * news.eta + policy.exit))
        return max(now, min(Instant(now + expected), attempt.due))
    return Instant(now + lasts)


def _renewed(attempt: Attempt, now: Instant, policy: AttemptPolicy) -> Instant:
    """Progress of a save buys `stall` more, within the whole time that a save has; a living wish renews its claim."""
    if attempt.state is State.SAVING:
        whole = min(Instant(attempt.since + policy.save), attempt.due)
        return max(attempt.deadline, min(Instant(now + policy.stall), whole))
    return Instant(now + policy.of(attempt.state))
