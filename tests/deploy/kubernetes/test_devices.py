"""GPUs that a driver publishes one by one: what of them is a card, who has it, and the claim of a granted one."""

from __future__ import annotations

import json

import pytest

from deploy.kubernetes.devices import cards_of, claim_spec, devices_in, newest, taken_by
from deploy.kubernetes.nodes import observed
from deploy.kubernetes.shaping import claim, claim_of
from deploy.kubernetes.views import NodeView
from events.types.grants import Placement, ReplicaGrant
from events.types.replicas import Card
from events.types.shared import Resources
from tests.support.kube_devices import card, slice_of

A, B = "GPU-a", "GPU-b"
CARD = Card(id=A, product="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30)
NODE = NodeView(name="n", ready=True, usable=True, allocatable={"cpu": 8.0, "memory": 1e9})


def grant(*gpus: str, fraction: float = 0.0) -> ReplicaGrant:
    resources = Resources(gpus=0 if fraction else len(gpus), gpu_fraction=fraction, cpu=1.0)
    return ReplicaGrant(replica="m-r1-0", revision=1, placement=Placement(node="n", gpus=gpus), resources=resources)


def test_whole_cards_of_the_newest_generation_are_cards() -> None:
    """Not those that their driver keeps pods from, nor MIG instances, other drivers', or an older generation's."""
    mig = card("mig", "MIG-1")
    mig["attributes"]["type"]["string"] = "mig"
    found = slice_of("n", [card("gpu-0", A), card("gpu-1", B, sick=True), mig], 2)
    other = slice_of("n", [card("gpu-9", "GPU-other")], 1)
    foreign = slice_of("n", [card("nic-0", "GPU-nic")])
    foreign["spec"]["driver"] = "nic.example.com"
    anywhere = slice_of("n", [card("gpu-7", "GPU-anywhere")])
    del anywhere["spec"]["nodeName"]
    devices = [one for part in (found, other, foreign, anywhere) for one in devices_in(part)]
    assert cards_of(newest(devices), set()) == (CARD,)
    assert cards_of(newest(devices), {("n", "gpu-0")}) == ()


def test_a_claim_takes_what_it_was_given_and_a_look_takes_nothing() -> None:
    """By the allocation; a claim that waits, another driver's, and an administrator's access hold no card."""
    results = [
        {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"},
        {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1", "adminAccess": True},
        {"driver": "nic.example.com", "pool": "n", "device": "gpu-2"},
    ]
    assert taken_by({"status": {"allocation": {"devices": {"results": results}}}}) == {("n", "gpu-0")}
    assert taken_by({}) == set()


def test_a_plugins_count_goes_before_devices() -> None:
    """A node that counts GPUs has those; one that does not has its devices; what nobody can tell now stays held."""
    plugin = NodeView(name="n", ready=True, usable=True, allocatable={"nvidia.com/gpu": 2.0, "memory": 1e9})
    assert [one.id for one in observed(plugin, (), (), (CARD,)).cards] == ["gpu-0", "gpu-1"]
    assert observed(NODE, (), (), (CARD,)).cards == (CARD,)
    assert observed(NODE, (), ()).cards == ()
    assert observed(NODE, (), {A}, None).cards == (Card(id=A),)
    drained = NodeView(name="n", ready=True, usable=False)
    assert observed(drained, (), {A}, (CARD, Card(id=B))).cards == (CARD,)


def test_a_pod_claims_exactly_the_cards_that_were_granted() -> None:
    """One request a card, by its UUID; the claim has the pod's name, and goes with the pod once that is there."""
    pod = {"metadata": {"name": "p", "namespace": "s", "labels": {"a": "b"}, "ownerReferences": [{"uid": "model"}]}}
    made = claim(pod, grant(A, B))
    assert made is not None
    assert [one["name"] for one in made["spec"]["devices"]["requests"]] == ["gpu-0", "gpu-1"]
    assert all(json.dumps(made).count(uuid) == 1 for uuid in (A, B))
    assert made["metadata"]["ownerReferences"] == [{"uid": "model"}]
    owned = claim(pod, grant(A, B), "u1")
    assert owned is not None
    assert owned["spec"] == made["spec"] == claim_spec((A, B))
    assert [one["uid"] for one in owned["metadata"]["ownerReferences"]] == ["u1"]
    assert claim(pod, grant("gpu-0")) is claim(pod, grant()) is None


def test_a_part_of_a_claimed_card_is_refused() -> None:
    """With what to do about it."""
    with pytest.raises(ValueError, match=r"ask for resources\.gpus"):
        claim_of(grant(A, fraction=0.5))
