"""What the reports of a run come to. Pure: a value and a report in, the next value out, with what is to be checked.

Reports may be repeated, late, or missing (the file was rotated, relume was away): each only moves the story forward.
Answers count for the notice that stands, by its id. A trainer that was told by a signal cannot know that id: the SDK
then makes up one that begins with `SIGNALLED`, and that answers whatever notice stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from deploy.local.training.report import Report
from events.types.training import CheckpointStatus, NoticeStatus, TrainingObserved
from events.units import Instant

SIGNALLED: Final = "signal-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A run so far. Fields as in `relume.training.observed`. `finished`: it said so. `withdrawn_at`: when the notice
    was taken back. `message`: why it could not load a checkpoint, or gave up."""

    began_at: Instant
    reports: bool = False
    step: int | None = None
    step_at: Instant | None = None
    resumed_step: int | None = None
    restore_bad: bool = False
    checkpoint: CheckpointStatus | None = None
    notice: NoticeStatus | None = None
    withdrawn_at: Instant | None = None
    finished: bool = False
    message: str = ""

    @property
    def watched(self) -> bool:
        """Whether somebody waits for a word: a notice was given, and it has not gone on since."""
        return self.notice is not None and self.notice.continued_at is None

    @property
    def trains(self) -> bool:
        """Whether it has made a step of its own, beyond those of the checkpoint that it began at."""
        return self.step is not None and self.step > (self.resumed_step or 0)

    @property
    def got_on(self) -> bool:
        """Whether the run has committed a checkpoint beyond the one that it began at."""
        newest = self.checkpoint
        return newest is not None and newest.at >= self.began_at and newest.step > (self.resumed_step or 0)


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that the trainer says it has committed. `notice`: the id of the notice that it answers, or empty."""

    step: int
    at: Instant
    path: str
    manifest: str
    size: int
    seconds: float
    notice: str


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A save that the trainer says it could not do."""

    step: int
    message: str
    notice: str


Claim = Saved | SaveFailed


def story_of(observed: TrainingObserved) -> Story:
    """As far as it was told. The reports are read again from the beginning, which changes nothing that stands."""
    return Story(
        began_at=Instant(observed.started_at or 0.0), reports=observed.reports, step=observed.step,
        step_at=None if observed.step_at is None else Instant(observed.step_at), resumed_step=observed.resumed_step,
        restore_bad=observed.restore_bad, checkpoint=observed.checkpoint, notice=observed.notice,
    )  # fmt: skip


def notified(story: Story, notice: str) -> Story:
    """A notice is about to be given; the same one again changes nothing."""
    if story.notice is not None and story.notice.id == notice:
        return replace(story, withdrawn_at=None)
    return replace(story, notice=NoticeStatus(id=notice), withdrawn_at=None)


def withdrawn(story: Story, now: Instant) -> Story:
    """The notice no longer holds."""
    return story if story.withdrawn_at is not None else replace(story, withdrawn_at=now)


def hear(story: Story, report: Report, now: Instant) -> tuple[Story, Claim | None]:
    """Take one report in."""
    at = _when(story, report, now)
    story = _stepped(replace(story, reports=True), report, at)
    if report.kind == "saved":
        return story, _saved(story, report, at)
    if report.kind == "save_failed":
        return _save_failed(story, report)
    return _moved(story, report, at), None


def _moved(story: Story, report: Report, at: Instant) -> Story:
    """A report that nothing is to be checked of. Kinds that are not known say only that it lives."""
    match report.kind:
        case "resumed" if report.step is not None:
            return _resumed(story, report.step, at)
        case "restore_bad":
            return replace(story, restore_bad=True, message=report.message)
        case "finished":
            return replace(story, finished=True)
        case "aborted":
            return replace(story, message=report.message)
        case "ack" | "progress" | "continued":
            return _answered(story, report, at)
    return story


