"""An object that exists already, scaled through its `scale` subresource and owned by somebody else.

The number of replicas that shall run is written there; each pod that comes is given to one of them. Which pod goes when
the number falls the object's own controller decides. It is told whom we would miss least (pod deletion cost); where it
would end another one all the same, that one's replica drains first, and its successor gets the idle pod (`seats`). Who
went is who is gone. A number that another hand writes there becomes an override: people stand before the autoscaler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable, pause
from deploy.kubernetes.judging import PodReason, Trouble
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.replica import StartFailed
from deploy.kubernetes.resources import PODS, Json, Resource
from deploy.kubernetes.seats import Seat, displace, free_one, next_to_go
from deploy.kubernetes.targets import resource_of
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import ANNOTATION_REPLICA, PodView
from deploy.spec.pod import ScaleTargetSpec
from events.names import ReplicaName
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

COST: Final = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO: Final = "-1000"
POD_WITHIN: Final = Seconds(60.0)
"""For the object's controller to make a pod after its number rose; then what it lacks is told. Chosen."""
GONE_WITHIN: Final = Seconds(120.0)
"""For a pod to go after the number fell; then the object's controller took another one. Chosen: four default graces."""
SUCCESSOR_WITHIN: Final = Seconds(10.0)
"""For a successor to be wanted of a replica whose pod another hand ended; until then the number does not fall, for its
object has made another pod already. Chosen: a grant comes within a second."""
DECIDED_WITHIN: Final = Seconds(10.0)
"""For a number of another hand to become what is wanted; until then ours is not written over it. Chosen, likewise."""


