"""What quotas and limit ranges leave for pods of ours."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes.packaging_doctor import State, quota_check
from deploy.kubernetes.quotas import applies, limits_of, unnamed
from deploy.kubernetes.views import PodView
from events.types.limits import Limit, LimitKind


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A ResourceQuota `q`, with its status unless nobody has counted yet."""
    made: dict[str, Any] = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    return made if used is None else made | {"status": {"hard": hard, "used": used}}


def pod(phase: str = "Running", **requests: float) -> PodView:
    """One of ours; dots and slashes are written as __."""
    named = {name.replace("__", "."): amount for name, amount in requests.items()}
    named = {"nvidia.com/gpu" if name == "gpu" else name: amount for name, amount in named.items()}
    return PodView(name="p", namespace="ns", uid="u", phase=phase, requests=named)


CLAIMED = 3
"""Cards that claims of ours ask for."""
TABLE: dict[str, tuple[dict[str, Any], list[PodView], list[tuple[str, LimitKind, float]]]] = {
    "nobody has counted": (
        quota({"requests.nvidia.com/gpu": "4"}), [], [("requests.nvidia.com/gpu", LimitKind.GPUS, 4)],
    ),
    "others have some": (
        quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "3"}), [pod(gpu=1), pod(gpu=1)],
        [("requests.nvidia.com/gpu", LimitKind.GPUS, 3)],
    ),
    "one of ours has ended": (
        quota({"pods": "4"}, {"pods": "3"}), [pod(), pod("Succeeded")], [("pods", LimitKind.PODS, 2)],
    ),
    "not counted yet": (quota({"pods": "4"}, {"pods": "0"}), [pod()], [("pods", LimitKind.PODS, 4)]),
    "more than there is": (quota({"cpu": "1"}, {"cpu": "3"}), [], [("cpu", LimitKind.CPU, 0)]),
    "memory twice": (
        quota({"limits.memory": "3Gi", "requests.memory": "2Gi"}), [],
        [("limits.memory", LimitKind.MEMORY, 3 << 30), ("requests.memory", LimitKind.MEMORY, 2 << 30)],
    ),
    "a mig profile": (quota({"requests.nvidia.com/mig-1g.10gb": "2"}), [],
                      [("requests.nvidia.com/mig-1g.10gb", LimitKind.MIG, 2)]),
    "cards that are claimed": (
        quota({"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "5",
               "other.deviceclass.resource.k8s.io/devices": "1"},
              {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "4"}),
        [], [("gpu.nvidia.com.deviceclass.resource.k8s.io/devices", LimitKind.GPUS, 4)],
    ),
    "nothing of ours": (quota({"services": "2", "count/jobs.batch": "1", "limits.cpu": "3"}), [], []),
    "of a priority class": (
        quota({"pods": "1"}, scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass"}]}), [], [],
    ),
    "of pods that end": (quota({"pods": "1"}, scopes=["Terminating"]), [], []),
    "of pods that go on": (quota({"pods": "1"}, scopes=["NotTerminating"]), [], [("pods", LimitKind.PODS, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_a_quota_leaves(case: str) -> None:
    """The hard bound less what others use; ours are counted elsewhere."""
    one, ours, wanted = TABLE[case]
    found = limits_of([one], [], ours, CLAIMED)
    assert [(each.resource, each.kind, each.most) for each in found] == wanted
    assert all(each.source == "ResourceQuota q" and not each.each for each in found)


def test_a_limit_range_bounds_each() -> None:
    """The tighter of container and pod; what is the least, too; claims of volumes are none of ours."""
    one = {"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"nvidia.com/gpu": "4", "memory": "8Gi"}, "min": {"cpu": "100m"}},
        {"type": "Pod", "max": {"nvidia.com/gpu": "2"}, "min": {"cpu": "200m"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]}}  # fmt: skip
    assert limits_of([], [one], []) == (
        Limit(source="LimitRange r", resource="cpu", kind=LimitKind.CPU, most=0.2, each=True, least=True),
        Limit(source="LimitRange r", resource="memory", kind=LimitKind.MEMORY, most=float(8 << 30), each=True),
        Limit(source="LimitRange r", resource="nvidia.com/gpu", kind=LimitKind.GPUS, most=2.0, each=True),
    )


def test_what_cannot_be_judged_is_known() -> None:
    """A quota of other scopes, and resources that pods of ours do not name."""
    assert not applies(quota({}, scopes=["BestEffort"]))
    assert unnamed(quota({"limits.cpu": "1", "pods": "2"})) == ["limits.cpu"]


@pytest.mark.parametrize(
    ("one", "state", "told"),
    [
        (
            quota({"pods": "4", "requests.nvidia.com/gpu": "2"}, {"pods": "1"}),
            State.OK,
            "3 pods, 2 requests.nvidia.com/gpu",
        ),
        (
            quota({"requests.nvidia.com/gpu": "2"}, {"requests.nvidia.com/gpu": "2"}),
            State.WARNING,
            "nothing is left of",
        ),
        (quota({"limits.cpu": "2"}), State.WARNING, "limits.cpu, which pods of models do not name"),
        (quota({"pods": "1"}, scopes=["Terminating"]), State.WARNING, "scopes that relume does not judge"),
        (quota({"services": "1"}), State.OK, "nothing that models take left"),
    ],
    ids=["room", "spent", "unnamed", "scoped", "others"],
)
def test_doctor_tells_of_a_quota(one: dict[str, Any], state: State, told: str) -> None:
    """What is left, or what is wrong and what to do about it."""
    check = quota_check(one, "models")
    assert (check.name, check.state, told in check.told) == ("quota q", state, True), check
    assert bool(check.remedy) == (state is State.WARNING)
