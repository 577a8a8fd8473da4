"""Makes and ends stand-ins as models' calls for nodes have it, and tells what became of them.

Level-based, as everything here: a grant, or a pod that changes, says about which model to look. A stand-in that waits
and that somebody else deletes is a person's no: no other is made, and the allocator takes the call back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from deploy.kubernetes.api import ApiError
from deploy.kubernetes.marked import Marked
from deploy.kubernetes.node_news import NodeNews
from deploy.kubernetes.own_pod import END_GRACE
from deploy.kubernetes.resources import PODS
from deploy.kubernetes.shapes import Shape, Shapes
from deploy.kubernetes.shaping import Manifest, PodOrder
from deploy.kubernetes.standing_in import (
    LABEL_STAND_IN,
    WAITS,
    About,
    Past,
    Wanted,
    is_stand_in,
    member_of,
    plan_stand_ins,
    stand_in,
    stand_in_name,
    stand_in_of,
    waiting,
)
from deploy.kubernetes.targets import read_target
from deploy.kubernetes.templates import templates_of
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.local.alarms import Alarms
from deploy.local.view import ModelView, View
from events.names import ModelName, replica_name
from events.types.grants import Placement, ReplicaGrant
from events.types.replicas import StandIns
from events.units import Instant, Seconds
from preemption.core.calling import words

logger = logging.getLogger(__name__)

DRAIN: Final = 1
"""Seconds; a stand-in has no requests."""
END_AGAIN: Final = Seconds(5.0)
"""After the API server refused to end one: it may hold a GPU. Chosen: rights that were taken away come back by hand."""


class StandInPods:
    """Of all models. `changed` hears of each model of which something else is to be told. `begin` before `run`."""

    def __init__(self, tools: Tools, view: View, shapes: Shapes, changed: Callable[[ModelName], None]) -> None:
        self._tools = tools
        self._namespace = tools.settings.namespace
        self._view = view
        self._shapes = shapes
        self._changed = changed
        self._pods: dict[ModelName, dict[str, PodView]] = {}
        self._past: dict[ModelName, Past] = {}
        self._marked = Marked("the stand-ins of", lambda name: self._do(ModelName(name)))
        self._alarms: Alarms[ModelName] = Alarms(tools.clock)
        self._begun = False
        self._said: dict[ModelName, str] = {}
        self.news = NodeNews(tools, self._first_waiting, self._hear)
        self.made = 0

    def is_ours(self, pod: PodView) -> bool:
        """Whether a pod is a stand-in: what it holds of a node is not another's."""
        return is_stand_in(pod, self._namespace)

    def begin(self) -> None:
        """Calls are known now: from here on what nobody calls for is ended."""
        self._begun = True
        for name in [*self._pods, *self._view.models]:
            self.look(name)

    def look(self, name: ModelName) -> None:
        """A model's call may have changed."""
        if self._begun and (name in self._pods or name in self._past or self._wanted(name) is not None):
            self._marked.mark(name)

    def heard(self, pod: PodView, there: bool) -> None:
        """A pod changed."""
        if not self.is_ours(pod):
            return
        name = ModelName(pod.labels[LABEL_STAND_IN])
        pods = self._pods.setdefault(name, {})
        if there:
            pods[pod.uid] = pod
        else:
            pods.pop(pod.uid, None)
            self._gone(name, pod)
            if not pods:
                del self._pods[name]
        if self._begun and name in self._view.models:
            self._changed(name)
        self.look(name)

    def told(self, name: ModelName) -> StandIns | None:
        """What is told of a model's stand-ins; None: there is no call."""
        wanted, past = self._wanted(name), self._past.get(name, Past())
        if wanted is None:
            return None
        refused = f"no stand-in can be made: {past.refused}; " if past.refused else ""
        said = f"; {self._said[name]}" if self._said.get(name) else ""
        return StandIns(
            waiting=len(waiting(self._pods.get(name, {}).values())), cancelled_at=past.cancelled_at,
            paused_until=wanted.call.again_at, message=f"{refused}{words(wanted.call)}{said}",
        )  # fmt: skip

    def _first_waiting(self) -> Iterator[tuple[ModelName, PodView]]:
        for name, pods in self._pods.items():
            if found := waiting(pods.values()):
                yield name, found[0]

    def _hear(self, name: ModelName, word: str) -> None:
        """What whoever adds nodes says of a model's stand-ins."""
        if word and word != self._said.get(name):
            self._said[name] = word
            logger.info("of the stand-ins of %s %s", name, word)
            self._changed(name)

    @property
    def waiting(self) -> int:
        """How many wait, of all models."""
        return sum(len(waiting(pods.values())) for pods in self._pods.values())

    async def run(self) -> None:
        """Make and end until cancelled."""
        while True:
            await self._marked.next()

    async def ring(self) -> None:
        """Look again when time alone says so, until cancelled."""
        async for name in self._alarms.rings():
            self.look(name)

    def _wanted(self, name: ModelName) -> Wanted | None:
        model = self._view.models.get(name, ModelView())
        grant = model.valid_grant
        call = None if grant is None or grant.shortage is None or model.deleted else grant.shortage.call
        if call is None or grant is None:
            return None
        return Wanted(grant.uid, grant.revision, call, self._size(name, grant.uid, grant.revision))

    def _size(self, name: ModelName, uid: str, revision: int) -> int:
        """Pods of one replica."""
        try:
            target = self._shapes.of(name, uid, revision).target
        except ValueError:  # it is told when a stand-in is to be made
            return 1
        return 1 if target is None or target.workers is None else 1 + target.workers.count

    def _gone(self, name: ModelName, pod: PodView) -> None:
        past = self._past.setdefault(name, Past())
        if pod.uid in past.ended:
            past.ended.discard(pod.uid)
        elif not pod.node and self._wanted(name) is not None:
            past.cancelled_at = self._tools.clock.now()
            logger.info("somebody deleted %s, which stood in for %s: the call for nodes ends", pod.name, name)

    async def _do(self, name: ModelName) -> None:
        """As the model's call has it. Raises ApiUnavailable."""
        wanted, now = self._wanted(name), self._tools.clock.now()
        past = self._past.setdefault(name, Past())
        plan = plan_stand_ins(wanted, self._pods.get(name, {}).values(), past, now)
        lingers = False
        for pod in plan.delete:
            lingers = not await self._end(pod, past) or lingers
        if wanted is not None:
            for _ in range(plan.make):
                if not await self._make(name, wanted, past):
                    break
        again_at = plan_stand_ins(wanted, self._pods.get(name, {}).values(), past, now).again_at
        moments = (again_at, Instant(now + END_AGAIN) if lingers else None)
        self._alarms.set(name, min((one for one in moments if one is not None), default=None))
        if wanted is None and not self._pods.get(name):
            self._past.pop(name, None)
            self._said.pop(name, None)
        self._changed(name)

    async def _end(self, pod: PodView, past: Past) -> bool:
        """Raises ApiUnavailable. False when it was refused."""
        if pod.node and pod.uid not in past.ended:
            past.bound_at.append(self._tools.clock.now())
            logger.info("%s found node %s, and goes", pod.name, pod.node)
        past.ended.add(pod.uid)
        await self._tools.lease.hold()
        try:
            await self._tools.api.delete(PODS.path(self._namespace, pod.name), grace=END_GRACE, uid=pod.uid)
        except ApiError as error:
            logger.warning("pod %s cannot be deleted now: %s", pod.name, error)
            return False
        return True

    async def _make(self, name: ModelName, wanted: Wanted, past: Past) -> bool:
        """One more; False when it was refused."""
        taken = (pod.name for pod in self._pods.get(name, {}).values())
        pod = stand_in_name(name, taken)
        await self._tools.lease.hold()
        try:
            body = await self._body(name, wanted, pod)
            made = await self._tools.api.apply(PODS.path(self._namespace, pod), body)
        except (ApiError, ValueError) as error:
            past.refused, past.refused_at = str(error), self._tools.clock.now()
            logger.warning("no stand-in of %s can be made: %s", name, error)
            return False
        past.refused, past.refused_at = "", None
        self._tools.pods.expect(made)
        self.made += 1
        return True

    async def _body(self, name: ModelName, wanted: Wanted, pod: str) -> Manifest:
        """What a replica's pod would ask of a node. Raises ValueError, ApiError, ApiUnavailable."""
        shape = self._shapes.of(name, wanted.uid, wanted.revision)
        if shape.pod is not None:
            return stand_in(self._order(name, wanted, shape), pod)
        assert shape.target is not None
        item = await read_target(self._tools.api, self._namespace, shape.target)
        templates = templates_of(item)
        if not templates:
            raise ValueError(f"{shape.target.kind} {shape.target.name} has no pod template that relume knows")
        template = templates[-1 if member_of(wanted.size, pod) else 0]
        owner = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": item["metadata"]["name"],
                 "uid": item["metadata"]["uid"]}  # fmt: skip
        return stand_in_of(About(pod, self._namespace, name, wanted.revision), template.spec, owner)

    def _order(self, name: ModelName, wanted: Wanted, shape: Shape) -> PodOrder:
        """What a replica's own pod would be made of. Raises ValueError."""
        grant = self._view.models[name].valid_grant
        if shape.pod is None or grant is None or grant.shortage is None:
            raise ValueError("nothing is short any more")
        stands_for = ReplicaGrant(
            replica=replica_name(name, wanted.revision, 0), revision=wanted.revision, placement=Placement(node=""),
            resources=grant.shortage.resources,
        )  # fmt: skip
        return PodOrder(
            namespace=self._namespace, model=name, uid=wanted.uid, grant=stands_for, shape=shape.pod, launch=WAITS,
            owner=shape.owner, epoch=0, drain=DRAIN,
        )  # fmt: skip
