"""What is the same of every run, whatever its members are: its facts, what it was told, what it said, how it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, Generic, TypeVar

from deploy.local.training.ending import End, Said, ending_of
from deploy.local.training.hearing import Ear
from deploy.local.training.plan import ActualRun, held_by
from deploy.local.training.standing import Notices
from deploy.local.training.starting import Shape
from deploy.local.training.story import Story, notified, withdrawn
from events.clock import Clock
from events.types.training import Ending, NoticeGiven, RunState, Stop
from events.units import Instant, Seconds

QUIET: Final = Seconds(1.0)
AWAITED: Final = Seconds(0.2)
"""Between two looks at the reports: always, and while somebody waits for a word. A look at a file costs 0.1 ms."""
TOLD_NAMES: Final = 3
TOLD_MESSAGE: Final = 2000
"""Characters of a message that go into the state."""


N = TypeVar("N", bound=Notices)


class CommonRun(Generic[N]):
    """A run. Used on the event loop only. `changed` is called when its state is another. (See `AnyRun`.) Who inherits
    sets `ear` and `_notices`."""

    ear: Ear
    _notices: N

    def __init__(self, clock: Clock, shape: Shape, began_at: Instant, changed: Callable[[], None]) -> None:
        self.shape = shape
        self.state = RunState.STARTING
        self.started_at = began_at
        self.ended_at: Instant | None = None
        self.empty_at: Instant | None = None
        self.ending: Ending | None = None
        self.log_tail: tuple[str, ...] = ()
        self.epoch = 0
        """Of the newest grant: notices carry it."""
        self.told_to_end = False
        """By a grant, or because relume stops: its end is no failure of its own."""
        self.settled = False
        """Whether its end stands in the log: only then may another begin."""
        self.why = ""
        self._clock = clock
        self._tell = changed
        self._woken = asyncio.Event()
        self._over = False
        """Whether its last process has ended."""

    # What the cluster orders.

    def give(self, notice: NoticeGiven) -> None:
        """Tell it of a notice."""
        if self.state is not RunState.ENDED:
            self._notices.give(notice, self.epoch)
            self._story(notified(self.ear.story, notice.id))

    def withdraw(self) -> None:
        """Its notice no longer holds."""
        if self.state is not RunState.ENDED:
            self._notices.withdraw()
            self._story(withdrawn(self.ear.story, self._clock.now()))

    def _story(self, story: Story) -> None:
        self.ear.story = story
        self._woken.set()
        self._tell()

    # Its life.

    async def _side_by_side(self, listen: Coroutine[None, None, None], live: Coroutine[None, None, None]) -> None:
        """Until it has ended and all that it said is known. `listen` comes to its end once `_over` is set; whichever
        fails first ends both."""
        listening = asyncio.create_task(listen, name=f"reports of {self.shape.policy.job}")
        living = asyncio.create_task(live, name=f"gang of {self.shape.policy.job}")
        try:
            await asyncio.wait({listening, living}, return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                await living
                self._over = True
                self._woken.set()
            await listening  # to its own end: what it has read it also looks at
        finally:
            for task in (listening, living):
                task.cancel()
            await asyncio.gather(listening, living, return_exceptions=True)
        await self.ear.listen_to_the_end()

    async def _rest(self, until: Instant) -> None:
        """Until this instant, or until woken."""
        tasks = [asyncio.create_task(self._woken.wait()), asyncio.create_task(self._clock.sleep_until(until))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    # What is seen of it.

    @property
    def story(self) -> Story:
        """What it has said."""
        return self.ear.story

    @property
    def notice(self) -> str:
        """The id of the notice that it was given and that holds; empty: none."""
        return self._notices.stands

    @property
    def blocked(self) -> str:
        """Nothing forbids to make it end."""
        return ""

    @property
    def failed(self) -> bool:
        """Whether its end counts as a failure. One whose members were taken away by others has not failed."""
        return self.ending is Ending.FAILED

    @property
    def got_on(self) -> bool:
        """Whether it has committed a checkpoint."""
        return self.ear.checkpoints > 0

    @property
    def saved(self) -> bool:
        """Whether it has committed a checkpoint after the notice that it was given."""
        notice = self.ear.story.notice
        return notice is not None and notice.saved_step is not None

    def _ending(self, ends: Sequence[End], *, adopted: bool) -> Ending:
        """How it has ended, once it has; an earlier relume may have told it what we do not know of."""
        story = self.ear.story
        told = story.notice is not None or adopted
        return ending_of(ends, Said(story.finished, story.reports, self.saved, told=told, got_on=story.got_on))

    def _actual(self, stop: Stop) -> ActualRun:
        return ActualRun(
            uid=self.shape.uid, run=self.shape.run, held=held_by(self.shape.members), alive=not self.settled,
            notice=self.notice, stop=stop,
        )  # fmt: skip
