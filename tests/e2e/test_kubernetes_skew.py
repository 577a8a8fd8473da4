"""Today's relume where definitions and rights are still those of the first version, and while they are upgraded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, connect
from deploy.kubernetes.crd import definitions
from deploy.kubernetes.packaging_doctor import Check, Doctor, State
from deploy.kubernetes.resources import DEFINITIONS, GPU_POOLS, JOBS, TRAINING_JOBS, Json
from tests.deploy.kubernetes.test_manifests import KINDS, documents, install
from tests.support.kube_plane import ControlPlane
from tests.support.kube_training import Training, job
from tests.support.kube_world import World, arguments, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

FIRST: Final = Path(__file__).parents[1] / "deploy" / "kubernetes" / "first"
POOLS: Final = DEFINITIONS.path("", "gpupools.relume.dev")


def stored(name: str) -> list[dict[str, Any]]:
    """The documents of a file of the first version."""
    return [one for one in YAML(typ="safe", pure=True).load_all((FIRST / name).read_text(encoding="utf-8")) if one]


async def define(api: KubeApi, bodies: list[Mapping[str, Any]]) -> None:
    """Have the API server know these definitions."""
    for body in bodies:
        await api.apply(DEFINITIONS.path("", body["metadata"]["name"]), body, {"fieldManager": "tests"})


@asynccontextmanager
async def first_version(here: World) -> AsyncIterator[None]:
    """The first version's definitions: it had no GpuPool. Today's afterwards."""
    await define(here.api, [*stored("models.relume.dev.yaml"), *stored("trainingjobs.relume.dev.yaml")])
    await here.api.delete(POOLS)

    async def gone() -> bool:
        return await status_of(here.api, POOLS) == 404

    await here.until("the definition is gone", gone)
    try:
        yield
    finally:
        await define(here.api, list(definitions()))
        await here.until("pools are served", lambda: served(here.api, GPU_POOLS.path(here.namespace)))


async def served(api: KubeApi, path: str) -> bool:
    """Whether a collection is there."""
    return await status_of(api, path) == 200


async def status_of(api: KubeApi, path: str) -> int:
    """What the API server answers."""
    try:
        await api.get(path)
    except ApiError as error:
        return error.status
    except ApiUnavailable:  # it turns to a new definition
        return 503
    return 200


async def account(here: World, plane: ControlPlane, roles: list[dict[str, Any]]) -> Path:
    """Roles of relume's account; a kubeconfig of it."""
    for body in roles:
        await install(here.api, body, here.namespace)
    path = KINDS["ServiceAccount"].path(here.namespace, "relume", "token")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = (await here.api.create(path, asked))["status"]["token"]
    return plane.kubeconfig_of("skewed", token)


async def findings(here: World, kubeconfig: Path) -> dict[str, Check]:
    """What `relume doctor` finds: as an administrator of definitions, as relume's own account of rights."""
    own = await connect(kubeconfig)
    try:
        checks = [*await Doctor(here.api, here.namespace, "relume").look(),
                  *await Doctor(own, here.namespace, "relume").look()]  # fmt: skip
    finally:
        await own.close()
    return {one.name: one for one in checks if one.state is not State.SKIPPED and "rights of" in one.name} | {
        one.name: one for one in checks[:4]
    }


async def test_a_new_relume_on_old_definitions_and_rights(plane: ControlPlane, tmp_path: Path) -> None:
    """Models go from zero and back, with their status; training and pools wait, the doctor says what is missing; once
    definitions and rights are upgraded the same process takes both up."""
    async with world(plane, tmp_path) as here, first_version(here):
        kubeconfig = await account(here, plane, stored("rights/rbac.yaml"))
        given = arguments(plane, here.namespace)
        here.relume.reach(tuple(str(kubeconfig) if word == str(plane.kubeconfig) else word for word in given))
        await here.relume.start()
        await here.apply(pod_model(minReplicas=0, maxReplicas=1, keepAlive="1s", stableWindow="2s"))
        await here.state("Zero")
        assert (await here.chat()).status == 200
        seen = await here.state("Zero")
        assert {one["type"]: one["status"] for one in seen["conditions"]}["Accepted"] == "True"
        training = Training(here)
        await here.api.create(TRAINING_JOBS.path(here.namespace), job(Path("/tmp"), ["true"]))  # its pod is dropped
        found = await findings(here, kubeconfig)
        assert found["gpupools.relume.dev"].state is State.FAILED
        assert found["models.relume.dev"].state is State.WARNING
        rights = found["rights of relume"]
        assert rights.state is State.FAILED
        assert "trainingjobs" in rights.told
        assert "gpupools" in rights.told
        assert "relume install" in rights.remedy
        assert await training.status() == {}

        for body in documents("rbac.yaml"):
            await install(here.api, body, here.namespace)

        async def told() -> bool:  # by a definition that lacks most of what is told today
            status: Json = (await training.found()).get("status", {})
            return "add pod: {image" in json.dumps(status)

        await here.until("what is wrong with the job is told", told, 90.0)
        await define(here.api, list(definitions()))
        await here.until("pools are served", lambda: served(here.api, GPU_POOLS.path(here.namespace)))
        pool = {"apiVersion": GPU_POOLS.api_version, "kind": "GpuPool", "metadata": {"name": "default"}, "spec": {}}
        await here.api.apply(GPU_POOLS.path(here.namespace, "default"), pool, {"fieldManager": "tests"})

        async def in_force() -> bool:
            object_: Json = await here.api.get(GPU_POOLS.path(here.namespace, "default"))
            return bool(object_.get("status", {}).get("state") == "InForce")

        await here.until("the pool is in force", in_force, 90.0)
        await training.apply(job(Path("/tmp"), ["true"]))
        await training.state("Finished")
        assert (await here.chat()).status == 200
        for resource, name in ((TRAINING_JOBS, training.name), (GPU_POOLS, "default")):
            await here.api.delete(resource.path(here.namespace, name))
        assert await served(here.api, JOBS.path(here.namespace))
