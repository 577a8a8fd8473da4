"""One run of a training job as pods, from the first one until its GPUs are free: its facts, its state, its task."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.occupied import Left
from deploy.kubernetes.pod_watch import TAIL_LINES, TOLD_LINE
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.shaping import Manifest
from deploy.kubernetes.training.gang import PodGang, PodMember
from deploy.kubernetes.training.link import PodLines, believed
from deploy.kubernetes.training.notifying import PodNotifier
from deploy.kubernetes.training.shaping import (
    LABEL_JOB,
    LABEL_RUN,
    Look,
    MemberOrder,
    is_told,
    manifest,
    pod_name,
    run_of,
    token_in,
)
from deploy.kubernetes.training.tools import PodTools
from deploy.kubernetes.views import LABEL_MANAGED, MANAGED_BY
from deploy.local.declared import Reason
from deploy.local.process import Exit
from deploy.local.training.common import AWAITED, QUIET, TOLD_MESSAGE, TOLD_NAMES, CommonRun
from deploy.local.training.ending import EX_TEMPFAIL
from deploy.local.training.hearing import Ear, Hearing
from deploy.local.training.notifying import Address
from deploy.local.training.plan import ActualRun
from deploy.local.training.starting import Shape
from deploy.local.training.story import Story
from events.types.training import Ending, MemberStatus, RunState, Stop, TrainingObserved
from events.units import Instant

logger = logging.getLogger(__name__)

FIRST_PROCESS: Final = 1
"""The pid of a container's process, in its own namespace."""


