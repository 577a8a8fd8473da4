"""What the agents of nodes see of their GPUs: followed, told in the log, and asked before a card is handed on.

Each agent is asked by a question that waits until something has changed. What it said last stands while it is silent:
a card that is not known to be empty is not taken for one. Where no agent runs, or none that sees GPUs, nothing is
known, and a pod's end is all the proof there is, as its kubelet tells it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import aiohttp

from deploy.kubernetes.agents import Agents
from deploy.kubernetes.devices import DRIVER
from deploy.kubernetes.occupied import Left, what_is_left
from deploy.kubernetes.views import PodView
from events.clock import Clock
from events.log import EventLog, LogUnavailable
from events.types.gpus import GpusObserved, NodeGpu
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = Seconds(1.0)
"""Between two looks at which agents there are, and at a card that is not empty yet."""
APART: Final = Seconds(0.1)
"""Between two questions to one agent at least: one that does not wait for news is not asked without end."""
FORGET_AFTER: Final = Seconds(150.0)
"""How long what an agent said stands while there is none: one that is upgraded pulls its image first. As long as starts
wait for an agent (`node_cache.SILENT_FOR`)."""
AGAIN: Final = Seconds(2.0)
"""After a question that was not answered."""
MOST_REMEMBERED: Final = 20_000
"""Pods whose GPUs are remembered, the newest: more than a cluster of 5,000 nodes runs with GPUs."""

MISREAD: Final = (KeyError, TypeError, ValueError, OverflowError)
"""An answer that is not as agents of this release give it."""

MOST_COUNTED: Final = 1 << 53
"""What JSON can count to."""

Named = Callable[[str, str], str | None]
"""The UUID of a device by its driver's pool and name; None: it is not known."""


