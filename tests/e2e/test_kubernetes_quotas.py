"""A namespace's quota on a real control plane: what it forbids is a shortage with its name, and no failed start."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.kubernetes.resources import RESOURCE_QUOTAS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def test_what_a_quota_forbids_is_not_tried(plane: ControlPlane, tmp_path: Path) -> None:
    """Four GPUs are free, and the namespace may have one: one of two replicas is granted, and the quota is named. When
    the quota grows, the other starts; nothing ever failed."""
    async with world(plane, tmp_path) as here:
        path = RESOURCE_QUOTAS.path(here.namespace, "gpus")
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}}
        await here.api.create(
            RESOURCE_QUOTAS.path(here.namespace), body | {"spec": {"hard": {"requests.nvidia.com/gpu": "1"}}}
        )
        await here.relume.start()
        await here.apply(pod_model(minReplicas=2))
        await here.state("Ready")

        async def named() -> bool:
            status = await here.status()
            return "ResourceQuota gpus leaves 0 of requests.nvidia.com/gpu" in status["message"]

        await here.until("the quota is named", named)
        assert len(await here.pods()) == 1
        await here.api.merge(path, {"spec": {"hard": {"requests.nvidia.com/gpu": "2"}}})

        async def both() -> bool:
            return bool((await here.status())["readyReplicas"] == 2)

        await here.until("the other starts", both)
        observed = [one for one in await here.told("relume.replicas") if one.get("model") == "echo"]
        assert {one["failures"] for one in observed} == {0}
