"""The pods of one run: all are there, or none goes on; when one ends badly, so do the others.

A gang ends by being *pressed*. A job that must yield is asked to go by the Eviction API, so a PodDisruptionBudget has
its say: what it forbids is told, tried again, and never forced. A member that has no purpose any more, since another
one failed, is deleted. The kubelet carries out the grace; being pressed harder shortens it. A pod has ended when its
kubelet says that its containers have, or when it is gone from the API server; nothing else frees its GPUs.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.judging import PodReason, judge
from deploy.kubernetes.own_pod import apply_pod
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.shaping import Manifest
from deploy.kubernetes.training.tools import PodTools
from deploy.kubernetes.views import PodView
from deploy.local.process import Exit
from deploy.local.training.ending import EX_TEMPFAIL, End, others_must_end, signals_of
from deploy.local.training.plan import harder
from events.types.training import MemberGrant, Stop
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

SHORTEST_GRACE: Final = 1
"""Seconds, when it is told to end at once. 0 would only forget the pod: its kubelet would not be waited for."""
LOOK_AGAIN: Final = Seconds(1.0)
"""Between two looks at a pod though nothing was heard, and between two tries to end it."""
TRY_AGAIN: Final = Seconds(5.0)
"""Between two looks whether what forbids the end of a pod still does. Chosen."""
BUDGET: Final = "disruption budget"
"""What the API server's sentence says when a PodDisruptionBudget forbids an eviction."""


@dataclass(slots=True)
class PodMember:
    """One pod of the gang. `uid`: of the pod, once it is there; `sent`: signals that its kubelet was told to send."""

    grant: MemberGrant
    name: str
    uid: str = ""
    end: End | None = None
    sent: set[int] = field(default_factory=set)
    last: PodView | None = None
    """As it was seen last."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, where it was not by its members' ends alone."""

    reason: str
    message: str


