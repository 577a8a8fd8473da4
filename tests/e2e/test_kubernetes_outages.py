"""The control plane forgets, or is away while relume starts; relume is killed again and again: nothing starts twice."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.test_kubernetes_faults import WARM, ready, traffic, uids
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

KILLS = 4


async def forget(plane: ControlPlane) -> None:
    """etcd throws away all that happened before now, as it does every few minutes in a cluster."""
    key = base64.b64encode(b"/").decode()
    async with aiohttp.ClientSession(plane.etcd_url) as etcd:
        async with etcd.post("/v3/kv/range", json={"key": key}) as answer:
            revision = (await answer.json(content_type=None))["header"]["revision"]
        async with etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer:
            assert answer.status == 200, await answer.text()


async def metric(here: World, name: str) -> float:
    """A number of relume's own metrics."""
    async with here.session.get(f"{here.relume.endpoints['admin']}/metrics") as answer:
        found = re.search(rf"^{name} (\S+)$", await answer.text(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def test_a_past_that_was_compacted_is_read_anew(plane: ControlPlane, tmp_path: Path) -> None:
    """The API server comes back and does not know what happened since we last heard (410): everything is listed again,
    what went meanwhile is found gone, and nothing that runs is touched."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(**WARM))
        await ready(here, 2)
        before = uids(await here.pods())
        async with traffic(here) as statuses:
            await asyncio.to_thread(plane.kill_api_server)
            await forget(plane)
            await asyncio.to_thread(plane.start_api_server)

            async def relisted() -> bool:
                return await metric(here, "relume_kubernetes_forgotten_pasts_total") >= 1

            await here.until("a watch was told that the past is gone", relisted)
            await here.apply(pod_model(**WARM | {"minReplicas": 3}))
            await ready(here, 3)
        assert set(statuses) == {200}
        assert before <= uids(await here.pods())


async def test_relume_starts_while_the_control_plane_is_away(plane: ControlPlane, tmp_path: Path) -> None:
    """A relume that is killed and started again while no API server answers serves warm models by what its log says; it
    takes its pods over once there is one."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(**WARM))
        await ready(here, 2)
        before = uids(await here.pods())
        await asyncio.to_thread(plane.kill_api_server)
        try:
            await here.relume.kill()
            await here.relume.start()
            assert [(await here.chat()).status for _ in range(3)] == [200] * 3
        finally:
            await asyncio.to_thread(plane.start_api_server)
        await here.apply(pod_model(**WARM | {"minReplicas": 3}))
        await ready(here, 3)
        assert before <= uids(await here.pods())


async def test_relume_is_killed_at_any_moment(plane: ControlPlane, tmp_path: Path) -> None:
    """While numbers go up and down, relume is killed at random moments: never are there more pods than the most that
    was ever asked for, and in the end there are as many as asked."""
    chance = random.Random(20261130)
    most = 3
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        for _ in range(KILLS):
            wanted = chance.randint(0, most)
            await here.apply(pod_model(minReplicas=wanted, maxReplicas=most, keepAlive="1s"))
            await asyncio.sleep(chance.uniform(0.0, 1.5))  # the moment of the kill
            await here.relume.kill()
            alive = [pod for pod in await here.pods() if "deletionTimestamp" not in pod["metadata"]]
            assert len(alive) <= most, [pod["metadata"]["name"] for pod in alive]
            await here.relume.start()
        await here.apply(pod_model(minReplicas=2, maxReplicas=2))
        await ready(here, 2)
        assert (await here.chat()).status == 200
