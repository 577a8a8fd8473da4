"""The kinds of objects that relume reads and writes, and where they are on the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]
"""An object as the API server says it. Only `views` looks into those that others made."""

GROUP: Final = "relume.dev"
VERSION: Final = "v1alpha1"
MANAGER: Final = "relume"
"""Our one field manager: what it applied it owns, and takes away again by leaving it out."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object. `group` is empty for the core ones."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of a collection, an object, or a part of one such as ``status``."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join([f"{root}{where}/{self.plural}", *([name] if name else []), *([part] if part else [])])


MODELS: Final = Resource(GROUP, VERSION, "models", "Model")
TRAINING_JOBS: Final = Resource(GROUP, VERSION, "trainingjobs", "TrainingJob")
GPU_POOLS: Final = Resource(GROUP, VERSION, "gpupools", "GpuPool")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
