"""What a training job did with the cards that it held: the part that went into steps which are kept, and the rest by
cause. Pure; whole numbers, so that the parts are exactly the whole.

A run holds its cards from its start until they are seen empty. That span is cut where something is known to have
happened, and each piece belongs to one `Part`. Training counts as kept once a checkpoint that was verified has it, or
the job has finished; until then it is pending, and lost if the run ends before. Times are rounded to milliseconds and
cards to thousandths; a millisecond of a thousandth of a card is a GPU-microsecond.

What is read is a state (`TrainingObserved`), so what was missed, comes late or twice does no harm: a checkpoint that
was missed is in the next one. What was never seen cannot be told apart, and counts as training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from events.types.accounts import KeptAt, OpenRun, TrainingAccounted
from events.types.training import CheckpointStatus, Ending, MemberStatus, NoticeStatus, RunState, TrainingObserved
from events.units import Instant
from preemption.core.inventory import need_of

COMMITS_MOST: Final = 16
"""Newest checkpoints of which is remembered what was kept by then, should a run come back to an older one. Chosen:
trainers keep a few. Of older ones the share of steps tells."""


class Part(StrEnum):
    """What the cards of a training job were used for."""

    KEPT = "kept"
    """Steps that a committed checkpoint has, or of a job that has finished."""
    GOING = "going"
    """Steps of a run that goes on and that no checkpoint has yet."""
    RESTORE = "restore"
    """From the start of a run until it had loaded its checkpoint, or made its first step."""
    SINCE_COMMIT = "since_commit"
    """Steps that were lost: done after the newest checkpoint of a run that has ended."""
    SAVE = "save"
    """Saving while nothing was trained; also for a notice and in vain."""
    BARRIER = "barrier"
    """From the last step before a save that was asked for to its beginning: ranks wait for each other."""
    STOP = "stop"
    """From the checkpoint that was asked for to the end of the processes, or to going on."""
    DRAIN = "drain"
    """After the end, until the cards were seen empty."""


GOOD: Final = frozenset({Part.KEPT, Part.GOING})
"""What is not lost."""

Parts = Mapping[Part, int]
"""GPU-microseconds by part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One job's account. `settled`: what is known for good, but that kept work is lost if no checkpoint with it can be
    loaded."""

    job: str
    uid: str
    run: int = 0
    settled: Parts = field(default_factory=dict)
    open: OpenRun | None = None
    commits: tuple[KeptAt, ...] = ()

    def event(self) -> TrainingAccounted:
        """As it is recorded."""
        parts = {part.value: amount for part, amount in self.settled.items() if amount}
        return TrainingAccounted(
            job=self.job, uid=self.uid, run=self.run, parts=parts, open=self.open, commits=self.commits
        )

    def parts(self, now: Instant) -> Parts:
        """All that was held up to now. An open run's part that no checkpoint has is `GOING`."""
        if self.open is None:
            return dict(self.settled)
        until = max(self.open.since, _ms(now))
        return _closed(self, until, Part.GOING, None).settled


def read_account(event: TrainingAccounted) -> Account:
    """The account that a record tells of; parts that this release does not know are left out."""
    words = {part.value: part for part in Part}
    settled = {words[word]: amount for word, amount in event.parts.items() if word in words}
    return Account(job=event.job, uid=event.uid, run=event.run, settled=settled, open=event.open, commits=event.commits)


def share(parts: Parts) -> float | None:
    """The goodput: the share of what was held that went into steps which are kept. None: nothing was held."""
    held = sum(parts.values())
    return sum(amount for part, amount in parts.items() if part in GOOD) / held if held else None


def summed(many: Sequence[Parts]) -> Parts:
    """Several accounts together."""
    return {part: sum(one.get(part, 0) for one in many) for part in Part}


def gpu_seconds(parts: Parts) -> dict[str, float]:
    """By name of the part, in the order of `Part`; what is nothing is left out."""
    return {part.value: parts[part] / 1e6 for part in Part if parts.get(part)}


