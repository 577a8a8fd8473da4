"""The processes of one run: all are started, or none goes on; when one ends badly, so do the others.

A gang ends by being *pressed*: SIGTERM with the job's grace, or SIGKILL. `live` returns when no process is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from deploy.local.declared import Reason
from deploy.local.logs import UnknownReplica
from deploy.local.process import CannotStart, Exit, Order, ReplicaProcess, start_process
from deploy.local.training.ending import EX_TEMPFAIL, End, others_must_end, signals_of
from deploy.local.training.plan import harder
from events.clock import Clock
from events.types.training import MemberGrant, Stop
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

STARTS_AT_ONCE: Final = 16
"""Of one gang: each start is two processes."""
ABANDON: Final = Seconds(5.0)
"""After a bound: how long a shim may take to see to its SIGKILL before it is taken to be stuck."""


@dataclass(slots=True)
class Member:
    """One process of the gang. `sent`: the signals that it was sent; `left`: nothing of it is there any more."""

    grant: MemberGrant
    process: ReplicaProcess | None = None
    end: End | None = None
    sent: set[int] = field(default_factory=set)
    left: bool = False

    @property
    def pid(self) -> int | None:
        """Of its main process, also after its end."""
        return None if self.process is None else self.process.pid

    def press(self, stop: Stop) -> None:
        """Tell it to end."""
        if self.process is None or self.end is not None or stop is Stop.NOT:
            return
        self.sent |= signals_of(stop)
        if stop is Stop.TERMINATE:
            self.process.terminate()
        else:
            self.process.kill()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, where it was not by its members' ends alone."""

    reason: Reason
    message: str


class Gang:
    """See the module. `order` makes a member's start; `changed` hears of pids and ends."""

    def __init__(
        self, clock: Clock, grace: Seconds, members: Sequence[Member], order: Callable[[int], Order],
        changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.members = tuple(members)
        self.ends: list[Member] = []
        """Members that have ended, in that order."""
        self.stop = Stop.NOT
        self.failure: Failure | None = None
        self._clock = clock
        self._grace = grace
        self._order = order
        self._changed = changed
        self._places = asyncio.Semaphore(STARTS_AT_ONCE)
        self._pressed = {Stop.TERMINATE: asyncio.Event(), Stop.KILL: asyncio.Event()}
        self._waiting: asyncio.Task[None] | None = None

    @property
    def complete(self) -> bool:
        """Whether every member's process exists, or existed."""
        return all(one.process is not None or one.end is not None for one in self.members)

    def pids(self) -> list[int]:
        """Of the members that run."""
        return [one.process.pid for one in self.members if one.process is not None and one.end is None]

    def press(self, stop: Stop) -> None:
        """Tell all to end. Less than was said before means nothing."""
        if not harder(stop, self.stop):
            return
        self.stop = stop
        self._pressed[stop].set()
        for member in self.members:
            member.press(stop)

    def fail(self, failure: Failure, stop: Stop) -> None:
        """The run has failed; the first reason stands."""
        if self.failure is None and self.stop is Stop.NOT:
            self.failure = failure
        self.press(stop)

    async def live(self) -> None:
        """From the start of the first to the last process."""
        escalating = asyncio.create_task(self._escalate())
        try:
            async with asyncio.TaskGroup() as members:
                for rank, member in enumerate(self.members):
                    members.create_task(self._live_one(rank, member), name=f"member {member.grant.member}")
        finally:
            tasks = [escalating, *([self._waiting] if self._waiting else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _live_one(self, rank: int, member: Member) -> None:
        if member.end is not None:  # it ended while no relume looked
            self._ended(member, member.end.exit)
        elif member.process is None:
            await self._start(rank, member)
        if member.process is not None:
            exit_ = await member.process.wait_exit()
            if member.end is None:
                self._ended(member, exit_)
            if self.stop is not Stop.NOT:  # what it left behind has no purpose, and its grace goes on otherwise
                member.process.kill()
            await member.process.wait_gone()
        member.left = True

    async def _start(self, rank: int, member: Member) -> None:
        async with self._places:
            if self.stop is not Stop.NOT:
                return
            try:
                member.process = await start_process(self._order(rank))
            except CannotStart as error:
                reason = Reason.COMMAND_NOT_FOUND if error.missing else Reason.CANNOT_START
                self.fail(Failure(reason, str(error)), Stop.KILL)
            except UnknownReplica as error:  # a name that is no file's
                self.fail(Failure(Reason.CANNOT_START, str(error)), Stop.KILL)
            except OSError as error:  # no process, no memory, no descriptor, no folder
                self.fail(Failure(Reason.CANNOT_START, f"the system gave no process: {error}"), Stop.KILL)
            else:
                member.press(self.stop)
                self._changed()

    def _ended(self, member: Member, exit_: Exit) -> None:
        member.end = End(exit_, frozenset(member.sent))
        self.ends.append(member)
        if others_must_end(exit_):
            self.press(Stop.TERMINATE)
        elif exit_.code == EX_TEMPFAIL and self._waiting is None:
            self._waiting = asyncio.create_task(self._end_laggards())
        self._changed()

    async def _end_laggards(self) -> None:
        """One has left with a checkpoint, so all have committed it and are about to leave."""
        await self._pause(self._grace)
        self.press(Stop.TERMINATE)

    async def _escalate(self) -> None:
        """See to it that pressing has an end, also when a shim does not do its work."""
        terminated, killed = self._pressed[Stop.TERMINATE], self._pressed[Stop.KILL]
        first = [asyncio.create_task(terminated.wait()), asyncio.create_task(killed.wait())]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not killed.is_set():
                await asyncio.wait(first[1:], timeout=self._grace + ABANDON)
        finally:
            for task in first:
                task.cancel()
        self.press(Stop.KILL)
        await self._pause(ABANDON)
        for member in self._left_over():
            member.process.kill()  # type: ignore[union-attr]  # those that are left over have one
        await self._pause(ABANDON)
        for member in self._left_over():
            logger.error("%s (pid %s) does not end; its cards stay taken", member.grant.member, member.pid)
            member.process.abandon_shim()  # type: ignore[union-attr]  # as above

    def _left_over(self) -> list[Member]:
        return [one for one in self.members if one.process is not None and not one.left]

    async def _pause(self, seconds: Seconds) -> None:
        await self._clock.sleep_until(Instant(self._clock.now() + seconds))
