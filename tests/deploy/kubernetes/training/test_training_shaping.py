"""From a training grant to the pods of its gang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.kubernetes.shaping import Owner
from deploy.kubernetes.training.shaping import (
    LABEL_JOB,
    Look,
    MemberOrder,
    is_told,
    lasting,
    manifest,
    pod_name,
    run_of,
    token_in,
)
from deploy.kubernetes.views import LABEL_MODEL, PodView, pod_of
from deploy.local.training.starting import Shape
from deploy.spec.pod import MountSpec, PodSpec
from events.types.grants import Placement
from events.types.shared import Resources
from events.types.training import MemberGrant
from events.units import Seconds
from preemption.core.training import Channel, CheckpointPolicy, TrainingPolicy
from preemption.trainer.board import Ranks
from preemption.trainer.settings import from_environment

POD = PodSpec(image="trainer:1", mounts=(MountSpec(path="/data", claim="runs"),))
POLICY = TrainingPolicy(
    job="tune", command=("torchrun", "train.py"), environment={"LR": "3e-4"}, members=2,
    checkpoint=CheckpointPolicy(grace=Seconds(45.0)),
)  # fmt: skip


def shape(policy: TrainingPolicy = POLICY, run: int = 3, uid: str = "u1") -> Shape:
    members = tuple(
        MemberGrant(
            member=f"{policy.job}-{rank}", placement=Placement(node=f"node-{rank}", gpus=("gpu-0",)),
            resources=Resources(gpus=1, cpu=2.0, memory_bytes=1 << 30),
        )
        for rank in range(policy.members)
    )  # fmt: skip
    return Shape(policy, uid, 1, run, members)


def made(rank: int = 0, of: Shape | None = None, pod: PodSpec = POD, owner: Owner | None = None) -> dict[str, Any]:
    return manifest(MemberOrder(
        namespace="models", shape=of or shape(), rank=rank, look=Look(pod, owner), epoch=7,
        master="10.0.0.9" if rank else "", token="secret",
    ))  # fmt: skip


def read(pod: dict[str, Any]) -> PodView:
    """As it is kept once the API server has it."""
    born = {"uid": "u", "creationTimestamp": "2001-09-09T01:46:40Z"}
    return pod_of(pod | {"metadata": pod["metadata"] | born})


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """As a kubelet fills it in."""
    listed = pod["spec"]["containers"][0]["env"]
    return {one["name"]: one.get("value", "10.0.0.1").replace("$(RELUME_HOST)", "10.0.0.1") for one in listed}


def test_the_same_grant_has_the_same_pods() -> None:
    """Names differ by rank, run and declaration, and by nothing else."""
    names = {pod_name(one, rank) for one in (shape(), shape(run=4), shape(uid="u2")) for rank in (0, 1)}
    assert len(names) == 6
    assert pod_name(shape(), 0) == pod_name(shape(), 0)
    assert pod_name(shape(), 0).startswith("tune-0-3-")


def test_a_member_is_placed_asks_for_its_gpus_and_belongs_to_its_object() -> None:
    """The node of the grant, its resources, the grace of the contract, the object as owner; it is no replica of a
    model."""
    pod = made(1, owner=Owner("tune", "o1"))
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    container = pod["spec"]["containers"][0]
    assert term["matchFields"][0]["values"] == ["node-1"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["command"] == ["torchrun", "train.py"]
    assert "lifecycle" not in container
    assert (pod["spec"]["terminationGracePeriodSeconds"], pod["spec"]["restartPolicy"]) == (45, "Never")
    assert pod["metadata"]["ownerReferences"][0] == {
        "apiVersion": "relume.dev/v1alpha1", "kind": "TrainingJob", "name": "tune", "uid": "o1", "controller": True,
        "blockOwnerDeletion": False,
    }  # fmt: skip
    assert pod["metadata"]["labels"][LABEL_JOB] == "tune"
    assert LABEL_MODEL not in pod["metadata"]["labels"]
    assert run_of(pod["metadata"]["annotations"]) == ("u1", 3, "tune-1")
    assert "ownerReferences" not in made()["metadata"]


def test_the_sdk_understands_its_environment() -> None:
    """Rank 0 listens on its own address with the run's token, all read notices from the pod's annotations, and the
    others know where rank 0 is."""
    first, second = environment(made(0)), environment(made(1))
    channels, others = from_environment(first), from_environment(second)
    assert (channels.http, channels.http_token) == (("10.0.0.1", 8000), "secret")
    assert others.http is None
    assert str(others.annotations_file) == "/etc/relume/annotations"
    assert (first["MASTER_ADDR"], second["MASTER_ADDR"]) == ("10.0.0.1", "10.0.0.9")
    assert (second["RANK"], second["WORLD_SIZE"], second["LOCAL_RANK"]) == ("1", "2", "0")
    assert first["LR"] == "3e-4"
    assert token_in(read(made(0))) == "secret"
    assert token_in(read(made(1))) == ""


def test_a_gang_meets_in_a_folder_of_its_own_run() -> None:
    """New for each run, on the volume that all members see; without one, or alone, there is none."""
    assert environment(made(0))["RELUME_BOARD"] == "/data/.relume/tune/u1/3"
    assert environment(made(0, shape(run=4)))["RELUME_BOARD"] == "/data/.relume/tune/u1/4"
    assert "RELUME_BOARD" not in environment(made(0, pod=PodSpec(image="a")))
    alone = shape(replace(POLICY, members=1))
    assert "RELUME_BOARD" not in environment(made(0, alone))
    assert Ranks.from_environment(environment(made(0, alone))).world == 1


@pytest.mark.parametrize(
    ("channels", "told", "listens", "annotations"),
    [((Channel.FILE, Channel.SIGNAL), True, True, True), ((Channel.HTTP,), True, True, False),
     ((Channel.SIGNAL,), False, False, False), ((), False, False, False)],
)  # fmt: skip
def test_a_trainer_is_told_by_the_channels_that_it_declares(
    channels: tuple[Channel, ...], told: bool, listens: bool, annotations: bool
) -> None:
    """A signal alone reaches no pod: such a trainer learns of it by SIGTERM."""
    of = shape(replace(POLICY, checkpoint=CheckpointPolicy(channels=channels)))
    found = environment(made(0, of))
    assert is_told(of) is told
    assert ("RELUME_NOTICE_LISTEN" in found, "RELUME_ANNOTATIONS_FILE" in found) == (listens, annotations)


@pytest.mark.parametrize(
    ("mount", "where"),
    [(MountSpec(path="/a", claim="c"), "/a"), (MountSpec(path="/a", host_path="/b"), "/a"),
     (MountSpec(path="/a", memory=1 << 20), ""), (MountSpec(path="/a", claim="c", read_only=True), "")],
)  # fmt: skip
def test_where_files_last(mount: MountSpec, where: str) -> None:
    """On a claim, or in a folder of the node, that the container may write to."""
    assert lasting(PodSpec(image="a", mounts=(mount,))) == where


def test_the_folder_is_where_the_container_starts() -> None:
    """`folder` is the container's working directory; without it the image's own."""
    there = made(0, shape(replace(POLICY, folder="/data/run")))
    assert there["spec"]["containers"][0]["workingDir"] == "/data/run"
    assert "workingDir" not in made()["spec"]["containers"][0]


@pytest.mark.parametrize("text", ["", "x", "[]", '["u", "x", "m"]', "{}", '["u", 1]'])
def test_what_we_did_not_write_is_no_member(text: str) -> None:
    """An annotation of another hand makes no pod ours."""
    assert run_of({"relume.dev/training-run": text}) is None