def see(account: Account, seen: TrainingObserved, at: Instant) -> Account:
    """The account after what is seen of the job's newest run; `at`: when that was said."""
    if seen.uid != account.uid:
        account = Account(job=seen.job, uid=seen.uid)
    if seen.run < account.run:
        return account
    if seen.run > account.run:
        account = _begun(account, seen, at)
    if account.open is None or account.open.ended:
        return _emptied(account, seen)
    account = _trained(account, seen, at)
    account = _noticed(account, seen.notice)
    if seen.checkpoint is not None and seen.checkpoint.verified:
        account = _committed(account, seen, seen.checkpoint, _ms(at))
    account = _continued(account, seen.notice, _ms(at))
    account = _resized(account, seen, _ms(at))
    if seen.state is RunState.ENDED and account.open is not None:
        ended = max(account.open.since, _ms(seen.ended_at or at))
        account = _closed(account, ended, _fate(seen.ending), seen.step_at)
    return _emptied(account, seen)


def _begun(account: Account, seen: TrainingObserved, at: Instant) -> Account:
    """A new run; nothing of the one before holds a card any more, or it would not have been started."""
    if account.open is not None:
        until = max(account.open.since, _ms(min(at, seen.started_at or at)))
        account = _closed(account, until, Part.SINCE_COMMIT, None)
    if seen.started_at is None:  # there never was a process
        return replace(account, run=seen.run, open=None)
    return replace(account, run=seen.run, open=OpenRun(since=_ms(seen.started_at), milli=_milli(seen.members)))


def _trained(account: Account, seen: TrainingObserved, at: Instant) -> Account:
    """Where its training began, once that is known; steps beyond the checkpoint that it took are lost."""
    run = account.open
    if run is None:
        return account
    if seen.reports and not run.reports:
        account = replace(account, open=(run := replace(run, reports=True)))
    if run.trained is not None or seen.resumed_step is None:
        return account
    told = run.since  # where it is further already, when that began was missed
    if seen.step is None or seen.step <= seen.resumed_step + 1:
        told = max(run.since, _ms(at if seen.step_at is None else min(at, seen.step_at)))
    account = replace(account, open=replace(run, trained=told))
    return _back_to(account, seen.resumed_step)


def _back_to(account: Account, step: int) -> Account:
    """The job goes on from `step`: what was kept beyond it is lost."""
    kept = account.settled.get(Part.KEPT, 0)
    older = [one for one in account.commits if one.step <= step]
    if len(older) == len(account.commits) and (step or older):
        return account
    if older:
        left = older[-1].kept
    elif account.commits and step:
        left = account.commits[0].kept * step // account.commits[0].step
    else:
        left = 0 if step == 0 else kept
    lost = max(0, kept - left)
    account = _added(account, {Part.KEPT: -lost, Part.SINCE_COMMIT: lost})
    return replace(account, commits=tuple(older))


def _noticed(account: Account, notice: NoticeStatus | None) -> Account:
    run = account.open
    if run is None or notice is None or notice.heard_at is None or notice.continued_at is not None:
        return account
    heard = _ms(notice.heard_at)
    return account if run.heard == heard else replace(account, open=replace(run, heard=heard, saved=False))


def _committed(account: Account, seen: TrainingObserved, checkpoint: CheckpointStatus, now: int) -> Account:
    """A checkpoint that was verified: what was trained before its save is kept."""
    run, done = account.open, min(now, _ms(checkpoint.at))
    if run is None or done <= run.since:
        return account  # of an earlier run, or known
    began = max(run.since, done - round(1000 * checkpoint.seconds))
    asked = run.heard is not None and run.heard <= done
    if run.saved:
        account = _added(account, {Part.SAVE: (done - run.since) * run.milli})
        return replace(account, open=replace(run, since=done))
    cut = _cut(run, began, seen.step_at if asked else None, asked=asked)
    beside = not asked and seen.step is not None and seen.step > checkpoint.step
    saving = (done - began) * run.milli
    account = _added(account, {
        Part.RESTORE: cut.restore, Part.KEPT: run.pending + cut.training, Part.BARRIER: cut.rest,
        Part.SAVE: 0 if beside else saving,
    })  # fmt: skip
    commits = (*account.commits, KeptAt(step=checkpoint.step, kept=account.settled.get(Part.KEPT, 0)))
    trained = began if run.trained is None else run.trained
    after = replace(run, since=done, trained=trained, pending=saving if beside else 0, saved=asked)
    return replace(account, open=after, commits=commits[-COMMITS_MOST:])


