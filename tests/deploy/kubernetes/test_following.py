"""A reflector on a real API server: a past that etcd has compacted, and a kind that comes later."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import pytest

from deploy.kubernetes.api import connect
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import NODES, PODS
from tests.support.kube_kubelet import FakeNode, kubelet
from tests.support.kube_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def test_a_compacted_past_is_listed_again(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A reflector that slept so long that etcd forgot what it missed finds everything as it is now."""
    api = await connect(plane.kubeconfig)
    try:
        async with kubelet(api, [FakeNode("compacted")], tmp_path_factory.mktemp("pods")):
            reflector = Reflector(api, NODES.path(), lambda key, item: None)
            listed = await api.get(PODS.path())
            revision = int(listed["metadata"]["resourceVersion"])
            await asyncio.to_thread(plane.kill_api_server)  # its own memory of the past goes with it
            await asyncio.to_thread(compact, plane, revision)
            await asyncio.to_thread(plane.start_api_server)
            reflector._version = "1"
            running = asyncio.create_task(reflector.run())
            async with asyncio.timeout(60):
                await reflector.synced.wait()
            running.cancel()
            await asyncio.wait([running])  # its connection is closed before the loop is
            assert reflector.stats.gone >= 1
            assert "compacted" in reflector.objects
    finally:
        await api.close()


def compact(plane: ControlPlane, revision: int) -> None:
    """Let etcd forget everything before a revision."""
    body = json.dumps({"revision": str(revision), "physical": True}).encode()
    request = urllib.request.Request(f"{plane.etcd_url}/v3/kv/compaction", body, method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200
