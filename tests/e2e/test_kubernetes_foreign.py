"""Controllers of other projects, the real ones: a JobSet and a PyTorchJob yield and go on, Kueue is left be, and a
LeaderWorkerSet's groups come and go.

Not part of a usual run: `make foreign` builds the controllers (ten minutes of a core) and runs these.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.resources import JOBS, RESOURCE_QUOTAS, STATEFUL_SETS, Json, Resource
from deploy.kubernetes.training.enrolling import ANNOTATION_SUSPENDED
from deploy.kubernetes.training.enrolling import KUEUE as QUEUE
from tests.e2e.test_kubernetes_training_enrolled import batch_job
from tests.support import kube_foreign as foreign
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import ANNOTATIONS, DEPLOYMENT, burst
from tests.support.kube_training import JOB, MODEL, Training, one_gpu, steps
from tests.support.kube_world import World, arguments, parsed, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
LEADER_WORKER_SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")


def needs(program: foreign.Program) -> pytest.MarkDecorator:
    """Left out unless the stories of foreign controllers are asked for, and this one is built."""
    return pytest.mark.skipif(not program.there(), reason=f"make foreign builds {program.name} and runs this")


def enrolled(folder: Path, resource: Resource, spec: dict[str, Any]) -> Json:
    """An object with what enrols it, around the pod of `batch_job`."""
    job = batch_job(folder, contract="checkpoint: {ackTimeout: 20s, saveTimeout: 40s}")
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": job["metadata"], "spec": spec}


def job_set(folder: Path) -> Json:
    """One Job of one pod."""
    job = batch_job(folder)["spec"]
    template = {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": job["template"]}}
    return enrolled(folder, JOB_SETS, {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]})


def pytorch_job(folder: Path) -> Json:
    """One master."""
    template = batch_job(folder)["spec"]["template"]
    template["spec"]["containers"][0]["name"] = "pytorch"
    restart = template["spec"].pop("restartPolicy")
    master = {"replicas": 1, "restartPolicy": restart, "template": template}
    return enrolled(folder, PYTORCH_JOBS, {"pytorchReplicaSpecs": {"Master": master}})


@pytest.mark.parametrize(
    ("program", "resource", "made"),
    [
        pytest.param(foreign.JOB_SET, JOB_SETS, job_set, marks=needs(foreign.JOB_SET), id="JobSet"),
        pytest.param(foreign.TRAINING_OPERATOR, PYTORCH_JOBS, pytorch_job, marks=needs(foreign.TRAINING_OPERATOR),
                     id="PyTorchJob"),
    ],
)  # fmt: skip
async def test_it_is_told_suspended_and_goes_on(
    plane: ControlPlane, tmp_path: Path, program: foreign.Program, resource: Resource, made: Any
) -> None:
    """A labelled object trains; for a request it saves and is suspended by its own controller; it goes on at the exact
    step, a relume that is started anew goes on with it, and it ends as its controller says."""
    async with (
        world(plane, tmp_path, one_gpu("foreign")) as here,
        foreign.controller(plane, here.api, program, tmp_path),
    ):
        training, path = Training(here), resource.path(here.namespace, JOB)
        await here.relume.start()
        await here.apply(MODEL)
        await here.api.create(resource.path(here.namespace), made(tmp_path))
        await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        assert (await here.chat()).status == 200
        parked = await training.state("Parked")
        assert parked["checkpoint"]["verified"]
        found = await here.api.get(path)
        assert ANNOTATION_SUSPENDED in found["metadata"]["annotations"]
        await training.until("it goes on", lambda seen: seen["run"] == 2 and (seen["step"] or 0) > 0, 180.0)
        await here.relume.kill()
        await here.relume.start()

        async def ended() -> bool:
            status = (await here.api.get(path)).get("status", {})
            return any(
                one["status"] == "True" and one["type"] in ("Completed", "Succeeded")
                for one in status.get("conditions", ())
            )

        await here.until("its controller says that it is complete", ended, 180.0)
        done = await training.state("Finished")
        assert (done["run"], done["resumedStep"]) == (2, parked["checkpoint"]["step"])
        assert steps(tmp_path) == list(range(300))
        await here.api.delete(path)


async def kueue_queue(here: World, gpus: int) -> None:
    """A queue of the namespace that admits so many GPUs; with none it admits nothing."""
    version = "kueue.x-k8s.io/v1beta2"
    flavor: Json = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "tests"}}
    quota = [{"name": name, "nominalQuota": count} for name, count in
             (("cpu", "8"), ("memory", "8Gi"), ("nvidia.com/gpu", str(gpus)))]  # fmt: skip
    groups = [{"coveredResources": [one["name"] for one in quota],
               "flavors": [{"name": "tests", "resources": quota}]}]  # fmt: skip
    cluster: Json = {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "tests"},
               "spec": {"namespaceSelector": {}, "resourceGroups": groups}}  # fmt: skip
    local: Json = {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "default"},
             "spec": {"clusterQueue": "tests"}}  # fmt: skip
    for plural, body, space in (("resourceflavors", flavor, ""), ("clusterqueues", cluster, ""),
                                ("localqueues", local, here.namespace)):  # fmt: skip
        where = f"/namespaces/{space}" if space else ""
        name = body["metadata"]["name"]
        await here.api.apply(f"/apis/{version}{where}/{plural}/{name}", body, {"fieldManager": "tests"})


@needs(foreign.KUEUE)
async def test_what_kueue_queues_is_left_to_it(plane: ControlPlane, tmp_path: Path) -> None:
    """A labelled Job in a queue without quota stays suspended and is told of; once there is quota Kueue admits it, and
    a model that wants its GPU waits until it ends, since it is nobody's to take."""
    async with (
        world(plane, tmp_path, one_gpu("kueue")) as here,
        foreign.controller(plane, here.api, foreign.KUEUE, tmp_path),
    ):
        training, path = Training(here), JOBS.path(here.namespace, JOB)
        await here.relume.start()
        await here.apply(MODEL)
        await kueue_queue(here, 0)
        await here.api.create(
            JOBS.path(here.namespace), batch_job(tmp_path, total=10_000, labels=f", {QUEUE}: default", suspend="true")
        )

        async def refused() -> bool:
            return await training.reasons() == ["Refused"]

        await here.until("it is told", refused)
        assert (await here.api.get(path))["spec"]["suspend"]
        await kueue_queue(here, 1)

        async def trains() -> bool:
            return (tmp_path / "losses-0.txt").exists()

        await here.until("Kueue has admitted it, and it trains", trains, 120.0)
        asking = asyncio.create_task(here.chat())

        async def short() -> bool:
            status = (await here.model()).get("status", {})
            return (status.get("wanted"), status.get("granted")) == (1, 0)

        await here.until("the model waits for a GPU", short)
        found = await here.api.get(path)
        assert not found["spec"]["suspend"]
        assert ANNOTATION_SUSPENDED not in found["metadata"].get("annotations", {})
        assert await training.status() == {}
        await here.api.merge(path, {"spec": {"activeDeadlineSeconds": 1}})  # it ends, by its own rules
        assert (await asking).status == 200
        await here.api.delete(path)