def _continued(account: Account, notice: NoticeStatus | None, now: int) -> Account:
    """It was told to go on, and does."""
    run = account.open
    if run is None or run.heard is None or notice is None or notice.continued_at is None:
        return account
    until = max(run.since, min(now, _ms(notice.continued_at)))
    if run.saved:
        account = _added(account, {Part.STOP: (until - run.since) * run.milli})
        return replace(account, open=replace(run, since=until, heard=None, saved=False))
    return _settled(account, run, until, None)


def _resized(account: Account, seen: TrainingObserved, now: int) -> Account:
    """It goes on with another number of members."""
    run = account.open
    if run is None or not seen.members or seen.state is RunState.ENDED or _milli(seen.members) == run.milli:
        return account
    until, milli = max(run.since, now), _milli(seen.members)
    if run.saved:
        account = _added(account, {Part.STOP: (until - run.since) * run.milli})
        return replace(account, open=replace(run, since=until, milli=milli))
    heard = run.heard
    account = _settled(account, run, until, seen.step_at)
    assert account.open is not None  # it was just settled
    return replace(account, open=replace(account.open, milli=milli, heard=heard))


def _settled(account: Account, run: OpenRun, until: int, step_at: float | None) -> Account:
    """All up to `until`, with the training of it pending."""
    cut = _cut(run, until, step_at, asked=run.heard is not None)
    account = _added(account, {Part.RESTORE: cut.restore, Part.SAVE: cut.rest})
    return replace(account, open=replace(run, since=until, pending=run.pending + cut.training, heard=None))


def _closed(account: Account, until: int, fate: Part, step_at: float | None) -> Account:
    """The processes have ended at `until` (or it is looked at as if they had); what is pending becomes `fate`."""
    run = account.open
    assert run is not None  # the caller has looked
    span = (until - run.since) * run.milli
    if run.ended:
        account = _added(account, {Part.DRAIN: span})
    elif run.saved:
        account = _added(account, {Part.STOP: span, fate: run.pending})
    else:
        cut = _cut(run, until, step_at, asked=run.heard is not None)
        account = _added(account, {Part.RESTORE: cut.restore, fate: run.pending + cut.training, Part.SAVE: cut.rest})
    return replace(account, open=replace(run, since=until, pending=0, ended=True))


def _emptied(account: Account, seen: TrainingObserved) -> Account:
    run = account.open
    if run is None or not run.ended or seen.run != account.run or seen.empty_at is None:
        return account
    span = max(0, _ms(seen.empty_at) - run.since) * run.milli
    return replace(_added(account, {Part.DRAIN: span}), open=None)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A span in three pieces, GPU-microseconds. `rest`: after the last step for a notice."""

    restore: int
    training: int
    rest: int


def _cut(run: OpenRun, until: int, step_at: float | None, *, asked: bool) -> _Cut:
    """The span from where all is settled to `until`. One that tells nothing has trained from its start on; one that
    does, and has not said where it began, is still coming back."""
    began = run.trained
    if began is None:
        began = until if run.reports else run.since
    began = min(max(began, run.since), until)
    last = until
    if asked and run.heard is not None:
        stepped = _ms(step_at) if step_at is not None and _ms(step_at) <= until else run.heard
        last = min(max(began, run.heard, stepped), until)
    return _Cut((began - run.since) * run.milli, (last - began) * run.milli, (until - last) * run.milli)


def _fate(ending: Ending | None) -> Part:
    return Part.KEPT if ending is Ending.FINISHED else Part.SINCE_COMMIT


def _added(account: Account, amounts: Parts) -> Account:
    settled = Counter(account.settled)
    settled.update(amounts)
    return replace(account, settled={part: amount for part, amount in settled.items() if amount})


def _milli(members: Sequence[MemberStatus]) -> int:
    return sum(len(one.gpus) * need_of(one.resources).milli_each for one in members)


def _ms(instant: float) -> int:
    return round(1000 * instant)
