"""The nodes as they are now, and what each has for replicas: `relume.cards`, written when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.nodes import observed
from deploy.kubernetes.occupied import without_unaccounted
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.reflecting import Reflector, version_only
from deploy.kubernetes.resources import NODES, Json
from deploy.kubernetes.rooms import Idle, is_room, with_rooms
from deploy.kubernetes.shaping import read_grant
from deploy.kubernetes.views import ANNOTATION_GRANT, NodeView, PodView, node_of
from deploy.local.view import View
from events.clock import Clock
from events.log import EventLog, LogUnavailable
from events.types.gpus import GpusObserved
from events.types.replicas import Card, CardsObserved
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

Held = Callable[[], Mapping[str, frozenset[str]]]
"""The cards of each node that training has."""
APART: Final = Seconds(0.2)
"""Between two looks at all nodes that changed: a burst of pods is one change. Chosen."""


class NodeStates:
    """Follows the nodes. `turned` hears of a node that becomes ready, or is not any more."""

    def __init__(
        self, api: KubeApi, log: EventLog, writer: EventWriter, clock: Clock, turned: Callable[[str, bool], None]
    ) -> None:
        self.reflector = Reflector(api, NODES.path(), self._changed, keep=version_only)
        self._log = log
        self._writer = writer
        self._clock = clock
        self._turned = turned
        self._nodes: dict[str, NodeView] = {}
        self._told: dict[str, CardsObserved] = {}
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._pods: Iterable[PodView] = ()
        self._view: View | None = None
        self._is_ours: Callable[[PodView], bool] = lambda _: False
        self.idle: Callable[[], Iterable[Idle]] = tuple
        """Pods of enrolled objects that are no replicas."""
        self._training: Held = dict
        self.devices: Callable[[str], tuple[Card, ...] | None] = lambda _: ()
        """The cards of a node that a driver publishes (`DeviceStates.of`)."""
        self.gpus: Callable[[str], GpusObserved | None] = lambda _: None
        """What the GPUs of a node say (`GpuStates.of`)."""

    def holders(self, pods: PodStore, view: View, is_ours: Callable[[PodView], bool], training: Held) -> None:
        """Who takes what of the nodes: pods of others, and what is granted to models, and to training."""
        self._pods, self._view, self._is_ours, self._training = pods, view, is_ours, training

    def said(self, state: CardsObserved) -> None:
        """What the log says of a node, which may be gone since."""
        self._told[state.node] = state
        self.mark(state.node)

    def ready(self, name: str) -> bool:
        """Whether a node is there and says that it is well."""
        node = self._nodes.get(name)
        return node is not None and node.ready

    def mark(self, name: str) -> None:
        """Something on this node changed."""
        self._dirty[name] = None
        self._wake.set()

    async def run(self) -> None:
        """Publish what changes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.publish()
            except LogUnavailable as error:
                logger.warning("what nodes have cannot be told now: %s", error)
                self._wake.set()
            await self._clock.sleep_until(Instant(self._clock.now() + APART))

    async def publish(self) -> None:
        """Tell what changed nodes have, if it is not what was told last. Raises LogUnavailable."""
        dirty, self._dirty = self._dirty, {}
        nodes = {name: self._nodes.get(name) or NodeView(name=name, ready=False, usable=False) for name in dirty}
        idle = self._idle_on(nodes)
        foreign: dict[str, list[PodView]] = {}
        for pod in self._pods:
            if pod.node in dirty and not self._is_ours(pod) and pod.uid not in idle:
                foreign.setdefault(pod.node, []).append(pod)
        held = self._held(dirty)
        states = {}
        for name, node in nodes.items():
            mine = held.get(name, set())
            state = observed(node, foreign.get(name, ()), mine, self.devices(name))
            state = without_unaccounted(state, self.gpus(name), mine)
            state = with_rooms(state, [one for one in idle.values() if one.pod.node == name], mine)
            if self._told.get(name) != state and (name in self._nodes or name in self._told):
                states[name] = state
        if not states:
            return
        try:
            await self._log.append([self._writer.envelope(state) for state in states.values()])
        except LogUnavailable:
            self._dirty = dirty | self._dirty
            raise
        self._told |= states

    def _idle_on(self, nodes: Mapping[str, NodeView]) -> dict[str, Idle]:
        """Pods that are room for replicas of their model, by uid."""
        found = (one for one in self.idle() if one.pod.node in nodes)
        return {one.pod.uid: one for one in found if is_room(nodes[one.pod.node], one.pod)}

    def _held(self, nodes: Iterable[str]) -> dict[str, set[str]]:
        """The cards of each node that replicas and training were granted. Those of a pod whose kubelet calls its device
        unhealthy come last: the node has one fewer, and that is the one."""
        held: dict[str, set[str]] = {name: set() for name in nodes}
        for model in () if self._view is None else self._view.models.values():
            grant = model.valid_grant
            for replica in () if grant is None else grant.replicas:
                if replica.placement.node in held:
                    held[replica.placement.node].update(replica.placement.gpus)
        for name, cards in self._training().items():
            if name in held:
                held[name] |= cards
        for pod in self._pods:
            if pod.sick and pod.node in held and self._is_ours(pod):
                held[pod.node] -= _cards_of(pod)
        return held

    def _changed(self, name: str, item: Json | None) -> None:
        before = self.ready(name)
        if item is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node_of(item)
        self.mark(name)
        after = self.ready(name)
        if before != after:
            self._turned(name, after)


def _cards_of(pod: PodView) -> frozenset[str]:
    """What a pod of a replica was granted."""
    try:
        return frozenset(read_grant(pod.annotations.get(ANNOTATION_GRANT, ""))[1].placement.gpus)
    except ValueError:
        return frozenset()
