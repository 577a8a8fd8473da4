"""From the ResourceQuotas and LimitRanges of the namespace to what pods of ours may take. Pure.

A quota's `used` counts all pods; what ours take of it is taken out again, since the allocator's own ledger counts that.
While the quota controller lags behind, what is left is told too small, never too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from deploy.kubernetes.devices import DRIVER
from deploy.kubernetes.nodes import GPU, mig_profile
from deploy.kubernetes.quantities import read_quantity
from deploy.kubernetes.resources import Json
from deploy.kubernetes.views import PodView
from events.types.limits import Limit, LimitKind

_SAME: Final[Mapping[str, tuple[LimitKind, str]]] = {
    "cpu": (LimitKind.CPU, "cpu"), "requests.cpu": (LimitKind.CPU, "cpu"),
    "memory": (LimitKind.MEMORY, "memory"), "requests.memory": (LimitKind.MEMORY, "memory"),
    "limits.memory": (LimitKind.MEMORY, "memory"),
    "pods": (LimitKind.PODS, ""), "count/pods": (LimitKind.PODS, ""),
}  # fmt: skip
"""What a resource counts, and as which resource pods ask for it."""
_DEVICES: Final = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
"""Cards that ResourceClaims of the driver's class ask for (KEP-4381). Like a plugin's, such a bound counts all GPUs of
ours, whichever way their nodes offer them: where a replica goes is not known before it is placed."""
_OURS: Final = frozenset({"NotBestEffort", "NotTerminating"})
"""Scopes that pods of ours are in: they ask for cores or memory, and have no deadline."""
UNNAMED: Final = ("limits.cpu", "requests.ephemeral-storage", "limits.ephemeral-storage")
"""Resources that pods of ours do not name: a quota of one refuses them, unless a LimitRange fills it in."""


def limits_of(
    quotas: Iterable[Json], ranges: Iterable[Json], ours: Iterable[PodView], claimed: int = 0
) -> tuple[Limit, ...]:
    """All limits, by source and resource. `ours`: pods that relume counts itself, enrolled ones too; `claimed`: cards
    that ResourceClaims of ours ask for."""
    pods = [pod for pod in ours if not pod.over]
    found = [limit for quota in quotas for limit in _of_quota(quota, pods, claimed)]
    found += [limit for one in ranges for limit in _of_range(one)]
    return tuple(sorted(found, key=lambda one: (one.source, one.resource, one.least)))


def applies(quota: Json) -> bool:
    """Whether a quota counts all pods of ours. One of a priority class or of other scopes is left to admission."""
    spec = quota.get("spec", {})
    return "scopeSelector" not in spec and set(spec.get("scopes", ())) <= _OURS


def unnamed(quota: Json) -> list[str]:
    """Resources of a quota that pods of ours do not name."""
    return [name for name in UNNAMED if name in quota.get("spec", {}).get("hard", {})]


def _of_quota(quota: Json, ours: list[PodView], claimed: int) -> list[Limit]:
    if not applies(quota):
        return []
    name, status = quota["metadata"]["name"], quota.get("status", {})
    hard, used = status.get("hard", quota["spec"].get("hard", {})), status.get("used", {})
    found = []
    for resource, text in hard.items():
        kind = _kind(resource)
        if kind is None:
            continue
        what, asked, profile = kind
        mine = sum(1.0 if what is LimitKind.PODS else pod.requests.get(asked, 0.0) for pod in ours)
        mine += claimed if resource == _DEVICES else 0.0
        others = max(0.0, read_quantity(used.get(resource, "0")) - mine)
        left = max(0.0, read_quantity(text) - others)
        found.append(Limit(source=f"ResourceQuota {name}", resource=resource, kind=what, most=left, profile=profile))
    return found


def _of_range(one: Json) -> list[Limit]:
    """Of a LimitRange what each container or pod may ask for; ours have one container."""
    name, found = one["metadata"]["name"], dict[tuple[str, bool], Limit]()
    for item in one.get("spec", {}).get("limits", ()):
        if item.get("type") not in ("Container", "Pod"):
            continue
        for part, least in (("max", False), ("min", True)):
            for resource, text in item.get(part, {}).items():
                kind = _kind(resource)
                if kind is None:
                    continue
                limit = Limit(
                    source=f"LimitRange {name}", resource=resource, kind=kind[0], most=read_quantity(text),
                    profile=kind[2], each=True, least=least,
                )  # fmt: skip
                known = found.get((resource, least), limit)
                tighter = max if least else min
                found[resource, least] = tighter(known, limit, key=lambda each: each.most)
    return list(found.values())


def _kind(resource: str) -> tuple[LimitKind, str, str] | None:
    """What a resource counts, as which resource pods ask for it, and of which MIG profile; None: nothing of ours."""
    if resource in _SAME:
        return (*_SAME[resource], "")
    if resource == _DEVICES:
        return LimitKind.GPUS, _DEVICES, ""
    asked = resource.removeprefix("requests.").removeprefix("limits.")
    if asked == GPU:
        return LimitKind.GPUS, GPU, ""
    profile = mig_profile(asked)
    return (LimitKind.MIG, asked, profile) if profile else None