def groups() -> Json:
    """A LeaderWorkerSet of two pods a group, a GPU each: the leader serves, the worker waits."""
    made = parsed(DEPLOYMENT.replace("ROOT", str(Path(__file__).parents[2])))
    leader = made["spec"]["template"]
    worker: Json = {"spec": {"containers": [{
        "name": "worker", "image": "relume.test/worker:1", "command": ["sleep", "100000"],
        "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "64Mi"}, "requests": {"cpu": "100m"}}}]}}  # fmt: skip
    told = {key: word for key, word in ANNOTATIONS.items() if key != "relume.dev/spec"}
    told |= {"relume.dev/model": "mistral", "relume.dev/max-replicas": "2",
             "relume.dev/spec": "scaling: {stableWindow: 4s, panicWindow: 1s}"}  # fmt: skip
    template = {"size": 2, "leaderTemplate": leader, "workerTemplate": worker}
    return {"apiVersion": LEADER_WORKER_SETS.api_version, "kind": "LeaderWorkerSet",
            "metadata": {"name": "mistral-7b", "annotations": told},
            "spec": {"replicas": 0, "leaderWorkerTemplate": template}}  # fmt: skip


@needs(foreign.LEADER_WORKER_SET)
async def test_groups_of_a_leader_worker_set_come_and_go(plane: ControlPlane, tmp_path: Path) -> None:
    """From zero a request starts a group, leader and worker. A quota that has no room for a second whole group says so;
    without it a burst has two, and all goes back to zero. Of two groups the last one drains."""
    async with (
        world(plane, tmp_path) as here,
        foreign.controller(plane, here.api, foreign.LEADER_WORKER_SET, tmp_path),
    ):
        kinds = "deployments.apps,leaderworkersets.leaderworkerset.x-k8s.io"
        here.relume.reach((*arguments(plane, here.namespace), "--kube-enrolled", kinds))
        await here.relume.start()
        path = LEADER_WORKER_SETS.path(here.namespace, "mistral-7b")
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"},
                 "spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}  # fmt: skip
        await here.api.create(RESOURCE_QUOTAS.path(here.namespace), quota)
        await here.api.create(LEADER_WORKER_SETS.path(here.namespace), groups())
        await here.known("mistral")
        answer = await here.chat("mistral")
        assert answer.status == 200, await answer.text()
        assert {one["metadata"]["name"] for one in await here.pods()} == {"mistral-7b-0", "mistral-7b-0-1"}
        url = f"{here.relume.endpoints['admin']}/v1alpha1/models/mistral/scale"
        async with here.session.put(url, json={"replicas": 2, "for": "1h"}) as scaled:
            assert scaled.status == 200, await scaled.text()

        async def refused() -> bool:
            grants = [one for one in await here.told("relume.grants") if one.get("shortage")]
            return bool(grants) and "ResourceQuota gpus leaves" in grants[-1]["shortage"]["message"]

        await here.until("the quota says no to a second group", refused)
        await here.api.delete(RESOURCE_QUOTAS.path(here.namespace, "gpus"))

        async def pods() -> set[str]:
            return {one["metadata"]["name"] for one in await here.pods()}

        async def two() -> bool:
            return (
                await pods() == {"mistral-7b-0", "mistral-7b-0-1", "mistral-7b-1", "mistral-7b-1-1"}
                and (await here.status("mistral")).get("readyReplicas") == 2
            )

        await here.until("two groups serve", two)
        async with here.session.put(url, json={"replicas": 1, "for": "1h"}) as scaled:
            assert scaled.status == 200, await scaled.text()

        async def first() -> bool:
            return await pods() == {"mistral-7b-0", "mistral-7b-0-1"}

        await here.until("the first group is left", first)
        told = [one for state in await here.told("relume.replicas") for one in state.get("replicas", ())]
        assert {one["ordinal"] for one in told if one["state"] == "Draining"} == {1}
        assert {(one["reason"], one["state"] == "Failed") for one in told} == {("", False)}
        async with here.session.delete(url) as scaled:
            assert scaled.status == 200, await scaled.text()
        assert await burst(here, "mistral") == 2

        async def zero() -> bool:
            return (await here.api.get(path))["spec"]["replicas"] == 0 and not await here.pods()

        await here.until("it is at zero", zero, 120.0)
        await here.api.delete(path)

        async def gone() -> bool:
            return not (await here.api.get(STATEFUL_SETS.path(here.namespace)))["items"]

        await here.until("its controller has cleared up", gone)
