"""What Jobs of others declare, by their label, their annotation and their pods' templates."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from deploy.kubernetes.declared_objects import RefusedObject
from deploy.kubernetes.training.enrolling import ANNOTATION_SUSPENDED, KUEUE, wanted_of
from deploy.kubernetes.training.job_kinds import KINDS
from deploy.kubernetes.training.objects import ANNOTATION_TARGET
from deploy.spec.check import check_as
from deploy.spec.training import TrainingJob
from preemption.core.training import Channel, TrainingPolicy

JOB, JOB_SET, PYTORCH = KINDS
CONTAINER = {
    "name": "trainer", "image": "a:1", "command": ["python"], "args": ["train.py"],
    "env": [{"name": "RELUME_NOTICE_LISTEN", "value": ":8800"}], "ports": [{"name": "relume", "containerPort": 8800}],
    "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
}  # fmt: skip
TEMPLATE = {"spec": {"containers": [CONTAINER], "terminationGracePeriodSeconds": 90}}


def found(spec: dict[str, Any], *, contract: str = "", labels: dict[str, str] | None = None,
          annotations: dict[str, str] | None = None) -> dict[str, Any]:  # fmt: skip
    return {
        "metadata": {
            "name": "tune", "uid": "o1", "labels": {"relume.dev/training": "true"} | (labels or {}),
            "annotations": ({"relume.dev/training": contract} if contract else {}) | (annotations or {}),
        },
        "spec": spec,
    }  # fmt: skip


def job(**more: Any) -> dict[str, Any]:
    return found({"parallelism": 4, "template": copy.deepcopy(TEMPLATE)}, **more)


def policy(item: dict[str, Any], kind: Any = JOB) -> TrainingPolicy:
    wanted = wanted_of(kind, item)
    assert wanted is not None
    return check_as(TrainingJob, wanted.document).resolve()


def test_a_job_declares_what_its_pods_are() -> None:
    """Members by its parallelism, resources by its containers, the contract by what its pods can hear, the grace by
    their own."""
    resolved = policy(job())
    assert (resolved.job, resolved.members, resolved.command) == ("tune", 4, ("python", "train.py"))
    assert (resolved.resources.gpus, resolved.resources.cpu, resolved.resources.memory_bytes) == (2, 0.5, 1 << 30)
    assert (resolved.checkpoint.channels, resolved.checkpoint.grace) == ((Channel.HTTP,), 90.0)
    assert (resolved.priority, resolved.budget_per_hour) == (0, 6)


def test_who_asks_for_gpus_alone_is_declared_too() -> None:
    """Without requests for cores and memory, as many Jobs are: as little as can be said of either."""
    item = job()
    item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    resources = policy(item).resources
    assert (resources.gpus, resources.cpu, resources.memory_bytes) == (1, 0.001, 1)
    del item["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert policy(item).resources.cpu == 0.001


def test_its_annotation_says_the_rest() -> None:
    """Priority, budget and contract, in the words of a TrainingJob."""
    resolved = policy(job(contract="priority: 7\npreemption: {budgetPerHour: 2}\ncheckpoint: {saveTimeout: 9m}\n"))
    assert (resolved.priority, resolved.budget_per_hour, resolved.checkpoint.save) == (7, 2, 540.0)
    assert resolved.checkpoint.grace == 90.0


def test_a_trainer_that_hears_nothing_has_no_channel() -> None:
    """Without a port of the SDK and without annotations in a file its work since the start counts as lost."""
    item = job()
    container = item["spec"]["template"]["spec"]["containers"][0]
    del container["env"], container["ports"]
    assert policy(item).checkpoint.channels == ()
    container["env"] = [{"name": "RELUME_ANNOTATIONS_FILE", "value": "/etc/notes/annotations"}]
    assert policy(item).checkpoint.channels == (Channel.FILE,)


def test_job_sets_and_pytorch_jobs_are_gangs_of_all_their_parts() -> None:
    """Members are counted over all parts; their fields are where these kinds have them."""
    parts = [{"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": TEMPLATE}}}]
    assert policy(found({"replicatedJobs": parts}), JOB_SET).members == 6
    replicas = {"Worker": {"replicas": 3, "template": TEMPLATE}, "Master": {"template": TEMPLATE}}
    item = found({"pytorchReplicaSpecs": replicas, "runPolicy": {"suspend": True}})
    assert policy(item, PYTORCH).members == 4
    assert PYTORCH.suspended(item)
    assert PYTORCH.suspension(False) == {"spec": {"runPolicy": {"suspend": False}}}
    assert JOB_SET.suspension(True) == {"spec": {"suspend": True}}


@pytest.mark.parametrize(
    ("suspend", "ours", "paused"), [(False, False, False), (True, False, True), (True, True, False)]
)
def test_whose_suspension_it_is(suspend: bool, ours: bool, paused: bool) -> None:
    """What another hand suspended is paused; what relume suspended waits for GPUs."""
    item = job(annotations={ANNOTATION_SUSPENDED: "relume"} if ours else None)
    item["spec"]["suspend"] = suspend
    wanted = wanted_of(JOB, item)
    assert wanted is not None
    assert wanted.paused is paused
    assert ANNOTATION_SUSPENDED not in wanted.document["metadata"]["annotations"]
    assert wanted.document["metadata"]["annotations"][ANNOTATION_TARGET] == "batch/v1/Job/tune"


def test_only_what_is_labelled_is_enrolled() -> None:
    """Another value of the label, or none, is no enrolment."""
    assert wanted_of(JOB, job(labels={"relume.dev/training": "false"})) is None


def unlike() -> dict[str, Any]:
    other = copy.deepcopy(TEMPLATE)
    other["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"  # type: ignore[index]  # JSON of any shape
    return found({"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}, "Worker": {"template": other}}})


@pytest.mark.parametrize(
    ("item", "kind", "said"),
    [
        (job(labels={KUEUE: "default"}), JOB, "Kueue"),
        (job(contract="[1"), JOB, "no YAML"),
        (job(contract="command: [a]"), JOB, "priority, preemption, checkpoint, maxFailures"),
        (job(contract="7"), JOB, "priority, preemption, checkpoint, maxFailures"),
        (found({"parallelism": 0, "template": TEMPLATE}), JOB, "no pods"),
        (unlike(), PYTORCH, "different GPUs"),
    ],
)
def test_what_cannot_be_enrolled_is_told_with_the_remedy(item: dict[str, Any], kind: Any, said: str) -> None:
    """In a sentence that says what to do."""
    with pytest.raises(RefusedObject, match=said) as refused:
        wanted_of(kind, item)
    assert ";" in str(refused.value) or "annotation" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "condition", "end"),
    [(JOB, "Complete", "Complete"), (JOB, "Failed", "Failed"), (JOB_SET, "Completed", "Complete"),
     (PYTORCH, "Succeeded", "Complete"), (JOB, "Suspended", "")],
)  # fmt: skip
def test_how_each_kind_says_that_it_has_ended(kind: Any, condition: str, end: str) -> None:
    """In its own words; a suspension is no end."""
    item = job()
    item["status"] = {"conditions": [{"type": condition, "status": "True"}]}
    assert kind.end(item) == end
    item["status"]["conditions"][0]["status"] = "False"
    assert kind.end(item) == ""