class Enrolment:
    """One enrolled object. `overridden` hears of a number that another hand wrote."""

    def __init__(self, tools: Tools, target: ScaleTargetSpec, overridden: Callable[[int], None]) -> None:
        self._tools = tools
        self.target = target
        self._overridden = overridden
        self._seats: dict[ReplicaName, Seat] = {}
        self._resource: Resource | None = None
        self._reflector: Reflector | None = None
        self._written: int | None = None
        self._selector: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._bell = asyncio.Event()
        self._cheapest: set[str] = set()
        """Uids of pods that were said to cost least."""
        self._let_go = False
        self._begun = False
        """Whether any replica of it was ever wanted: until then its number stays as it is."""
        self._owed: list[Instant] = []
        """Until when the number is held for each successor of a replica that is gone."""
        self._theirs: tuple[int, Instant] | None = None
        """What another hand wrote, and until when it is not written over."""
        self.problem = ""
        self.complain: Callable[[str], None] | None = None
        """Hears what is wrong with scaling the object, when that changes."""
        self.found: Callable[[], None] | None = None
        """Hears that it is known now which pods are the object's."""

    @property
    def pods(self) -> list[PodView]:
        """The pods that were given to replicas."""
        return [seat.pod for seat in self._seats.values() if seat.pod is not None]

    @property
    def idle(self) -> list[tuple[PodView, bool]]:
        """The object's pods on nodes that no replica has, and whether one that was granted is about to get it."""
        free = self._free()
        awaiting = sum(seat.firm and seat.pod is None for seat in self._seats.values())
        return [(pod, index < awaiting) for index, pod in enumerate(free) if pod.node]

    def heard(self, pod: PodView, there: bool) -> None:
        """A pod changed; perhaps one of ours."""
        seat = next((one for one in self._seats.values() if one.pod is not None and one.pod.uid == pod.uid), None)
        if seat is not None:
            if pod.deleting or not there:
                self._ends(seat)
            seat.pod = pod if there else None
        if not there:
            self._cheapest.discard(pod.uid)
        if seat is not None or (self._begun and self._matches(pod)):
            self._wake.set()

    async def run(self) -> None:
        """Keep the object's number as it shall be, until cancelled."""
        tries = 0
        while True:
            await self._woken()
            self._wake.clear()
            if self._let_go:
                return
            try:
                if self._resource is None:
                    self._resource = await resource_of(self._tools.api, self.target)
                await self._settle()
                tries, self.problem = 0, ""
            except (ApiUnavailable, ApiError) as error:
                before, self.problem = self.problem, f"{self.target.kind} {self.target.name} cannot be scaled: {error}"
                if self.complain is not None and self.problem != before and isinstance(error, ApiError):
                    self.complain(self.problem)
                logger.log(logging.WARNING if isinstance(error, ApiError) else logging.DEBUG, "%s", self.problem)
                self._wake.set()
                await pause(tries, error.after if isinstance(error, ApiUnavailable) else None)
                tries += 1

    async def _woken(self) -> None:
        """Return when something changed, or time alone changes what is to be written."""
        moments = [*self._owed, *([] if self._theirs is None else [self._theirs[1]])]
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._wake.wait())]
        if moments:
            waits.append(asyncio.create_task(self._tools.clock.sleep_until(min(moments))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def watch(self) -> None:
        """Follow the object itself, for what other hands do, until cancelled."""
        while self._resource is None:
            await self._tools.clock.sleep_until(Instant(self._tools.clock.now() + 0.2))
        path = self._resource.path(self._tools.settings.namespace)
        chosen = {"fieldSelector": f"metadata.name={self.target.name}"}
        self._reflector = Reflector(self._tools.api, path, self._object_changed, chosen)
        await self._reflector.run()

    def wake(self) -> None:
        """Look at it."""
        self._wake.set()

    def let_go(self) -> None:
        """It is enrolled no longer: its number stays as it is, and its pods are nobody's replicas."""
        self._let_go = True
        self._wake.set()
        self._ring()

    def _ring(self) -> None:
        """Whoever waits looks again."""
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _until(self, so: Callable[[], bool]) -> None:
        while not so():
            await self._bell.wait()

    # What its replicas ask.

    def reserve(self, replica: ReplicaName, node: str = "") -> None:
        """A replica is wanted, with a place on this node: it counts from now on, so that no pod that it could have is
        taken away."""
        self._begun = True
        if replica in self._seats:
            return
        self._seats[replica] = Seat(node=node)
        ended = next((one for one in self._seats.values() if one.held), None)
        if ended is not None:
            ended.succeeded = True
        elif self._owed:
            self._owed.pop(0)

    async def sit(self, replica: ReplicaName) -> PodView:
        """A replica's pod, once there is one. Raises StartFailed."""
        seat = self._seats.setdefault(replica, Seat())
        self._begun = True
        self._wake.set()
        try:
            async with asyncio.timeout(POD_WITHIN):
                await self._until(lambda: seat.pod is not None or seat.ended)
        except TimeoutError:
            said = self.problem or f"{self.target.kind} {self.target.name} made no pod within {POD_WITHIN:g} s"
            raise StartFailed(PodReason.UNSCHEDULABLE, said) from None
        if seat.pod is None:
            raise StartFailed(PodReason.DELETED, "its pod is gone already; somebody deleted it")
        return seat.pod

    async def displaced(self, replica: ReplicaName) -> Trouble:
        """Return when its object would end a replica's pod next, though another one was to go: see `seats`."""
        await self._until(lambda: self._seats.get(replica, Seat()).displaced)
        kind, name = self.target.kind, self.target.name
        return Trouble(
            PodReason.DISPLACED, f"{kind} {name} ends this pod first; its successor has one that was drained"
        )

    def drains(self, replica: ReplicaName, *, so: bool) -> None:
        """A replica takes nothing new, and leaves when it is done; or it goes on after all."""
        if replica in self._seats:
            self._seats[replica].drains = so
            self._wake.set()

    def ordinal(self, replica: ReplicaName) -> int | None:
        """Where a replica's pod stands in its object's order; None: there is none, or no pod."""
        seat = self._seats.get(replica)
        return None if seat is None or seat.pod is None else seat.pod.ordinal

    def keep(self, replica: ReplicaName, pod: PodView) -> None:
        """A replica of an earlier relume goes on with its pod."""
        self._seats[replica] = Seat(pod)
        self._begun = True
        self._wake.set()

    async def leave(self, replica: ReplicaName) -> None:
        """A replica is not wanted any more. Returns when its pod is gone, or another one went in its stead."""
        seat = self._seats.get(replica)
        if seat is None:
            return
        seat.leaving = True
        self._wake.set()
        try:
            async with asyncio.timeout(GONE_WITHIN):
                await self._until(lambda: seat.pod is None or self._let_go)
        except TimeoutError:
            logger.warning("the pod of %s did not go; another one went, or nothing did", replica)
        if seat.held and not self._let_go:
            self._owed.append(Instant(self._tools.clock.now() + SUCCESSOR_WITHIN))
        self._seats.pop(replica, None)
        self._wake.set()

    # The object.

    async def _settle(self) -> None:
        """Give pods to replicas that have none, tell whom to take first, write the number."""
        assert self._resource is not None
        path = self._resource.path(self._tools.settings.namespace, self.target.name, "scale")
        scale = await self._tools.api.get(path)
        self._selector = _selector(scale)
        if self.found is not None:
            self.found()
        if not self._begun:
            return
        await self._give()
        there, now = int(scale["spec"].get("replicas", 0)), self._tools.clock.now()
        firm, held = self._count(now)
        others = self._written is not None and there != self._written
        self._written = there
        if others and there != firm + held:
            logger.info("another hand scaled %s %s to %d", self.target.kind, self.target.name, there)
            self._theirs = there, Instant(now + DECIDED_WITHIN)
            self._overridden(there)  # what follows from it comes back as replicas that are wanted, or not
            return
        wanted = min(max(there, firm), firm + held)  # successors that are still to come never raise it
        if wanted == there or (self._theirs is not None and self._theirs[0] == there):
            await self._hand_on(there)
            return
        for pod in self._free()[::-1][: max(0, there - wanted)]:  # who is nobody's goes first
            await self._is_cheapest(pod)
        if not self._may_fall(there, wanted):
            await self._give()
            return
        for seat in list(self._seats.values()):  # which come and go meanwhile
            if seat.leaving and seat.pod is not None:
                await self._is_cheapest(seat.pod)
        await self._tools.lease.hold()
        self._written = None  # until the answer nobody knows
        await self._tools.api.merge(path, {"spec": {"replicas": wanted}})
        self._written = wanted
        logger.info("%s %s is scaled to %d", self.target.kind, self.target.name, wanted)

    async def _is_cheapest(self, pod: PodView) -> None:
        """Have the object's controller end this pod first, where it listens."""
        if pod.ordinal is None:
            self._cheapest.add(pod.uid)
            await self._annotate(pod, COST, FIRST_TO_GO)

    def _may_fall(self, there: int, wanted: int) -> bool:
        """Whether the number may be written: no pod goes then whose replica was not drained."""
        seats = self._seats.values()
        leaving = {seat.pod.uid for seat in seats if seat.leaving and seat.pod is not None}
        leaving |= {pod.uid for pod in self._free()} & self._cheapest
        going = {pod.uid for pod in next_to_go(self._living(), there, wanted, leaving)} if wanted < there else set()
        return displace(seats, going)

    async def _hand_on(self, there: int) -> None:
        """The number stays: who has no pod, and will be made none, gets that of one that leaves."""
        lacking = sum(seat.firm and seat.pod is None for seat in self._seats.values())
        if lacking and len(self._living()) >= there and free_one(self._seats.values()):
            await self._give()

    def _living(self) -> list[PodView]:
        """The object's pods that neither end nor have ended."""
        return [pod for pod in self._tools.pods if self._matches(pod) and not (pod.deleting or pod.over)]

    def _count(self, now: Instant) -> tuple[int, int]:
        """For how many replicas its object must run a pod, and how many successors are still to come."""
        self._owed = [until for until in self._owed if now < until]
        if self._theirs is not None and now >= self._theirs[1]:
            self._theirs = None
        seats = self._seats.values()
        return sum(seat.firm for seat in seats), len(self._owed) + sum(seat.held for seat in seats)

    def _free(self) -> list[PodView]:
        """The object's pods that no replica has, the first to be given first."""
        taken = {seat.pod.uid for seat in self._seats.values() if seat.pod is not None}
        free = [pod for pod in self._living() if pod.uid not in taken]
        return sorted(free, key=lambda pod: (pod.ordinal or 0, not pod.running, pod.created_at, pod.name))

    async def _give(self) -> None:
        free = self._free()
        for replica, seat in sorted(self._seats.items()):
            if seat.pod is None and seat.firm and free:
                there = [one for one in free if one.ordinal is None and one.node == seat.node]
                mine = [one for one in free if one.annotations.get(ANNOTATION_REPLICA) == replica]
                pod = (*mine, *there, *free)[0]
                seat.pod = pod  # which may be gone again while its annotations are written
                free.remove(pod)
                await self._annotate(pod, ANNOTATION_REPLICA, replica)
                if pod.uid in self._cheapest or pod.annotations.get(COST) == FIRST_TO_GO:
                    self._cheapest.discard(pod.uid)  # of one whose place another pod took
                    await self._annotate(pod, COST, "0")
        self._ring()

    async def _annotate(self, pod: PodView, name: str, value: str) -> None:
        if pod.annotations.get(name) == value:
            return
        await self._tools.lease.hold()
        try:
            body = {"metadata": {"annotations": {name: value}}}
            await self._tools.api.merge(PODS.path(pod.namespace, pod.name), body)
        except ApiError as error:
            if error.status != 404:  # gone meanwhile
                raise

    def _ends(self, seat: Seat) -> None:
        """Its pod ends, and not since it leaves. Where the object took it for one that leaves all the same, that one's
        pod stays, and is free again."""
        if seat.leaving or seat.ended:
            return
        seat.ended = True
        free_one(self._seats.values())

    def _object_changed(self, _: str, item: Json | None) -> None:
        """Look at its number when it is not the one that we wrote last: another hand wrote it, or the watch is late.
        (Only its scale tells which: it is read after our own write.) And as long as it has not said which pods are its:
        controllers write that some time after an object was made."""
        replicas = None if item is None else item.get("spec", {}).get("replicas")
        if (replicas is not None and replicas != self._written) or not self._selector:
            self._wake.set()

    def _matches(self, pod: PodView) -> bool:
        own = pod.namespace == self._tools.settings.namespace
        return own and bool(self._selector) and self._selector.items() <= pod.labels.items()


def _selector(scale: Json) -> dict[str, str]:
    """The labels of a selector in text form; sets of values are left out, which only widens what is looked at."""
    text = str(scale.get("status", {}).get("selector", ""))
    pairs = (part.partition("=") for part in text.split(",") if "=" in part and "!=" not in part)
    return {name.strip(): value.strip(" =") for name, _, value in pairs}
