"""Who makes and ends stand-ins: what the API server refuses is tried again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from deploy.kubernetes.api import ApiError
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.shapes import Shapes
from deploy.kubernetes.stand_ins import END_AGAIN, StandInPods
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.local.view import View
from events.clock import SimulatedClock, settle
from events.units import Seconds
from tests.deploy.kubernetes.test_standing_in import pod


class Refusing:
    """An API server without the right to delete for us, and a Lease that is ours. `mended`: the right is given back."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.mended = False
        self.stand_ins: StandInPods

    async def delete(self, path: str, *, grace: int, uid: str) -> None:
        """Refuse, or have the pod go."""
        del grace, uid
        self.asked.append(path.rpartition("/")[2])
        if not self.mended:
            raise ApiError(403, "Forbidden", "no")
        self.stand_ins.heard(BOUND, False)

    async def hold(self) -> None:
        """It is ours."""


BOUND: PodView = pod(0, node="n", namespace=KubernetesSettings().namespace)


async def test_one_that_may_not_be_ended_is_ended_later() -> None:
    """It holds a GPU, and nothing else happens: it is tried again, until the right is back and it goes."""
    api, clock = Refusing(), SimulatedClock()
    tools = cast("Tools", SimpleNamespace(clock=clock, api=api, lease=api, settings=KubernetesSettings()))
    api.stand_ins = StandInPods(tools, View(None, Seconds(300.0)), Shapes(), lambda _: None)
    running = [asyncio.create_task(work) for work in (api.stand_ins.run(), api.stand_ins.ring())]
    try:
        api.stand_ins.heard(BOUND, True)
        api.stand_ins.begin()
        await settle()
        assert api.asked == [BOUND.name]
        await clock.advance(END_AGAIN)
        assert api.asked == [BOUND.name] * 2
        api.mended = True
        await clock.advance(END_AGAIN)
        await clock.advance(10 * END_AGAIN)
        assert api.asked == [BOUND.name] * 3
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
