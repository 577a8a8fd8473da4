"""What reports come to, and which lines are reports at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.training.report import LONGEST_LINE, Report, read_report
from deploy.local.training.story import (
    Saved,
    SaveFailed,
    Story,
    disproven,
    hear,
    notified,
    proven,
    withdrawn,
)
from events.types.training import CheckpointStatus, NoticeStatus
from events.units import Instant

NOW = Instant(1000.0)
STORY = Story(began_at=Instant(500.0))
KINDS = ["step", "resumed", "restore_bad", "ack", "progress", "saved", "save_failed", "continued", "leaving",
         "finished", "aborted", "started", "damaged", "refused", "what?"]  # fmt: skip


def told(*reports: Report, story: Story = STORY) -> Story:
    """The story after these."""
    for report in reports:
        story, _ = hear(story, report, NOW)
    return story


def say(kind: str, **values: object) -> Report:
    return Report(kind=kind, **values)  # type: ignore[arg-type]  # tests pass what fits


@pytest.mark.parametrize(
    "line",
    [
        b"", b"no", b"[1]", b"7", b"null", b'{"kind": 3}', b'{"step": 3}', b"\xff\xfe",
        b'{"kind": "step"' + b" " * LONGEST_LINE + b"}",
    ],
)  # fmt: skip
def test_no_report(line: bytes) -> None:
    """Anything may stand in the file."""
    assert read_report(line) is None


@pytest.mark.parametrize("step", [-1, 1.5, "7", None, True, 1 << 60, [1]])
def test_odd_numbers_are_left_out(step: object) -> None:
    """A report with a step that cannot be is one without a step."""
    report = read_report(json.dumps({"kind": "step", "step": step}).encode())
    assert report == Report(kind="step")


@given(st.binary(max_size=300))
def test_any_bytes(line: bytes) -> None:
    """Nothing that a trainer writes raises."""
    report = read_report(line)
    if report is not None:
        told(report)


def test_texts_that_a_log_cannot_hold() -> None:
    """Lone surrogates and NUL are taken out, and length is bounded."""
    report = read_report(b'{"kind": "aborted", "message": "a\\u0000b' + b"x" * 9000 + b'"}')
    assert report is not None
    assert report.message.startswith("abx")
    assert len(report.message) < 2001


def test_steps_only_go_up() -> None:
    """A late report moves nothing back."""
    story = told(say("step", step=5, at=600.0), say("step", step=3, at=700.0))
    assert (story.step, story.step_at, story.reports) == (5, 600.0, True)


@pytest.mark.parametrize(("at", "wanted"), [(None, 1000.0), (700.0, 700.0), (499.0, 1000.0), (5000.0, 1000.0)])
def test_when_it_was_said(at: float | None, wanted: float) -> None:
    """The trainer's own time counts where it can be; else it is when it was read."""
    assert told(say("step", step=1, at=at)).step_at == wanted


def test_answers_to_a_notice() -> None:
    """Heard with its estimate, progress, saved once it was proven, continued: each under the id of the notice."""
    story = notified(STORY, "n1")
    assert told(say("ack", id="n0"), say("progress", bytes=5), story=story).notice == NoticeStatus(id="n1")
    story = told(say("ack", id="n1", at=600.0, eta=3.0), say("progress", bytes=5, at=601.0), story=story)
    assert story.notice == NoticeStatus(id="n1", heard_at=600.0, eta=3.0, progress=5, progress_at=601.0)
    assert story.watched
    story, claim = hear(
        story, say("saved", id="n1", step=9, path="p", manifest="m", bytes=7, seconds=0.5, at=602.0), NOW
    )
    assert claim == Saved(9, Instant(602.0), "p", "m", 7, 0.5, "n1")
    checkpoint = CheckpointStatus(step=9, at=602.0, manifest="m", verified=True)
    after = proven(story, claim, checkpoint)
    assert after.notice is not None
    assert (after.notice.saved_step, after.checkpoint) == (9, checkpoint)
    bare = proven(story, claim, replace(checkpoint, verified=False))
    assert bare.notice is not None
    assert bare.notice.saved_step is None
    broken = disproven(story, claim, "half")
    assert broken.notice is not None
    assert (broken.notice.failed, broken.checkpoint) == ("half", None)
    gone_on = told(say("continued", id="n1", at=603.0), story=after)
    assert gone_on.notice is not None
    assert (gone_on.notice.continued_at, gone_on.watched) == (603.0, False)