class PodRun(CommonRun[PodNotifier]):
    """A run. `changed` hears that its state is another."""

    def __init__(self, tools: PodTools, shape: Shape, story: Story, changed: Callable[[PodRun], None]) -> None:
        super().__init__(tools.clock, shape, story.began_at, lambda: changed(self))
        self._tools = tools
        self._adopted = False
        self._recorded = ""
        self._look: Look | None = None
        self._token = secrets.token_hex(16)
        members = [PodMember(one, pod_name(shape, rank)) for rank, one in enumerate(shape.members)]
        self.gang = PodGang(tools, shape.policy.checkpoint.grace, members, self._order, self._member_changed)
        lines = PodLines(tools.link, self._address, self._last_words)
        hearing = Hearing(tools.clock, tools.counts, tools.news, lines, believed)
        self.ear = Ear(hearing, shape, story, self._tell)
        self._notices = PodNotifier(tools, self._address, self._first_pod)

    def take_over(self, observed: TrainingObserved) -> None:
        """It is another relume's, and goes on with its pods. If all were there, one that is missing has gone; else they
        are made. Call it before `live`."""
        self._adopted = True
        for member in self.gang.members:
            pod = self._tools.pods.get(self._tools.namespace, member.name)
            mine = (self.shape.uid, self.shape.run, member.grant.member)
            if pod is not None and run_of(pod.annotations) == mine:
                member.uid, member.last = pod.uid, pod
            elif observed.state is not RunState.STARTING:
                member.uid = "gone"
        first = self._tools.pods.get(self._tools.namespace, self.gang.members[0].name)
        if first is not None:
            self._token = token_in(first) or self._token
        notice = self.ear.story.notice
        if notice is not None and self.ear.story.watched:
            self._recorded = notice.id
            self._notices.resume(notice.id)
        if self.gang.complete:
            self.state = RunState.RUNNING

    # What the cluster orders.

    def withdraw(self) -> None:
        """See `AnyRun.withdraw`."""
        if self.state is not RunState.ENDED:
            self.gang.relent()
            self.told_to_end = self.gang.stop is not Stop.NOT
        super().withdraw()

    def end(self, stop: Stop, why: str) -> None:
        """See `AnyRun.end`."""
        if self.state is RunState.ENDED:
            return
        self.told_to_end = True
        self.why = self.why or why
        self.gang.press(stop)

    def wake(self) -> None:
        """Something about its pods' node or its object changed: tell people."""
        self._tell()

    # Its life.

    async def live(self) -> None:
        """See `AnyRun.live`."""
        await self._side_by_side(self._listen(), self._live())
        if self.ending_so_far() is Ending.FAILED:
            self.log_tail = self._tail()
        self.state, self.ending = RunState.ENDED, self.ending_so_far()
        self.ended_at = self._tools.clock.now()
        self._tell()

    async def _live(self) -> None:
        if not self._adopted:
            await self._clear_away()
            await self._tools.record(self.shape.policy.job)  # a relume that comes after us must know that it may exist
        await self.gang.live()

    async def _clear_away(self) -> None:
        """The pods of earlier runs, which were left for people to look at."""
        for pod in list(self._tools.pods):
            ours = pod.labels.get(LABEL_MANAGED) == MANAGED_BY and pod.namespace == self._tools.namespace
            if ours and pod.labels.get(LABEL_JOB) == self.shape.policy.job and pod.over:
                if pod.labels.get(LABEL_RUN) == str(self.shape.run) and not pod.deleting:
                    continue
                try:
                    await self._tools.lease.hold()
                    await self._tools.api.delete(PODS.path(pod.namespace, pod.name), uid=pod.uid)
                except (ApiError, ApiUnavailable) as error:
                    logger.info("pod %s of an earlier run stays: %s", pod.name, error)

    def _order(self, rank: int, master: str) -> Manifest:
        if self._look is None:
            self._look = self._tools.look(self.shape.policy.job, self.shape.uid, self.shape.revision)
        return manifest(MemberOrder(
            namespace=self._tools.namespace, shape=self.shape, rank=rank, look=self._look, epoch=self.epoch,
            master=master, token=self._token,
        ))  # fmt: skip

    async def _listen(self) -> None:
        """Hear what it says and tell it what it must know, as long as it lives."""
        clock = self._tools.clock
        while not self._over:
            self._woken.clear()
            await self.ear.listen()
            await self._deliver()
            pause = AWAITED if self.ear.story.watched else QUIET
            if not self._over:
                await self._rest(Instant(clock.now() + pause))

    async def _deliver(self) -> None:
        if not is_told(self.shape):
            return
        stands = self._notices.stands
        if stands and stands != self._recorded:
            await self._tools.record(self.shape.policy.job)
            self._recorded = stands
        await self._notices.deliver(self._tools.clock.now())

    async def prove_empty(self) -> None:
        """See `AnyRun.prove_empty`: a pod whose kubelet says that its containers have ended has let its GPU go, and so
        has one that is gone from the API server; that is how a member ends. Where its node's agent sees GPUs, it must
        see them empty too: the driver takes memory back later, and a process may have outlived its container."""
        await self._tools.emptied([
            Left(one.grant.placement.node, f"{self._tools.namespace}/{one.name}", one.grant.placement.gpus)
            for one in self.gang.members if one.uid and one.grant.placement.gpus
        ])  # fmt: skip
        self.empty_at = self._tools.clock.now()
        self._tell()

    def _member_changed(self) -> None:
        if self.state is RunState.STARTING and self.gang.complete:
            self.state = RunState.RUNNING
        if any(member.end is not None for member in self.gang.members):
            self._woken.set()
        self._tell()

    # Its first member, which speaks for all.

    def _address(self) -> Address | None:
        pod = self.gang.members[0].last
        if pod is None or not pod.ip or not pod.running or not is_told(self.shape):
            return None
        return Address(pod.ip, pod.ports[0], self._token) if pod.ports else None

    def _first_pod(self) -> Sequence[str]:
        first = self.gang.members[0]
        return [first.name] if first.end is None and first.last is not None else []

    def _last_words(self) -> str:
        last = self.gang.members[0].last
        return "" if last is None or last.ended is None else last.ended.message

    def _tail(self) -> tuple[str, ...]:
        """What is known of the last words of the member that ended first."""
        last = self.gang.ends[0].last if self.gang.ends else None
        text = "" if last is None or last.ended is None else last.ended.message
        return tuple(line[:TOLD_LINE] for line in text.splitlines()[-TAIL_LINES:])

    # What is seen of it.

    @property
    def blocked(self) -> str:
        """Why it cannot be made to end; empty: it can."""
        return self.gang.blocked if self.state is not RunState.ENDED else ""

    def ending_so_far(self) -> Ending:
        """How it has ended, once it has."""
        if self.gang.failure is not None:
            return Ending.FAILED
        return self._ending([one.end for one in self.gang.ends if one.end is not None], adopted=self._adopted)

    def actual(self) -> ActualRun:
        """See `AnyRun.actual`."""
        return self._actual(self.gang.stop)

    def statuses(self) -> tuple[MemberStatus, ...]:
        """See `AnyRun.statuses`."""
        return tuple(
            MemberStatus(
                member=one.grant.member, node=one.grant.placement.node, gpus=one.grant.placement.gpus,
                resources=one.grant.resources,
                pid=FIRST_PROCESS if one.last is not None and (one.last.running or one.end is not None) else None,
                exit_code=None if one.end is None else one.end.code,
            )
            for one in self.gang.members
        )  # fmt: skip

    def trouble(self) -> tuple[str, str]:
        """See `AnyRun.trouble`."""
        failure = self.gang.failure
        if failure is not None:
            return str(failure.reason), failure.message[:TOLD_MESSAGE]
        if self.state is not RunState.ENDED:
            return self._unrest()
        if self.ending is Ending.LOST:
            lost = [one.name for one in self.gang.ends if one.end is not None and one.end.exit == Exit()]
            return str(Reason.CRASHED), f"pods {', '.join(lost[:TOLD_NAMES])} are gone; another hand took them away"
        said = self.ear.story.message
        if self.ending is not Ending.FAILED:
            return "", (self.why or said)[:TOLD_MESSAGE]
        first = self.gang.ends[0] if self.gang.ends else None
        told = [f"{first.grant.member} ended with {first.end.exit}"] if first is not None and first.end else []
        if first is not None and first.end is not None and first.end.code == EX_TEMPFAIL:
            told.append("nobody had told it to go, and it has saved nothing new to go on from")
        return str(Reason.CRASHED), "; ".join(filter(None, (*told, said)))[:TOLD_MESSAGE]

    def _unrest(self) -> tuple[str, str]:
        """What people should know of a run that goes on."""
        if self.blocked:
            return "EvictionBlocked", self.blocked[:TOLD_MESSAGE]
        silent = sorted({
            one.last.node for one in self.gang.members
            if one.last is not None and one.end is None and one.last.node and not self._tools.node_ready(one.last.node)
        })  # fmt: skip
        if silent:
            return "NodeSilent", (
                f"node {', '.join(silent)} is not ready: its pods may still train, so none is started elsewhere until "
                "the node is back, or it or the pods are deleted"
            )
        return "", self.ear.story.message[:TOLD_MESSAGE]
