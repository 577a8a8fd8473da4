"""One run of a training job, from its first process until its cards are seen empty: its facts, its state, its task."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from deploy.local.addresses import NoFreePort
from deploy.local.declared import Reason
from deploy.local.logs import UnknownReplica, log_path, tail
from deploy.local.process import Exit, Order
from deploy.local.training.common import AWAITED, QUIET, TOLD_MESSAGE, TOLD_NAMES, CommonRun
from deploy.local.training.emptying import until_empty
from deploy.local.training.ending import EX_TEMPFAIL
from deploy.local.training.folders import logs_of
from deploy.local.training.gang import Failure, Gang, Member
from deploy.local.training.hearing import Ear, hearing_of
from deploy.local.training.notifying import Address, Notifier
from deploy.local.training.plan import ActualRun
from deploy.local.training.starting import Meeting, Shape, TrainingTools, order_for
from deploy.local.training.story import Story
from deploy.local.usage import TreeUse
from events.types.training import Ending, MemberStatus, RunState, Stop
from events.units import Instant
from preemption.core.training import Channel

logger = logging.getLogger(__name__)

TAIL_LINES: Final = 50
TOLD_LINE: Final = 500
"""Characters of a log line that go into the state."""
_AND: Final = {
    0: "it did not say that it had finished",
    EX_TEMPFAIL: "nobody had told it to go, and it has saved nothing new to go on from",
}
"""What is odd about an exit code, where it means that the run failed."""


class Run(CommonRun[Notifier]):
    """A run. `changed` hears that its state is another."""

    def __init__(self, tools: TrainingTools, shape: Shape, story: Story, changed: Callable[[Run], None]) -> None:
        super().__init__(tools.clock, shape, story.began_at, lambda: changed(self))
        self._tools = tools
        self._recorded = ""
        self._meeting: Meeting | None = None
        self._adopted = False
        self._ready = False
        """Whether its folder is there."""
        self.gang = self._gang([Member(one) for one in shape.members])
        self.ear = Ear(hearing_of(tools, shape), shape, story, self._tell)
        file = shape.folder(tools.folder).notice
        self._notices = Notifier(shape.policy.checkpoint, file, None, tools.poster)
        for one in shape.members:
            tools.cores.take(shape.mark(one.member), one.resources.cpu if tools.settings.pin_cores else 0.0)

    def take_over(self, members: Sequence[Member], notices: Address | None) -> None:
        """It is another relume's: it goes on, or ended meanwhile. Call it before `live`."""
        self._adopted = self._ready = True
        self.gang = self._gang(members)
        self._notices.address = notices
        if self.ear.story.notice is not None:
            self._recorded = self.ear.story.notice.id
            tell = self._notices.resume if self.ear.story.watched else self._notices.remember
            tell(self._recorded)
        if self.gang.complete:
            self.state = RunState.RUNNING

    def _gang(self, members: Sequence[Member]) -> Gang:
        grace = self.shape.policy.checkpoint.grace
        return Gang(self._tools.clock, grace, members, self._order, self._member_changed)

    # What the cluster orders.

    def end(self, stop: Stop, why: str) -> None:
        """Make it end."""
        if self.state is RunState.ENDED:
            return
        self.told_to_end = True
        self.why = self.why or why
        self.gang.press(stop)

    def watch(self, member: Member, use: TreeUse) -> None:
        """Judge what a member's processes use."""
        limit = member.grant.resources.memory_bytes
        if limit and use.memory_bytes > limit:
            message = f"{member.grant.member} used {use.memory_bytes} bytes; resources.memory allows {limit}"
            self.gang.fail(Failure(Reason.OOM_KILLED, message), Stop.KILL)

    # Its life.

    async def live(self) -> None:
        """Until its processes have ended and all that it said is known."""
        await self._side_by_side(self._listen(), self._live())
        if self.ending_so_far() is Ending.FAILED:
            self.log_tail = await asyncio.to_thread(self._last_lines)
        self._end(self.ending_so_far(), self._tools.clock.now())

    async def _live(self) -> None:
        if not self._adopted and not await self._prepare():
            return
        await self.gang.live()

    async def _prepare(self) -> bool:
        """All that must be there before the first process is."""
        try:
            await asyncio.to_thread(self.shape.folder(self._tools.folder).make)
            self._meeting = self._meet()
        except (OSError, NoFreePort) as error:
            self.gang.fail(Failure(Reason.CANNOT_START, f"its folder or its ports cannot be had: {error}"), Stop.KILL)
            return False
        start = self.shape.start_folder(self._tools.folder)
        if not await asyncio.to_thread(start.is_dir):
            self.gang.fail(Failure(Reason.CANNOT_START, f"spec.folder: {start} is no folder here"), Stop.KILL)
            return False
        self._notices.address, self._ready = self._meeting.notices, True
        await self._tools.record(self.shape.policy.job)  # a relume that comes after us must know that it may exist
        return True

    def _meet(self) -> Meeting:
        host, ports = self._tools.settings.host, self._tools.ports
        over_http = Channel.HTTP in self.shape.policy.checkpoint.channels
        notices = Address(host, ports.choose(), secrets.token_hex(16)) if over_http else None
        return Meeting(host, ports.choose(), notices)

    def _order(self, rank: int) -> Order:
        assert self._meeting is not None
        return order_for(self._tools, self.shape, rank, self._meeting)

    def _member_changed(self) -> None:
        if self.state is RunState.STARTING and self.gang.complete:
            self.state = RunState.RUNNING
        for member in self.gang.members:
            if member.end is not None:
                self._woken.set()  # its last words are there
        self._tell()

    async def _listen(self) -> None:
        """Hear what it says and tell it what it must know, as long as it lives."""
        clock = self._tools.clock
        while not self._over:
            self._woken.clear()
            await self.ear.listen()
            if self._ready:
                await self._deliver()
            pause = AWAITED if self.ear.story.watched else QUIET
            if not self._over:
                await self._rest(Instant(clock.now() + pause))

    async def _deliver(self) -> None:
        stands = self._notices.stands
        if stands and stands != self._recorded:
            await self._tools.record(self.shape.policy.job)  # so that no signal is sent twice by the next relume
            self._recorded = stands
        pids = self.gang.pids()
        before = set(self._notices.sent)
        await self._notices.deliver(pids, self._tools.clock.now(), silent=not self.ear.story.reports)
        for member in self.gang.members if self._notices.sent != before else ():
            member.sent |= self._notices.sent

    def _end(self, ending: Ending, at: Instant) -> None:
        self.state, self.ending, self.ended_at = RunState.ENDED, ending, at
        for one in self.shape.members:
            self._tools.cores.give_back(self.shape.mark(one.member))
        self._tell()

    async def prove_empty(self) -> None:
        """Return once nothing of it is left, neither processes nor anything on its cards."""
        await until_empty(self.shape.left(self._tools, self.started_at), self._tools.clock)
        self.empty_at = self._tools.clock.now()
        self._tell()

    # What is seen of it.

    def ending_so_far(self) -> Ending:
        """How it has ended, once it has."""
        if self.gang.failure is not None:
            return Ending.FAILED
        ends = [one.end for one in self.gang.ends if one.end is not None]
        return self._ending(ends, adopted=self._adopted)  # by its shim, when it had waited long enough for us

    @property
    def failed(self) -> bool:
        """Whether its end counts as a failure: also when it is killed with its shims, unless relume was away then."""
        return self.ending is Ending.FAILED or (self.ending is Ending.LOST and not self._adopted)

    def actual(self) -> ActualRun:
        """As the plan sees it."""
        return self._actual(self.gang.stop)

    def statuses(self) -> tuple[MemberStatus, ...]:
        """Its members, as all others see them."""
        known = {one.grant.member: one for one in self.gang.members}
        return tuple(
            MemberStatus(
                member=one.member, node=one.placement.node, gpus=one.placement.gpus, resources=one.resources,
                pid=known[one.member].pid if one.member in known else None,
                exit_code=end.code if one.member in known and (end := known[one.member].end) else None,
            )
            for one in self.shape.members
        )  # fmt: skip

    def trouble(self) -> tuple[str, str]:
        """The reason of a failure, and what to tell people of how it is or ended."""
        failure = self.gang.failure
        if failure is not None:
            return str(failure.reason), failure.message[:TOLD_MESSAGE]
        said = self.ear.story.message
        if self.ending is Ending.LOST:
            lost = [one.grant.member for one in self.gang.ends if one.end is not None and one.end.exit == Exit()]
            return str(Reason.CRASHED), f"{', '.join(lost[:TOLD_NAMES])} was killed with its shim, nobody knows by whom"
        if self.ending is not Ending.FAILED:
            return "", (self.why or said)[:TOLD_MESSAGE]
        told = [f"{one.grant.member} ended with {one.end.exit}" for one in self.gang.ends[:1] if one.end is not None]
        code = self.gang.ends[0].end.code if self.gang.ends and self.gang.ends[0].end is not None else None
        told += [_AND[code]] if code in _AND else []
        return str(Reason.CRASHED), "; ".join(filter(None, (*told, said)))[:TOLD_MESSAGE]

    def _last_lines(self) -> tuple[str, ...]:
        """Of the member that ended first."""
        first = self.gang.ends[0].grant.member if self.gang.ends else self.shape.members[0].member
        try:
            lines = tail(log_path(logs_of(self._tools.folder), first), TAIL_LINES)
        except UnknownReplica:  # a name that is no file's: it never wrote anything
            return ()
        return tuple(line[:TOLD_LINE] for line in lines)
