"""Objects that `scaleTargetRef` names, as they stand on the API server."""

from __future__ import annotations

from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.resources import Json, Resource
from deploy.spec.pod import ScaleTargetSpec


async def resource_of(api: KubeApi, target: ScaleTargetSpec) -> Resource:
    """Which collection the kind is, as the API server says it. Raises ApiError, ApiUnavailable."""
    group, _, version = target.api_version.rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    known = (await api.get(root))["resources"]
    plural = next((one["name"] for one in known if one["kind"] == target.kind and "/" not in one["name"]), "")
    if not plural:
        raise ApiError(404, "NotFound", f"there is no kind {target.kind} in {target.api_version}")
    return Resource(group, version, plural, target.kind)


async def read_target(api: KubeApi, namespace: str, target: ScaleTargetSpec) -> Json:
    """The object; by a list, which is what relume's role may ask for. Raises ApiError, ApiUnavailable."""
    resource = await resource_of(api, target)
    found = await api.get(resource.path(namespace), {"fieldSelector": f"metadata.name={target.name}"})
    for item in found["items"]:
        named: Json = {**item, "apiVersion": resource.api_version, "kind": resource.kind}
        return named
    raise ApiError(404, "NotFound", f"there is no {target.kind} {target.name}")
