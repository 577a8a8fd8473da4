"""Stand-ins: how many are made and ended for a call, and what such a pod asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.kubernetes.node_news import newest_word
from deploy.kubernetes.shaping import Owner, PodOrder
from deploy.kubernetes.standing_in import (
    AGAIN,
    LABEL_STAND_IN,
    WAITS,
    Past,
    Wanted,
    is_stand_in,
    plan_stand_ins,
    stand_in,
    stand_in_name,
)
from deploy.kubernetes.views import LABEL_MANAGED, LABEL_MODEL, LABEL_REVISION, MANAGED_BY, PodView
from deploy.spec.pod import PodSpec
from events.types.grants import NodeCall, Placement, ReplicaGrant
from events.types.shared import Resources
from events.units import Instant

NOW = Instant(1000.0)
CALL = NodeCall(replicas=2, since=900.0, until=1500.0)
WANTED = Wanted("u", 1, CALL)
LABELS = {LABEL_STAND_IN: "m", LABEL_MANAGED: MANAGED_BY, LABEL_REVISION: "1"}


def pod(number: int, **fields: object) -> PodView:
    """A stand-in that waits."""
    made = PodView(name=f"m-stand-in-{number}", namespace="ns", uid=f"uid-{number}", labels=LABELS)
    return replace(made, **fields)  # type: ignore[arg-type]  # tests name real fields


OLD = pod(7, labels=LABELS | {LABEL_REVISION: "0"})
TABLE: dict[str, tuple[Wanted | None, list[PodView], Past, int, list[str]]] = {
    "both are to be made": (WANTED, [], Past(), 2, []),
    "one is there": (WANTED, [pod(0)], Past(), 1, []),
    "one goes already": (WANTED, [pod(0), pod(1, deleting=True)], Past(), 1, []),
    "one too many": (WANTED, [pod(0), pod(1), pod(2)], Past(), 0, ["m-stand-in-2"]),
    "of an older revision": (WANTED, [OLD], Past(), 2, ["m-stand-in-7"]),
    "one found a node": (WANTED, [pod(0, node="n"), pod(1)], Past(), 0, ["m-stand-in-0"]),
    "one found a node just now": (WANTED, [pod(1)], Past(bound_at=[Instant(990.0)]), 0, []),
    "its node went to others": (WANTED, [pod(1)], Past(bound_at=[Instant(NOW - AGAIN)]), 1, []),
    "one could not run": (WANTED, [pod(0, phase="Failed"), pod(1)], Past(), 0, ["m-stand-in-0"]),
    "nobody calls": (None, [pod(0)], Past(), 0, ["m-stand-in-0"]),
    "the call pauses": (
        replace(WANTED, call=replace(CALL, replicas=0, again_at=1300.0)), [pod(0)], Past(), 0, ["m-stand-in-0"],
    ),
    "a person said no": (WANTED, [pod(0)], Past(cancelled_at=Instant(950.0)), 0, ["m-stand-in-0"]),
    "to an earlier call": (WANTED, [pod(0)], Past(cancelled_at=Instant(850.0)), 1, []),
    "refused just now": (WANTED, [pod(0)], Past(refused="quota", refused_at=Instant(990.0)), 0, []),
    "refused long ago": (WANTED, [pod(0)], Past(refused="quota", refused_at=Instant(NOW - AGAIN)), 1, []),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_is_made_and_ended(case: str) -> None:
    """As many wait as are called for; what found a node, is too many, or that nobody calls for, goes."""
    wanted, pods, past, make, gone = TABLE[case]
    plan = plan_stand_ins(wanted, pods, past, NOW)
    assert (plan.make, [one.name for one in plan.delete]) == (make, gone)


def test_it_looks_again_when_time_changes_something() -> None:
    """When a node that took a stand-in should have been granted, and when a refusal is to be tried again."""
    past = Past(bound_at=[Instant(990.0)])
    assert plan_stand_ins(WANTED, [pod(1)], past, NOW).again_at == 990.0 + AGAIN
    past = Past(refused="quota", refused_at=Instant(995.0))
    assert plan_stand_ins(WANTED, [], past, NOW).again_at == 995.0 + AGAIN
    assert plan_stand_ins(WANTED, [pod(0), pod(1)], Past(), NOW).again_at is None


def test_it_asks_for_what_a_replica_asks_for_but_for_the_node() -> None:
    """The node's labels, taints and resources; no node, no secrets, no priority over others, and no label that says it
    were a replica."""
    shape = PodSpec.model_validate({
        "image": "i:1", "nodeSelector": {"pool": "a"}, "tolerations": [{"key": "spot", "operator": "Exists"}],
        "priorityClass": "high", "envFromSecrets": ["hub"], "scheduler": "other",
        "mounts": [{"path": "/data", "claim": "zonal"}],
    })  # fmt: skip
    grant = ReplicaGrant(
        replica="m-r1-0", revision=1, placement=Placement(node=""),
        resources=Resources(gpus=2, cpu=1.0, memory_bytes=1 << 30),
    )  # fmt: skip
    order = PodOrder(
        namespace="ns", model="m", uid="u", grant=grant, shape=shape, launch=WAITS, owner=Owner("m", "uid"), epoch=0,
        drain=1,
    )  # fmt: skip
    made = stand_in(order, "m-stand-in-0")
    metadata, spec, container = made["metadata"], made["spec"], made["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert spec["nodeSelector"] == {"pool": "a"}
    assert {"key": "spot", "operator": "Exists"} in spec["tolerations"]
    assert (spec["schedulerName"], spec["volumes"][0]["persistentVolumeClaim"]["claimName"]) == ("other", "zonal")
    assert not {"affinity", "priorityClassName"} & spec.keys()
    assert not {"env", "envFrom", "lifecycle", "ports"} & container.keys()
    assert metadata["labels"] == LABELS
    assert LABEL_MODEL not in metadata["labels"]
    assert metadata["ownerReferences"][0]["uid"] == "uid"
    assert metadata["annotations"] == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


def said(reason: str, at: str, who: str = "cluster-autoscaler", **more: object) -> dict[str, object]:
    """An Event about a stand-in."""
    return {"reason": reason, "note": f"note {at}", "reportingController": who, "eventTime": at, **more}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], ""),
        ([said("FailedScheduling", "9", "default-scheduler")], ""),
        ([said("FailedScheduling", "1", "karpenter")], "karpenter says FailedScheduling: note 1"),
        ([said("A", "2"), said("B", "1")], "cluster-autoscaler says A: note 2"),
        ([said("A", "2"), said("B", "1", series={"lastObservedTime": "3"})], "cluster-autoscaler says B: note 1"),
        (
            [{"reason": "A", "deprecatedSource": {"component": "old"}, "deprecatedLastTimestamp": "1", "note": "n"}],
            "old says A: n",
        ),
    ],
)
def test_what_an_autoscaler_says_is_heard(events: list[dict[str, object]], told: str) -> None:
    """The newest word of whoever adds nodes, not of schedulers."""
    assert newest_word(events) == told


def test_names_are_short_and_free() -> None:
    """The lowest number that no pod has."""
    assert stand_in_name("m", ["m-stand-in-0", "m-stand-in-2"]) == "m-stand-in-1"


@pytest.mark.parametrize(
    ("namespace", "labels", "ours"),
    [("ns", LABELS, True), ("other", LABELS, False), ("ns", {LABEL_STAND_IN: "m"}, False), ("ns", {}, False)],
)
def test_whose_it_is(namespace: str, labels: dict[str, str], *, ours: bool) -> None:
    """Ours in our namespace, by two labels."""
    assert is_stand_in(pod(0, namespace=namespace, labels=labels), "ns") is ours
