"""The agents of nodes, asked over HTTP: weights for a pod on their node, held for as long as the pod is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from coldstart.cache.wanting import Wanted
from coldstart.core.cache.transfer import Transferred
from deploy.kubernetes.agents import Agents
from deploy.local.declared import Reason
from deploy.local.keeping import Listen
from events.clock import Clock
from events.units import Bytes, Instant, Seconds

logger = logging.getLogger(__name__)

SILENT_FOR: Final = Seconds(150.0)
"""How long an agent may be missing, or not answer, before the start has failed: a new node pulls the agent's image
first. The same as a fetch on one machine may stand still."""
AGAIN: Final = Seconds(0.5)

_REASONS: Final[Mapping[str, Reason]] = {
    "NoSpace": Reason.WEIGHTS_NO_SPACE, "TooLarge": Reason.WEIGHTS_NO_SPACE,
    "DigestMismatch": Reason.WEIGHTS_MISMATCH, "SourceChanged": Reason.WEIGHTS_MISMATCH,
    "SourceRefused": Reason.WEIGHTS_NOT_FOUND, "UnsupportedSource": Reason.INVALID_SPEC,
}  # fmt: skip
"""What an agent's refusal means for a start; other refusals: it could not be fetched."""


class NotBrought(Exception):
    """The weights are not on the node; why, as the reason of a start that failed."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Brought:
    """Weights on a node: the snapshot's folder within the cache's, and the file in it; empty: the folder."""

    folder: str
    file: str
    bytes: Bytes
    tier: str
    least: Seconds | None

    def within(self, mount: str) -> str:
        """What an engine is given of it, where its folder is mounted."""
        return f"{mount}/{self.file}" if self.file else mount


class NodeCache:
    """Those of one namespace. Used on one event loop."""

    def __init__(self, agents: Agents, clock: Clock) -> None:
        self._agents = agents
        self._clock = clock

    async def have(self, node: str, holder: str, wanted: Wanted, listen: Listen) -> Brought:
        """Weights on a node, fetched if need be, held for `holder`. `listen` hears how the fetch gets on.

        Raises NotBrought.
        """
        access = wanted.access
        body = {
            "uri": wanted.address, "digest": wanted.digest, "include": wanted.include, "exclude": wanted.exclude,
            "credentials": access.credentials, "headers": dict(access.headers), "endpoint": access.endpoint,
            "region": access.region, "holder": holder,
        }  # fmt: skip
        heard = self._clock.now()
        while True:
            said = await self._ask(node, "have", body)
            now = self._clock.now()
            if isinstance(said, str):
                if now - heard >= SILENT_FOR:
                    raise NotBrought(Reason.WEIGHTS_UNAVAILABLE, said)
                listen(None)
                await self._clock.sleep_until(Instant(now + AGAIN))
                continue
            heard = now
            if said["snapshot"]:
                least = said["leastSeconds"]
                return Brought(
                    said["snapshot"], said["file"], Bytes(said["bytes"]), said["tier"],
                    None if least is None else Seconds(least),
                )  # fmt: skip
            listen(Transferred(Bytes(said["bytes"]), Bytes(said["done"]), said["rate"], now))

    async def hold(self, node: str, holder: str, *, held: bool) -> bool:
        """Keep what a holder has, or no longer. False: nobody answers, or he holds nothing."""
        try:
            return not isinstance(await self._ask(node, "hold", {"holder": holder, "held": held}), str)
        except NotBrought:
            return False

    async def _ask(self, node: str, operation: str, body: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """An agent's answer; a text: why there was none. Raises NotBrought for one that says no."""
        agent = self._agents.on(node)
        if agent is None:
            return (
                f"no agent of weights runs on node {node}; install them (the chart's agent.enabled, or "
                "relume install --agent), or mount the weights with pod.mounts"
            )
        try:
            status, told = await self._agents.post(agent, f"cache/{operation}", body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return f"the agent of node {node}, {agent.ip}, does not answer: {str(error) or type(error).__name__}"
        if status < 300:
            return told
        name = str(told.get("type", "")).rpartition(":")[2]
        remedy = f"; {told['remedy']}" if told.get("remedy") else ""
        said = f"the agent of node {node}: {told.get('detail', status)}{remedy}"
        raise NotBrought(_REASONS.get(name, Reason.WEIGHTS_UNAVAILABLE), said)


class Bringing:
    """The weights of one replica's pod, and its LoRA adapters: brought before it is made, held while it is there.

    `wanted` by name: an empty one for the model's own, an adapter's otherwise.
    """

    PROLONG_EVERY: Final = Seconds(300.0)
    """A twelfth of what a use lasts: it outlasts an agent that is upgraded, and an hour without relume."""

    def __init__(self, cache: NodeCache, clock: Clock, node: str, holder: str, wanted: Mapping[str, Wanted]) -> None:
        self._cache = cache
        self._clock = clock
        self._node = node
        self._wanted = {name: (f"{holder}/{name}" if name else holder, one) for name, one in wanted.items()}
        self.brought: dict[str, Brought] = {}

    async def bring(self, listen: Listen) -> Mapping[str, Brought]:
        """Have them there, one after the other. Raises NotBrought."""
        for name, (holder, wanted) in self._wanted.items():
            self.brought[name] = await self._cache.have(self._node, holder, wanted, listen)
        return self.brought

    async def keep(self) -> None:
        """Prolong until cancelled. An agent that has forgotten the holder is asked for the weights again."""
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + self.PROLONG_EVERY))
            for holder, wanted in self._wanted.values():
                if not await self._cache.hold(self._node, holder, held=True):
                    await self._have_again(holder, wanted)

    async def _have_again(self, holder: str, wanted: Wanted) -> None:
        try:
            async with asyncio.timeout(SILENT_FOR):
                await self._cache.have(self._node, holder, wanted, lambda _: None)
        except (NotBrought, TimeoutError) as error:  # its engine has open what it needs; the next round asks again
            logger.warning("the weights of %s are not held on node %s now: %s", holder, self._node, error)

    async def let_go(self) -> None:
        """The pod is gone. An agent that does not answer forgets it by itself."""
        for holder, _ in self._wanted.values():
            await self._cache.hold(self._node, holder, held=False)
