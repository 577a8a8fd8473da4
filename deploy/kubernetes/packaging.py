"""What an installation of relume is made of: the manifests that ship with it, for a namespace, an image, a log. Pure,
but for reading the package's own files.

The manifests are rendered of the chart (`packaging_render`), so Helm, kustomize and `relume install` install the same.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from deploy.kubernetes.crd import definitions
from deploy.kubernetes.resources import DEFINITIONS, DEPLOYMENTS, Json, Resource

FOLDER: Final = Path(__file__).parent / "manifests"
PARTS: Final = FOLDER / "parts"
FILES: Final = ("rbac.yaml", "relume.yaml")
RENDERED_FOR: Final = "models"
"""The namespace that stands in the manifests, and in the names of what belongs to the whole cluster."""
NAME: Final = "relume"
MANAGED: Final = "app.kubernetes.io/managed-by"
WEIGHTS: Final = f"{NAME}-weights"
CLAIM_SETTING: Final = "RELUME_KUBE_WEIGHTS_CLAIM"
VERSION_NOTE: Final = "relume.dev/version"
"""Which relume installed a definition: an older one does not take it back."""

_RBAC: Final = "rbac.authorization.k8s.io"
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
MONITORS: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
"""Of the Prometheus operator: only where it is installed."""
KINDS: Final[Mapping[str, Resource]] = {
    resource.kind: resource
    for resource in (
        DEFINITIONS, Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(_RBAC, "v1", "roles", "Role"), Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        SECRETS, VOLUMES, CLAIMS, Resource("", "v1", "services", "Service"),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"), DEPLOYMENTS, DAEMON_SETS, MONITORS,
    )
}  # fmt: skip
"""In the order in which they are applied: rights and volumes before what needs them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is installed. `kafka`: HOST:PORT of brokers, and relume's parts apart; empty: one process. `agents`: one on
    each node, for weights at remote addresses. `monitored`: the cluster knows the Prometheus operator's kinds."""

    namespace: str
    image: str
    kafka: str = ""
    prometheus: str = ""
    agents: bool = False
    monitored: bool = False


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource (``pods``, ``models/status``); `namespace` empty: in the whole cluster."""

    group: str
    resource: str
    verb: str
    namespace: str

    def __str__(self) -> str:
        where = f"in {self.namespace}" if self.namespace else "in the cluster"
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''} {where}"


def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of manifests."""
    return [dict(json.loads(one)) for one in _texts(path)]


@functools.cache
def _texts(path: Path) -> Sequence[str]:
    loaded = YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8"))
    return tuple(json.dumps(one) for one in loaded if one)


def definition_objects(version: str) -> list[Json]:
    """The definitions of our kinds, with the version of the relume that brings them."""
    made = json.loads(json.dumps(definitions()))
    for one in made:
        one["metadata"]["annotations"] = {VERSION_NOTE: version}
    return list(made)


def objects(wanted: Wanted) -> list[Json]:
    """Everything but definitions and secrets, in the order of `KINDS`."""
    folder = PARTS if wanted.kafka else FOLDER
    files = (*FILES, *(["agent.yaml"] if wanted.agents else ()), *(["monitor.yaml"] if wanted.monitored else ()))
    made = [_fitted(one, wanted) for name in files for one in documents(folder / name)]
    order = list(KINDS)
    return sorted(made, key=lambda one: order.index(one["kind"]))


def secret_names(wanted: Wanted) -> Mapping[str, str]:
    """The Secrets that pods read, and the key of each."""
    return {f"{NAME}-admin": "token"} | ({f"{NAME}-peers": "secret"} if wanted.kafka else {})


def path_of(body: Json, namespace: str) -> str:
    """Where an object is on the API server."""
    return KINDS[body["kind"]].path(namespace, body["metadata"]["name"])


def called(component: str, name: str = NAME) -> str:
    """What a component's Deployment and account are called, in an installation of this name."""
    return name if component == "up" else f"{name}-{component}"


def rights(component: str, namespace: str) -> list[Right]:
    """What the account of a component may do, by the manifests: ``up``, ``gateway``, ``autoscaler``, ``cluster``."""
    ours = called(component)
    rendered = documents((FOLDER if component == "up" else PARTS) / "rbac.yaml")
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"])
        for one in rendered
        if one["kind"].endswith("Binding") and any(subject["name"] == ours for subject in one["subjects"])
    }
    return [right for one in rendered if (one["kind"], one["metadata"]["name"]) in bound
            for right in _allowed(one, namespace)]  # fmt: skip


def _allowed(role: Json, namespace: str) -> Iterator[Right]:
    where = namespace if role["kind"] == "Role" else ""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(group, resource, verb, where)


def _fitted(body: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    """A manifest for this namespace, image and log."""
    resource = KINDS[body["kind"]]
    metadata = body["metadata"]
    metadata.setdefault("labels", {})[MANAGED] = NAME
    if resource.namespaced:
        metadata["namespace"] = wanted.namespace
    else:
        metadata["name"] = _renamed(metadata["name"], wanted)
    for subject in body.get("subjects", ()):
        subject["namespace"] = wanted.namespace
    if body.get("roleRef", {}).get("kind") == "ClusterRole":
        body["roleRef"]["name"] = _renamed(body["roleRef"]["name"], wanted)
    if body["kind"] == VOLUMES.kind:
        spec = body["spec"]
        spec["claimRef"]["namespace"] = wanted.namespace
        spec["hostPath"]["path"] = f"{spec['hostPath']['path'].removesuffix(RENDERED_FOR)}{wanted.namespace}"
    if body["kind"] == CLAIMS.kind and "volumeName" in body["spec"]:
        body["spec"]["volumeName"] = _renamed(body["spec"]["volumeName"], wanted)
    if body["kind"] in ("Deployment", "DaemonSet"):
        for container in body["spec"]["template"]["spec"]["containers"]:
            container["image"] = wanted.image
            container["env"] = _environment(container["command"][1], container["env"], wanted)
    return body


def _renamed(name: str, wanted: Wanted) -> str:
    """Two installations in two namespaces must not share what belongs to the whole cluster."""
    return f"{name.removesuffix(f'-{RENDERED_FOR}')}-{wanted.namespace}"


def _environment(role: str, found: Sequence[Json], wanted: Wanted) -> list[Json]:
    values = {"RELUME_EVENTS": f"kafka://{wanted.kafka}"} if wanted.kafka else {}
    found = (
        [*found, {"name": CLAIM_SETTING, "value": WEIGHTS}] if wanted.agents and role in ("up", "cluster") else found
    )
    made = [{"name": one["name"], "value": values[one["name"]]} if one["name"] in values else one for one in found]
    if wanted.prometheus and role in ("up", "autoscaler"):
        made.append({"name": "RELUME_PROMETHEUS", "value": wanted.prometheus})
    return made