class PodGang:
    """See the module. `order` makes a member's pod, given rank 0's address: ValueError says why none can be made."""

    def __init__(
        self, tools: PodTools, grace: Seconds, members: Sequence[PodMember], order: Callable[[int, str], Manifest],
        changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.members = tuple(members)
        self.ends: list[PodMember] = []
        """Members that have ended, in that order."""
        self.stop = Stop.NOT
        self.failure: Failure | None = None
        self.blocked = ""
        """Why it cannot be made to end now; empty: it can, as far as is known. Stands until that was tried anew."""
        self._tools = tools
        self._grace = grace
        self._order = order
        self._changed = changed
        self._by_us = False
        """Whether it ends because it has no purpose any more, so that no budget needs to be asked."""
        self._first_address = ""
        self._turned = asyncio.Event()
        self._laggards: asyncio.Task[None] | None = None

    @property
    def complete(self) -> bool:
        """Whether every member's container runs, or ran."""
        return all(one.end is not None or (one.last is not None and one.last.running) for one in self.members)

    def press(self, stop: Stop, *, by_us: bool = False) -> None:
        """Tell all to end. Less than was said before means nothing."""
        self._by_us = self._by_us or by_us
        if harder(stop, self.stop):
            self.stop = stop
            self._turn()

    def relent(self) -> None:
        """It may go on, if it was not made to end yet."""
        if self.stop is not Stop.NOT and not self._by_us and not any(one.sent for one in self.members):
            self.stop = Stop.NOT
            self._turn()

    def fail(self, failure: Failure) -> None:
        """The run has failed; the first reason stands."""
        if self.failure is None and self.stop is Stop.NOT:
            self.failure = failure
        self.press(Stop.KILL, by_us=True)

    async def live(self) -> None:
        """From the first pod to the last one's end."""
        try:
            async with asyncio.TaskGroup() as members:
                for rank, member in enumerate(self.members):
                    members.create_task(self._live_one(rank, member), name=f"member {member.grant.member}")
        finally:
            if self._laggards is not None:
                self._laggards.cancel()

    async def _live_one(self, rank: int, member: PodMember) -> None:
        if member.end is not None:  # it ended while no relume looked
            self._ended(member, member.end)
            return
        if not member.uid and not await self._make(rank, member):
            return
        ending = asyncio.create_task(self._see_it_out(member), name=f"ends {member.grant.member}")
        try:
            self._ended(member, await self._watch(rank, member))
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    # It comes.

    async def _make(self, rank: int, member: PodMember) -> bool:
        """Apply its pod, once rank 0 has an address that the others can be told. False: it is not wanted any more."""
        while rank and not self._first_address and self.stop is Stop.NOT:
            await self._until_turned()
        tries = 0
        while self.stop is Stop.NOT:
            try:
                body = self._order(rank, self._first_address if rank else "")
                await self._tools.lease.hold()
                pod = self._tools.pods.expect(await apply_pod(self._tools.api, body, member.grant))
            except ApiUnavailable as error:
                logger.debug("pod %s: %s", member.name, error)
                await self._pause(Seconds(min(10.0, 0.1 * 2.0 ** min(tries, 10))))
                tries += 1
            except ApiError as error:
                self.fail(Failure(PodReason.REFUSED, str(error)))
            except ValueError as error:
                self.fail(Failure("InvalidSpec", str(error)))
            else:
                member.uid, member.last = pod.uid, pod
                self._changed()
                return True
        return False

    # It is there.

    async def _watch(self, rank: int, member: PodMember) -> End:
        """How it ended, once it has."""
        bell = self._tools.pods.bell(self._tools.namespace, member.name)
        try:
            while True:
                bell.clear()
                pod = self._tools.pods.get(self._tools.namespace, member.name)
                if pod is None or pod.uid != member.uid:
                    return End(Exit(), frozenset(member.sent))
                if pod != member.last:
                    member.last = pod
                    self._changed()
                if pod.deleting or pod.disrupted is not None:  # whoever did it: it was told by SIGTERM
                    member.sent |= signals_of(Stop.TERMINATE)
                if pod.over:
                    return End(_exit_of(pod), frozenset(member.sent))
                self._look_at(rank, pod)
                await self._first(bell, LOOK_AGAIN)
        finally:
            self._tools.pods.unbell(self._tools.namespace, member.name, bell)

    def _look_at(self, rank: int, pod: PodView) -> None:
        if rank == 0 and pod.ip and not self._first_address:
            self._first_address = pod.ip
            self._turn()
        if pod.deleting:
            return
        trouble = judge(pod, ready=pod.running, limits=self._tools.limits, now=self._tools.clock.now()).trouble
        if trouble is not None:
            self.fail(Failure(trouble.reason, trouble.message))

    def _ended(self, member: PodMember, end: End) -> None:
        member.end = end
        self.ends.append(member)
        if others_must_end(end.exit):
            self.press(Stop.TERMINATE, by_us=True)
        elif end.exit.code == EX_TEMPFAIL and self._laggards is None:
            self._laggards = asyncio.create_task(self._end_laggards())
        self._changed()

    async def _end_laggards(self) -> None:
        """One has left with a checkpoint, so all have committed it and are about to leave."""
        await self._pause(self._grace)
        self.press(Stop.TERMINATE, by_us=True)

    # It goes.

    async def _see_it_out(self, member: PodMember) -> None:
        """Ask for its end, as hard as was said, as long as it must end and has not."""
        asked = Stop.NOT
        while True:
            stop, turned = self.stop, self._turned
            if harder(stop, asked):
                try:
                    await self._tools.lease.hold()
                    await self._ask(member, stop)
                except (ApiUnavailable, ApiError) as error:
                    if isinstance(error, ApiError) and error.status in (404, 409):
                        return  # it is gone, or another one has its name
                    self._refused(member, error)
                else:
                    asked = stop
                    member.sent |= signals_of(stop)
                    self.blocked = ""
                    continue
            elif self.blocked:
                await self._try_whether(member)
            pause = LOOK_AGAIN if harder(stop, asked) else TRY_AGAIN if self.blocked else None
            await self._first(turned, pause)

    async def _try_whether(self, member: PodMember) -> None:
        """See whether what forbade its end still does, without ending it."""
        try:
            await self._tools.evict(member.name, member.uid, SHORTEST_GRACE, dry=True)
        except (ApiUnavailable, ApiError) as error:
            if BUDGET in str(error) or isinstance(error, ApiUnavailable):
                return
        self.blocked = ""
        self._changed()

    async def _ask(self, member: PodMember, stop: Stop) -> None:
        grace = SHORTEST_GRACE if stop is Stop.KILL else max(SHORTEST_GRACE, round(self._grace))
        pod, path = self._tools.pods.get(self._tools.namespace, member.name), self._path(member)
        if self._by_us or (pod is not None and (pod.deleting or not pod.running)):
            await self._tools.api.delete(path, grace=grace, uid=member.uid)
            return
        await self._tools.evict(member.name, member.uid, grace)

    def _refused(self, member: PodMember, error: ApiUnavailable | ApiError) -> None:
        said = f"pod {member.name} cannot be made to end: {error}"
        logger.log(logging.WARNING if said != self.blocked else logging.DEBUG, "%s", said)
        if BUDGET in str(error):
            self.blocked = said
            self._changed()

    # In common.

    def _path(self, member: PodMember) -> str:
        return PODS.path(self._tools.namespace, member.name)

    def _turn(self) -> None:
        """Whoever waits looks again."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def _until_turned(self) -> None:
        await self._turned.wait()

    async def _pause(self, seconds: Seconds) -> None:
        await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + seconds))

    async def _first(self, event: asyncio.Event, within: Seconds | None) -> None:
        """Until it is set, or so many seconds are over."""
        tasks: list[asyncio.Task[object]] = [asyncio.create_task(event.wait())]
        if within is not None:
            tasks.append(asyncio.create_task(self._pause(within)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _exit_of(pod: PodView) -> Exit:
    """How its container ended. A pod that ended without it (its node is gone, say) tells nothing."""
    ended = pod.ended
    if ended is None:
        return Exit()
    if ended.reason == "OOMKilled":
        return Exit(signal=int(signal.SIGKILL))
    return Exit(code=ended.exit_code)