def test_a_save_by_plan_answers_no_notice() -> None:
    """It is a checkpoint, and the trainer is still to save for the notice."""
    story, claim = hear(notified(STORY, "n1"), say("saved", step=9), NOW)
    assert isinstance(claim, Saved)
    assert claim.notice == ""
    after = proven(story, claim, CheckpointStatus(step=9, at=602.0, verified=True))
    assert after.notice == NoticeStatus(id="n1")


def test_what_a_signal_asked_for_answers_the_notice_that_stands() -> None:
    """The SDK cannot know the id then."""
    story = told(say("ack", id="signal-77-1", at=600.0), story=notified(STORY, "n1"))
    assert story.notice is not None
    assert story.notice.heard_at == 600.0


def test_could_not_save() -> None:
    """It is told of the notice, and as news."""
    story, claim = hear(notified(STORY, "n1"), say("save_failed", id="n1", step=4, message="full"), NOW)
    assert claim == SaveFailed(4, "full", "n1")
    assert story.notice is not None
    assert story.notice.failed == "full"


def test_a_step_after_a_withdrawal_says_that_it_goes_on() -> None:
    """One from before does not, nor one while the notice stands."""
    story = withdrawn(told(say("step", step=1, at=600.0), story=notified(STORY, "n1")), Instant(700.0))
    assert told(say("step", step=1, at=690.0), story=story).watched
    assert not told(say("step", step=2, at=710.0), story=story).watched
    assert notified(story, "n1").withdrawn_at is None


def test_where_it_resumed() -> None:
    """A newer checkpoint that it did not take does not count any more."""
    known = replace(STORY, checkpoint=CheckpointStatus(step=9, at=400.0, verified=True))
    assert told(say("resumed", step=9), story=known).checkpoint == known.checkpoint
    story = told(say("restore_bad", step=9, message="bad"), say("resumed", step=5, at=600.0), story=known)
    assert (story.resumed_step, story.restore_bad, story.message) == (5, True, "bad")
    assert (story.checkpoint, story.step) == (CheckpointStatus(step=5, at=600.0), 5)
    assert told(say("resumed", step=0), story=known).checkpoint is None


def test_who_says_nothing_of_where_it_resumed_began_at_the_beginning() -> None:
    """The SDK does not say that there was no checkpoint; a step below the newest one does."""
    known = replace(STORY, checkpoint=CheckpointStatus(step=9, at=400.0, verified=True))
    assert told(say("step", step=0), story=known) == replace(known, reports=True, step=0, step_at=NOW)
    story = told(say("step", step=2), story=known)
    assert (story.resumed_step, story.checkpoint) == (0, None)
    assert told(say("step", step=2)).resumed_step == 0
    beyond = told(say("step", step=11), story=known)
    assert (beyond.resumed_step, beyond.checkpoint) == (None, known.checkpoint)


REPORTS = st.builds(
    Report, kind=st.sampled_from(KINDS), id=st.sampled_from(["", "n1", "n2"]), step=st.none() | st.integers(0, 9),
    at=st.none() | st.floats(0, 2000),
)  # fmt: skip


@given(st.lists(REPORTS, max_size=12))
def test_reading_again_changes_nothing(reports: list[Report]) -> None:
    """After a restart all reports are read again: what stood, and what was answered, stands as it was."""
    known = CheckpointStatus(step=20, at=900.0, verified=True)
    once = replace(told(*reports, story=notified(STORY, "n1")), checkpoint=known)
    once = once if once.resumed_step is not None else replace(once, resumed_step=0)
    again = told(*reports, story=once)
    assert (again.step, again.finished, again.checkpoint) == (once.step, once.finished, known)
    assert (again.notice and again.notice.heard_at) == (once.notice and once.notice.heard_at)


@pytest.mark.parametrize(
    ("resumed_step", "step", "at", "wanted"),
    [(None, 3, 600.0, True), (3, 4, 600.0, True), (3, 3, 600.0, False), (None, 3, 400.0, False)],
)
def test_who_has_got_on(resumed_step: int | None, step: int, at: float, wanted: bool) -> None:
    """A checkpoint of this very run, beyond the one that it began at; what an earlier run saved is none of its own."""
    newest = CheckpointStatus(step=step, at=Instant(at))
    assert replace(STORY, checkpoint=newest, resumed_step=resumed_step).got_on is wanted
    assert not STORY.got_on
