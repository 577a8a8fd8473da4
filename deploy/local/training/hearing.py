"""Listens to one run: reads its reports, keeps its story, and looks at the checkpoints that it tells of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from deploy.local.training.reading import ReportFile
from deploy.local.training.report import read_report
from deploy.local.training.starting import Counts, Shape, TrainingTools
from deploy.local.training.story import Claim, Saved, SaveFailed, Story, disproven, hear, proven
from events.clock import Clock
from events.types.training import CheckpointCommitted, CheckpointFailed, CheckpointStatus
from events.units import Instant, Seconds
from preemption.trainer.manifest import BadCheckpoint

logger = logging.getLogger(__name__)

STEP_EVERY: Final = Seconds(10.0)
"""Between two states of a run of which only the step has moved: a state is a record in the log, and a kilobyte."""


class Lines(Protocol):
    """Where a run's reports come from."""

    async def read(self) -> Sequence[bytes]:
        """Whole lines that are new; empty when there are no more now."""

    async def read_last(self) -> Sequence[bytes]:
        """What is left at the end, when nobody writes any more and `read` gives no more."""


class FileLines:
    """Those of a file, read in a thread."""

    def __init__(self, file: ReportFile) -> None:
        self._file = file

    async def read(self) -> Sequence[bytes]:
        """See `Lines`."""
        return await asyncio.to_thread(self._file.read)

    async def read_last(self) -> Sequence[bytes]:
        """See `Lines`."""
        return await asyncio.to_thread(self._file.read_last)


@dataclass(frozen=True, slots=True)
class Hearing:
    """What an ear hears with. `check` says what a checkpoint is that a trainer tells of: BadCheckpoint when it is not
    whole. `news` may be lost."""

    clock: Clock
    counts: Counts
    news: Callable[[object], None]
    lines: Lines
    check: Callable[[Saved], Awaitable[CheckpointStatus]]


def hearing_of(tools: TrainingTools, shape: Shape) -> Hearing:
    """On this machine: by the run's report file, and by looking at the checkpoint where the trainer started."""
    lines = FileLines(ReportFile(shape.folder(tools.folder).reports))

    async def check(saved: Saved) -> CheckpointStatus:
        return await tools.checker.check(saved, shape.start_folder(tools.folder))

    return Hearing(tools.clock, tools.counts, tools.news, lines, check)


class Ear:
    """See the module. `changed` is called when others should hear of the story."""

    def __init__(self, hearing: Hearing, shape: Shape, story: Story, changed: Callable[[], None]) -> None:
        self.story = story
        self.checkpoints = 0
        """That it has committed."""
        self._hearing = hearing
        self._shape = shape
        self._changed = changed
        self._told = story
        self._told_at = Instant(0.0)

    async def listen(self) -> None:
        """Take in all that was said since the last time."""
        while lines := await self._hearing.lines.read():
            await self._take(lines)
        self._tell()

    async def listen_to_the_end(self) -> None:
        """The same, when nobody writes any more."""
        await self.listen()
        await self._take(await self._hearing.lines.read_last())
        self._tell()

    async def _take(self, lines: Sequence[bytes]) -> None:
        now = self._hearing.clock.now()
        claims: list[Claim] = []
        for line in lines:
            report = read_report(line)
            if report is None:
                self._hearing.counts.unreadable += 1
                continue
            self.story, claim = hear(self.story, report, now)
            if claim is not None:
                claims.append(claim)
        for claim in _worth_a_look(claims):
            await self._judge(claim)

    async def _judge(self, claim: Claim) -> None:
        if isinstance(claim, SaveFailed):
            self._say_failed(claim.step, claim.message, claim.notice)
            return
        if self._is_known(claim):  # read again after a restart; it may have been removed since, by plan
            return
        try:
            checkpoint = await self._hearing.check(claim)
        except BadCheckpoint as error:
            why = f"the checkpoint of step {claim.step} is not whole: {error}"
            self.story = disproven(self.story, claim, why)
            self._hearing.counts.bad_checkpoints += 1
            self._say_failed(claim.step, why, claim.notice)
            return
        self.story = proven(self.story, claim, checkpoint)
        self.checkpoints += 1
        self._hearing.counts.checkpoints += 1
        self._hearing.news(
            CheckpointCommitted(
                job=self._shape.policy.job, run=self._shape.run, checkpoint=checkpoint, notice=claim.notice
            )
        )

    def _is_known(self, claim: Saved) -> bool:
        known, notice = self.story.checkpoint, self.story.notice
        if known is None or not known.verified or claim.step > known.step:
            return False
        standing = notice is not None and claim.notice == notice.id
        return not standing or (notice is not None and notice.saved_step is not None)

    def _say_failed(self, step: int, message: str, notice: str) -> None:
        job = self._shape.policy.job
        logger.warning("%s could not save at step %d: %s", job, step, message)
        self._hearing.news(CheckpointFailed(job=job, run=self._shape.run, step=step, message=message, notice=notice))

    def _tell(self) -> None:
        """Others hear at once of everything but mere steps, and of those at the first (it is back, and what coming back
        costs is counted by that), then at times, or while a notice stands."""
        if self.story == self._told:
            return
        now = self._hearing.clock.now()
        only_steps = _without_step(self.story) == _without_step(self._told) and self.story.trains == self._told.trains
        if only_steps and not self.story.watched and now - self._told_at < STEP_EVERY:
            return
        self._told, self._told_at = self.story, now
        self._changed()


def _without_step(story: Story) -> Story:
    return replace(story, step=None, step_at=None)


def _worth_a_look(claims: Sequence[Claim]) -> list[Claim]:
    """All answers to notices, and of the other saves the newest: older ones may have been removed meanwhile."""
    plain = [claim for claim in claims if isinstance(claim, Saved) and not claim.notice]
    return [claim for claim in claims if not isinstance(claim, Saved) or claim.notice or claim is plain[-1]]