def proven(story: Story, saved: Saved, checkpoint: CheckpointStatus) -> Story:
    """What it said it saved was looked at (or cannot be, and then is a bare word)."""
    known = story.checkpoint
    if known is None or known.step <= checkpoint.step:
        story = replace(story, checkpoint=checkpoint)
    if saved.notice and checkpoint.verified and story.notice is not None and story.notice.id == saved.notice:
        story = replace(story, notice=replace(story.notice, saved_step=checkpoint.step, failed=""))
    return story


def disproven(story: Story, saved: Saved, why: str) -> Story:
    """What it said it saved is not whole."""
    if saved.notice and story.notice is not None and story.notice.id == saved.notice:
        return replace(story, notice=replace(story.notice, failed=why))
    return story


def _when(story: Story, report: Report, now: Instant) -> Instant:
    """The trainer's own time where it can be: it may have been said long before it was read."""
    said = report.at
    return Instant(said) if said is not None and story.began_at <= said <= now else now


OF_CHECKPOINTS: Final = frozenset({"resumed", "restore_bad", "damaged"})
"""Kinds whose step is that of a checkpoint on disk: it says nothing of where the loop is."""


def _stepped(story: Story, report: Report, at: Instant) -> Story:
    """Any other report may carry the step; the newest counts. After a withdrawal a step says that it goes on."""
    if report.step is None or report.kind in OF_CHECKPOINTS:
        return story
    story = _began(story, report.step)
    if story.step is not None and report.step < story.step:
        return story
    if report.step != story.step:
        story = replace(story, step=report.step, step_at=at)
    notice, since = story.notice, story.withdrawn_at
    if notice is None or notice.continued_at is not None or since is None or report.kind != "step" or at <= since:
        return story
    return replace(story, notice=replace(notice, continued_at=at))


def _began(story: Story, step: int) -> Story:
    """Who has made steps and did not say where it resumed began anew, unless it is beyond what was saved."""
    known = story.checkpoint
    if story.resumed_step is not None or step == 0 or (known is not None and known.step <= step):
        return story
    return replace(story, resumed_step=0, checkpoint=None)


def _resumed(story: Story, step: int, at: Instant) -> Story:
    """It began there. A newer checkpoint that it did not take is none: work since this one would be lost again."""
    if story.resumed_step is not None:  # read again: it has saved since
        return story
    known = story.checkpoint
    if known is not None and known.step > step:
        known = CheckpointStatus(step=step, at=at) if step else None
    return replace(story, resumed_step=step, checkpoint=known, step=step, step_at=at)


def _answers(story: Story, report: Report) -> str:
    """The id of the standing notice, if the report is about it."""
    if story.notice is None or not report.id:
        return ""
    return story.notice.id if report.id == story.notice.id or report.id.startswith(SIGNALLED) else ""


def _saved(story: Story, report: Report, at: Instant) -> Saved | None:
    if report.step is None:
        return None
    return Saved(
        report.step, at, report.path, report.manifest, report.bytes or 0, report.seconds or 0.0, _answers(story, report)
    )


def _save_failed(story: Story, report: Report) -> tuple[Story, SaveFailed]:
    notice = _answers(story, report)
    message = report.message or "it could not save, and did not say why"
    if notice and story.notice is not None:
        story = replace(story, notice=replace(story.notice, failed=message))
    return story, SaveFailed(report.step or story.step or 0, message, notice)


def _answered(story: Story, report: Report, at: Instant) -> Story:
    """A word to the notice that stands. Progress of a save carries no id: it is of the notice once that was heard."""
    notice = story.notice
    if notice is None:
        return story
    if report.kind == "progress":
        if notice.heard_at is None or report.bytes is None:
            return story
        return replace(story, notice=replace(notice, progress=report.bytes, progress_at=at))
    if not _answers(story, report):
        return story
    if report.kind == "continued":
        return replace(story, notice=replace(notice, continued_at=at))
    heard_at = at if notice.heard_at is None else notice.heard_at
    return replace(story, notice=replace(notice, heard_at=heard_at, eta=report.eta))
