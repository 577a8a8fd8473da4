"""What a replica of an enrolled object is made of, and the stand-ins that are made of its templates."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes.annotated import document
from deploy.kubernetes.resources import Json, Resource
from deploy.kubernetes.standing_in import LABEL_STAND_IN, About, Past, Wanted, member_of, plan_stand_ins, stand_in_of
from deploy.kubernetes.templates import resources_of, templates_of
from deploy.kubernetes.views import LABEL_MANAGED, LABEL_REVISION
from deploy.spec.check import check_as
from deploy.spec.model import Model
from tests.deploy.kubernetes.test_standing_in import CALL, NOW, pod

LEADER_WORKER_SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm", "uid": "u1"}


def gpus(count: int, **spec: Any) -> dict[str, Any]:
    """The spec of a pod with one container."""
    limits = {"nvidia.com/gpu": str(count), "memory": "8Gi"}
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}], **spec}


def group(size: int | None, leader: int | None, worker: int) -> Json:
    """A LeaderWorkerSet."""
    made: dict[str, Any] = {"workerTemplate": {"spec": gpus(worker)}}
    made |= {} if size is None else {"size": size}
    made |= {} if leader is None else {"leaderTemplate": {"spec": gpus(leader)}}
    annotations = {"relume.dev/model": "llama"}
    return {"metadata": {"name": "vllm", "uid": "u1", "annotations": annotations},
            "spec": {"replicas": 2, "leaderWorkerTemplate": made}}  # fmt: skip


@pytest.mark.parametrize(
    ("item", "pods"),
    [
        pytest.param({"spec": {"template": {"spec": gpus(2)}}}, [(2, 1)], id="one template"),
        pytest.param(group(4, 1, 8), [(1, 1), (8, 3)], id="a leader and three workers"),
        pytest.param(group(2, None, 8), [(8, 1), (8, 1)], id="the leader is as its worker"),
        pytest.param(group(1, 1, 8), [(1, 1)], id="a leader alone"),
        pytest.param(group(None, None, 8), [(8, 1)], id="no size is one"),
        pytest.param({"spec": {"replicas": 1}}, [], id="no template"),
    ],
)
def test_what_a_replica_is_made_of(item: Json, pods: list[tuple[int, int]]) -> None:
    """The pod that serves, and those beside it."""
    assert [(resources_of(one.spec)["gpus"], one.count) for one in templates_of(item)] == pods


def test_an_annotated_group_is_declared_whole() -> None:
    """`resources` are the leader's, and the workers stand with the object's name."""
    spec = check_as(Model, document(LEADER_WORKER_SETS, group(4, 1, 8))).spec
    assert spec.resources.gpus == 1
    assert spec.scale_target_ref is not None
    workers = spec.scale_target_ref.workers
    assert workers is not None
    assert (workers.count, workers.resources.gpus, workers.resources.memory) == (3, 8, 8 << 30)


def test_a_stand_in_asks_of_a_node_what_its_template_does() -> None:
    """Its resources, selectors and claims; no label by which the object's controller would take it for its own, and
    nothing that a container could do or know."""
    template = gpus(
        2, nodeSelector={"pool": "a"}, tolerations=[{"key": "t"}], affinity={"nodeAffinity": {}},
        priorityClassName="high", serviceAccountName="power", schedulerName="volcano",
        volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}, {"name": "s", "secret": {}}],
        initContainers=[{"name": "init", "image": "j", "restartPolicy": "Always", "envFrom": [{"secretRef": {}}],
                         "resources": {"requests": {"cpu": "1"}}}],
    )  # fmt: skip
    template["containers"][0] |= {"env": [{"name": "TOKEN", "value": "x"}], "args": ["serve"], "volumeMounts": [{}]}
    made = stand_in_of(About("m-stand-in-0", "ns", "m", 3), template, OWNER)
    assert set(made["metadata"]["labels"]) == {LABEL_STAND_IN, LABEL_MANAGED, LABEL_REVISION}
    assert made["metadata"]["ownerReferences"] == [OWNER]
    spec = made["spec"]
    assert (spec["nodeSelector"], spec["schedulerName"], spec["affinity"]) == (
        {"pool": "a"}, "volcano", {"nodeAffinity": {}},
    )  # fmt: skip
    assert [one["name"] for one in spec["volumes"]] == ["w"]
    assert not {"priorityClassName", "serviceAccountName"} & set(spec)
    (container,), (init,) = spec["containers"], spec["initContainers"]
    assert set(container) == {"name", "image", "resources", "command"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert set(init) == {"name", "image", "resources", "command", "restartPolicy"}


def test_a_group_has_a_stand_in_for_each_of_its_pods() -> None:
    """Two replicas of three pods: six, the first of each three for the one that serves."""
    wanted = Wanted("u", 1, CALL, size=3)
    assert plan_stand_ins(wanted, [], Past(), NOW).make == 6
    there = [pod(number) for number in range(7)]
    plan = plan_stand_ins(wanted, there, Past(), NOW)
    assert (plan.make, [one.name for one in plan.delete]) == (0, ["m-stand-in-6"])
    assert [member_of(3, one.name) for one in there] == [0, 1, 2, 0, 1, 2, 0]