class GpuStates:
    """`changed` hears of a node whose GPUs are seen otherwise. Used on one event loop."""

    def __init__(
        self, agents: Agents, log: EventLog, writer: EventWriter, clock: Clock, changed: Callable[[str], None]
    ) -> None:
        self._agents = agents
        self._log = log
        self._writer = writer
        self._clock = clock
        self._changed = changed
        self._told: dict[str, GpusObserved] = {}
        self._heard: dict[str, GpusObserved] = {}
        self._had: dict[str, frozenset[str]] = {}
        """By pod: the GPUs that it was given, also after its end."""
        self._missing: dict[str, Instant] = {}
        self._dirty = asyncio.Event()
        self.named: Named = lambda _pool, _device: None

    def said(self, state: GpusObserved) -> None:
        """What the log says of a node, which an earlier relume has heard. It stands until its agent is heard."""
        self._told[state.node] = state
        if state.known:
            self._hear(state)

    async def run(self) -> None:
        """Follow all agents until cancelled."""
        following: dict[str, asyncio.Task[None]] = {}
        telling = asyncio.create_task(self._tell(), name="gpus")
        try:
            while True:
                agents = self._agents.all()
                for node in [node for node in following if node not in agents or following[node].done()]:
                    following[node].cancel()
                    (ended,) = await asyncio.gather(following.pop(node), return_exceptions=True)
                    if isinstance(ended, Exception):
                        raise ended
                for node in agents.keys() - following.keys():
                    following[node] = asyncio.create_task(self._follow(node), name=f"gpus of {node}")
                self._forget(agents)
                if telling.done():
                    telling.result()
                await self._clock.sleep_until(Instant(self._clock.now() + LOOK_EVERY))
        finally:
            for task in [telling, *following.values()]:
                task.cancel()
            await asyncio.gather(telling, *following.values(), return_exceptions=True)

    # What is known.

    def of(self, node: str) -> GpusObserved | None:
        """The GPUs of a node; None: nobody has told."""
        return self._heard.get(node)

    def _forget(self, agents: Collection[str]) -> None:
        """Nodes whose agents have been away for so long that they are not coming back."""
        now = self._clock.now()
        missing = self._heard.keys() - agents
        self._missing = {node: self._missing.get(node, now) for node in missing}
        for node, since in self._missing.items():
            if now - since >= FORGET_AFTER:
                del self._heard[node]
                self._dirty.set()
                self._changed(node)

    def sick(self, pod: PodView) -> str:
        """What is wrong with a GPU that a pod has; empty: nothing that is known."""
        told = self._heard.get(pod.node)
        name = f"{pod.namespace}/{pod.name}"
        mine = () if told is None else (one for one in told.gpus if name in (one.pods or ()))
        return next((f"GPU {one.id}: {one.sick}" for one in mine if one.sick), "")

    async def until_empty(self, left: Sequence[Left]) -> None:
        """Return once nobody is left on the cards of these pods, as far as anybody can tell."""
        said = ""
        while what := await self._what_is_left(left):
            if what != said:
                said = what
                logger.warning("pods have ended (%s), but %s", ", ".join(one.pod for one in left[:3]), what)
            await self._clock.sleep_until(Instant(self._clock.now() + LOOK_EVERY))

    async def _what_is_left(self, left: Sequence[Left]) -> str:
        """In words; empty: nothing."""
        states: dict[str, GpusObserved | None] = {}
        for node in {one.node for one in left}:
            states[node] = await self._look(node)
        words = (what_is_left(one, states[one.node], self._had.get(one.pod)) for one in left)
        return next(filter(None, words), "")

    async def _look(self, node: str) -> GpusObserved | None:
        """As it is now; None: there is no agent, so nobody can tell. Of one that does not answer nothing is empty."""
        agent = self._agents.on(node)
        before = self._heard.get(node)
        if agent is None and (before is None or not before.known):
            return None
        answer = None if agent is None else await self._ask(agent, "POST", "node/gpus/look")
        if answer is not None:
            try:
                return self._hear(self._read(node, answer))
            except MISREAD as error:
                logger.debug("what the agent of node %s says is not understood: %r", node, error)
        before = before or GpusObserved(node=node, known=True)
        return replace(before, gpus=tuple(replace(one, empty=None) for one in before.gpus))

    # What agents say.

    async def _follow(self, node: str) -> None:
        """Until its agent is gone: `run` sees to that."""
        version, failed = 0, ""
        while (agent := self._agents.on(node)) is not None:
            asked = self._clock.now()
            answer = await self._ask(agent, "GET", f"node/gpus?after={version}")
            if answer is None:
                version = 0
                await self._clock.sleep_until(Instant(self._clock.now() + AGAIN))
                continue
            try:
                version = int(answer["version"])
                self._hear(self._read(node, answer))
                failed = ""
                await self._clock.sleep_until(Instant(asked + APART))
            except MISREAD as error:  # an agent of another release
                if str(error) != failed:
                    logger.warning("the agent of node %s is of another release: %r", node, error)
                failed = str(error)
                await self._clock.sleep_until(Instant(self._clock.now() + AGAIN))

    async def _ask(self, agent: PodView, method: str, path: str) -> Mapping[str, Any] | None:
        """Its answer; None: it has none, or does not answer."""
        try:
            asked = self._agents.get(agent, path) if method == "GET" else self._agents.post(agent, path, {})
            status, answer = await asked
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            logger.debug("the agent of node %s does not answer: %s", agent.node, error)
            return None
        return answer if status == 200 else None

    def _read(self, node: str, answer: Mapping[str, Any]) -> GpusObserved:
        """Raises what is in `MISREAD`: also where a thing is of another kind than it should be."""
        claimed: dict[str, set[str]] = {}
        unnamed = False
        for one in answer["claimed"]:
            if one["driver"] == DRIVER:
                name = self.named(one["pool"], one["device"])
                unnamed = unnamed or name is None
                claimed.setdefault(name or "", set()).add(_text(one["pod"]))
        gpus = []
        for one in answer["devices"]:
            pods = None if one["pods"] is None else {*_names(one["pods"]), *claimed.get(one["id"], ())}
            if not pods and unnamed:  # a claimed device that nobody knows may be this one
                pods = None
            gpus.append(NodeGpu(
                id=_text(one["id"]), product=_text(one["product"]), memory_bytes=_count(one["memoryBytes"]),
                used_bytes=_count(one["usedBytes"]), empty=_flag(one["empty"]), processes=_count(one["processes"]) or 0,
                sick=_text(one["sick"]), parent=_text(one["parent"]), split=bool(_flag(one["split"])),
                pods=None if pods is None else tuple(sorted(pods)),
            ))  # fmt: skip
        if len({one.id for one in gpus}) < len(gpus):
            raise ValueError("a GPU is told of twice")
        return GpusObserved(node=node, known=bool(answer["known"]), gpus=tuple(gpus))

    def _hear(self, state: GpusObserved) -> GpusObserved:
        for pod in {pod for one in state.gpus for pod in one.pods or ()}:
            self._had.pop(pod, None)
            self._had[pod] = frozenset(one.id for one in state.gpus if pod in (one.pods or ()))
        while len(self._had) > MOST_REMEMBERED:
            del self._had[next(iter(self._had))]
        if self._heard.get(state.node) != state:
            self._heard[state.node] = state
            self._dirty.set()
            self._changed(state.node)
        return state

    async def _tell(self) -> None:
        """Write what is another than was told."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            now = dict(self._heard)
            now |= {node: GpusObserved(node=node, known=False) for node in self._told.keys() - now.keys()}
            fresh = [state for node, state in now.items() if self._told.get(node) != state]
            try:
                if fresh:
                    await self._log.append([self._writer.envelope(state) for state in fresh])
                    self._told |= {state.node: state for state in fresh}
            except LogUnavailable as error:
                logger.warning("what GPUs say cannot be told now: %s", error)
                self._dirty.set()
            await self._clock.sleep_until(Instant(self._clock.now() + LOOK_EVERY))


def _names(said: object) -> list[str]:
    if not isinstance(said, list):
        raise TypeError(f"{said!r} is no list of names")
    return [_text(one) for one in said]


def _text(said: object) -> str:
    if not isinstance(said, str):
        raise TypeError(f"{said!r} is no text")
    return said


def _flag(said: object) -> bool | None:
    if not (said is None or isinstance(said, bool)):
        raise TypeError(f"{said!r} is neither true nor false")
    return said


def _count(said: object) -> int | None:
    if said is None:
        return None
    if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < MOST_COUNTED:
        raise ValueError(f"{said!r} is no number of bytes or processes")
    return said
