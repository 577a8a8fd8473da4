"""One replica's pod, waited for and watched: what it has once it has it, and what is wrong with it once it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from deploy.kubernetes.judging import Trouble, gone, judge
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from events.units import Instant

T = TypeVar("T")

TAIL_LINES: Final = 50
TOLD_LINE: Final = 500
"""Characters of a line that go into the state."""


class PodTrouble(Exception):
    """Something is wrong with the pod."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class PodWatch:
    """`pod` is what was seen of it last. `ready` says whether the replica has answered before."""

    def __init__(self, tools: Tools, pod: PodView, ready: Callable[[], bool]) -> None:
        self._tools = tools
        self._ready = ready
        self.pod = pod
        self.tail: tuple[str, ...] = ()
        """The container's last words, as the kubelet kept them; of a pod that ended."""

    async def until(self, wanted: Callable[[PodView], T | None]) -> T:
        """What the pod has, once it has it. Raises PodTrouble when something is wrong with it first."""
        return await self.unless_trouble(self._until(wanted))

    async def _until(self, wanted: Callable[[PodView], T | None]) -> T:
        bell = self._tools.pods.bell(self.pod.namespace, self.pod.name)
        try:
            while True:
                bell.clear()
                pod = self._now()
                found = None if pod is None else wanted(pod)
                if found is not None:
                    return found
                await bell.wait()
        finally:
            self._tools.pods.unbell(self.pod.namespace, self.pod.name, bell)

    async def trouble(self) -> Trouble:
        """Return when something is wrong with the pod."""
        bell = self._tools.pods.bell(self.pod.namespace, self.pod.name)
        try:
            while True:
                bell.clear()
                pod = self._now()
                if pod is None:
                    return gone(self.pod)
                now, limits = self._tools.clock.now(), self._tools.settings.limits
                judged = judge(pod, ready=self._ready(), limits=limits, now=now)
                if judged.trouble is not None:
                    self.tail = _lines(pod)
                    return judged.trouble
                await self._rung(bell, judged.again_at)
        finally:
            self._tools.pods.unbell(self.pod.namespace, self.pod.name, bell)

    @property
    def ends(self) -> bool:
        """Whether somebody ends the pod, and its container still runs: its requests may finish."""
        pod = self._now()
        return pod is not None and pod.deleting and pod.running and not pod.over

    async def end(self) -> None:
        """Return when its container runs no more."""
        bell = self._tools.pods.bell(self.pod.namespace, self.pod.name)
        try:
            while self.ends:
                bell.clear()
                await bell.wait()
        finally:
            self._tools.pods.unbell(self.pod.namespace, self.pod.name, bell)

    async def unless_trouble(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or PodTrouble when something is wrong with the pod first."""
        loop = asyncio.get_running_loop()
        working, watching = loop.create_task(work), loop.create_task(self.trouble())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            trouble = watching.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)
        raise PodTrouble(trouble)

    def _now(self) -> PodView | None:
        """The pod, if it is still there, and not another one of its name."""
        pod = self._tools.pods.get(self.pod.namespace, self.pod.name)
        if pod is None or pod.uid != self.pod.uid:
            return None
        self.pod = pod
        return pod

    async def _rung(self, bell: asyncio.Event, again_at: Instant | None) -> None:
        """Until the pod changes, or that instant."""
        loop = asyncio.get_running_loop()
        waits: list[asyncio.Task[Any]] = [loop.create_task(bell.wait())]
        if again_at is not None:
            waits.append(loop.create_task(self._tools.clock.sleep_until(again_at)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _lines(pod: PodView) -> tuple[str, ...]:
    message = "" if pod.ended is None else pod.ended.message
    return tuple(line[:TOLD_LINE] for line in message.splitlines()[-TAIL_LINES:])
