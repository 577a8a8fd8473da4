"""One run of an enrolled Job: from its resumption until it is suspended or ended and its pods are gone.

Its controller makes and ends the pods, and starts again those that fail, by its own rules. So its trainer is asked to
save *and go on*; once it has saved the Job is suspended, and SIGTERM lets it save once more. (A trainer that left by
itself would be started again at once, and counted as failed.) Budgets of disruptions are not asked: to suspend a Job is
not an eviction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.occupied import Left
from deploy.kubernetes.pod_watch import TAIL_LINES, TOLD_LINE
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.training.enrolling import EnrolledJob, port_of
from deploy.kubernetes.training.gang import SHORTEST_GRACE
from deploy.kubernetes.training.link import PodLines, believed
from deploy.kubernetes.training.notifying import PodNotifier
from deploy.kubernetes.training.run import FIRST_PROCESS
from deploy.kubernetes.training.shaping import is_told, token_in
from deploy.kubernetes.training.tools import PodTools
from deploy.kubernetes.views import PodView
from deploy.local.declared import Reason
from deploy.local.training.common import AWAITED, QUIET, TOLD_MESSAGE, CommonRun
from deploy.local.training.ending import EX_TEMPFAIL
from deploy.local.training.hearing import Ear, Hearing
from deploy.local.training.notifying import Address
from deploy.local.training.plan import ActualRun, harder
from deploy.local.training.starting import Shape
from deploy.local.training.story import Story
from events.types.training import Ending, MemberStatus, RunState, Stop, TrainingObserved
from events.units import Instant

logger = logging.getLogger(__name__)

SUSPENDED: Final = "relume: its GPUs are needed"


class EnrolledRun(CommonRun[PodNotifier]):
    """A run. `changed` hears that its state is another."""

    def __init__(
        self, tools: PodTools, shape: Shape, story: Story, job: EnrolledJob, changed: Callable[[EnrolledRun], None]
    ) -> None:
        super().__init__(tools.clock, shape, story.began_at, lambda: changed(self))
        self.stop = Stop.NOT
        self._tools = tools
        self._job = job
        self._resumed = False
        self._suspended = False
        self._killed: set[str] = set()
        self._trouble = ""
        self._first: PodView | None = None
        self._codes: set[int] = set()
        self._were: dict[str, str] = {}
        """Its pods, and the nodes that they were on."""
        lines = PodLines(tools.link, self._address, self._last_words)
        self.ear = Ear(Hearing(tools.clock, tools.counts, tools.news, lines, believed), shape, story, self._tell)
        self._notices = PodNotifier(tools, self._address, self._living, goes_on=True)

    def take_over(self, observed: TrainingObserved) -> None:
        """It is another relume's, and goes on. Call it before `live`."""
        self._resumed = observed.state is not RunState.STARTING
        notice = self.ear.story.notice
        if notice is not None and self.ear.story.watched:
            self._notices.resume(notice.id)

    # What the cluster orders.

    def end(self, stop: Stop, why: str) -> None:
        """See `AnyRun.end`."""
        if self.state is not RunState.ENDED and harder(stop, self.stop):
            self.told_to_end, self.stop, self.why = True, stop, self.why or why
            self.wake()

    def heard(self, pod: PodView) -> None:
        """A pod changed."""
        if self._job.owns(pod):
            if pod.node:
                self._were[f"{pod.namespace}/{pod.name}"] = pod.node
            if pod.ended is not None:
                self._codes.add(pod.ended.exit_code)
            if self._first is not None and pod.uid == self._first.uid:
                self._first = pod  # also after it is gone: its last words count
            self.wake()

    def wake(self) -> None:
        """Look at it."""
        self._woken.set()
        self._tell()

    # Its life.

    async def live(self) -> None:
        """See `AnyRun.live`."""
        await self._tools.record(self.shape.policy.job)
        await self._job.listed.wait()  # of an earlier relume's run; until then the Job is not known to be gone
        while (ending := self._ended()) is None:
            self._woken.clear()
            self._look()
            await self.ear.listen()
            if is_told(self.shape):
                await self._notices.deliver(self._tools.clock.now())
            try:
                await self._act()
                self._trouble = ""
            except (ApiError, ApiUnavailable) as error:
                self._trouble = f"the Job {self._job.name} cannot be changed: {error}"
                logger.log(logging.WARNING if isinstance(error, ApiError) else logging.DEBUG, "%s", self._trouble)
            await self._pause()
        await self.ear.listen_to_the_end()
        self.ending = self._ended() or ending
        if self.ending is Ending.FAILED:
            self.log_tail = tuple(line[:TOLD_LINE] for line in self._last_words().splitlines()[-TAIL_LINES:])
        self.state, self.ended_at = RunState.ENDED, self._tools.clock.now()
        self._tell()

    def _look(self) -> None:
        """Who speaks for it, and whether all its pods run."""
        pods = [pod for pod in self._job.pods() if not pod.over]
        if pods:
            self._first = pods[0]
        if self.state is RunState.STARTING and sum(pod.running for pod in pods) >= len(self.shape.members):
            self.state, self._resumed = RunState.RUNNING, True
            self._tell()

    async def _act(self) -> None:
        """Resume it once; suspend it once it has saved, or must end; end pods that linger when told so."""
        notice = self.ear.story.notice
        saved = notice is not None and notice.saved_step is not None and self.ear.story.watched
        must_go = saved or self.stop is not Stop.NOT
        if must_go and not self._job.suspended:
            await self._job.suspend(SUSPENDED)
            self._suspended = True
            logger.info("Job %s is suspended", self._job.name)
        elif not must_go and not self._resumed and self._job.suspended and self._job.ours:
            await self._job.resume()
            logger.info("Job %s is resumed", self._job.name)
        elif not self._job.suspended:
            self._resumed = True
        if self.stop is Stop.KILL:
            for pod in self._job.pods():
                if not pod.over and pod.uid not in self._killed:
                    await self._tools.lease.hold()
                    path = PODS.path(self._tools.namespace, pod.name)
                    await self._tools.api.delete(path, grace=SHORTEST_GRACE, uid=pod.uid)
                    self._killed.add(pod.uid)

    def _ended(self) -> Ending | None:
        """How it has ended; None: it has not."""
        job = self._job
        if any(not pod.over for pod in job.pods()):
            return None
        story = self.ear.story
        saved = story.notice is not None and story.notice.saved_step is not None
        if story.finished or job.end == "Complete":
            return Ending.FINISHED
        if job.end == "Failed":
            return Ending.FAILED
        if job.found is None:
            return Ending.SAVED if saved else Ending.TOLD if self.told_to_end else Ending.LOST
        if job.suspended and (self._suspended or self._resumed or not job.ours):
            return Ending.SAVED if saved or EX_TEMPFAIL in self._codes else Ending.TOLD
        return None

    async def prove_empty(self) -> None:
        """See `AnyRun.prove_empty`: its pods are over, or gone, and their GPUs empty where anybody sees them."""
        if any(one.placement.gpus for one in self.shape.members):
            await self._tools.emptied([Left(node, pod, ()) for pod, node in self._were.items()])
        self.empty_at = self._tools.clock.now()
        self._tell()

    async def _pause(self) -> None:
        clock = self._tools.clock
        pause = AWAITED if self.ear.story.watched or self.stop is not Stop.NOT else QUIET
        await self._rest(Instant(clock.now() + pause))

    # Its first pod, which speaks for all.

    def _address(self) -> Address | None:
        pod = self._first
        if pod is None or not pod.ip or not pod.running:
            return None
        port = port_of(pod.containers)
        return None if port is None else Address(pod.ip, port, token_in(pod))

    def _living(self) -> list[str]:
        return [pod.name for pod in self._job.pods() if pod.running and not pod.deleting]

    def _last_words(self) -> str:
        return "" if self._first is None or self._first.ended is None else self._first.ended.message

    # What is seen of it.

    def actual(self) -> ActualRun:
        """See `AnyRun.actual`."""
        return self._actual(self.stop)

    def statuses(self) -> tuple[MemberStatus, ...]:
        """See `AnyRun.statuses`. Where its pods are is its scheduler's to say; what was granted is told."""
        running = sum(pod.running for pod in self._job.pods())
        return tuple(
            MemberStatus(
                member=one.member, node=one.placement.node, gpus=one.placement.gpus, resources=one.resources,
                pid=FIRST_PROCESS if rank < running else None,
            )
            for rank, one in enumerate(self.shape.members)
        )  # fmt: skip

    def trouble(self) -> tuple[str, str]:
        """See `AnyRun.trouble`."""
        if self.state is not RunState.ENDED:
            return ("Refused", self._trouble[:TOLD_MESSAGE]) if self._trouble else ("", self.ear.story.message)
        if self.ending is Ending.FAILED:
            return str(Reason.CRASHED), f"the Job {self._job.name} has failed, by its own rules"
        if self.ending is Ending.LOST:
            return str(Reason.CRASHED), f"the Job {self._job.name} is gone"
        return "", (self.why or self.ear.story.message)[:TOLD_MESSAGE]
