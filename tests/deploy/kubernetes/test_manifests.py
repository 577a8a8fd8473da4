"""The manifests: the API server takes them as they are, and relume may do what it does, and nothing more."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from deploy.kubernetes.api import ApiError, KubeApi, connect
from deploy.kubernetes.devices import GROUP
from deploy.kubernetes.resources import DEFINITIONS, DEPLOYMENTS, PODS, STATEFUL_SETS, Json, Resource
from tests.support.kube_devices import published, withdraw
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import annotated, burst, enrol, through_admin_port
from tests.support.kube_training import takes_turns
from tests.support.kube_world import GPU_NODE, NAMESPACES, World, arguments, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

FOLDER: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "manifests"
RBAC: Final = "rbac.authorization.k8s.io"
KINDS: Final = {
    resource.kind: resource
    for resource in (
        DEFINITIONS, DEPLOYMENTS, Resource("", "v1", "services", "Service"),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
        Resource(RBAC, "v1", "roles", "Role"), Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    )
}  # fmt: skip
Right = tuple[str, str, str]
"""API group, resource (with its part), verb."""


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a file."""
    return [one for one in YAML(typ="safe", pure=True).load_all((FOLDER / name).read_text()) if one]


def resources() -> list[dict[str, Any]]:
    """All documents that the kustomization names, and those of the folder that it names."""
    (kustomization,) = documents("kustomization.yaml")
    folders = [name for name in kustomization["resources"] if (FOLDER / name).is_dir()]
    files = [name for name in kustomization["resources"] if name not in folders]
    for folder in folders:
        (within,) = documents(f"{folder}/Kustomization")
        files += [f"{folder}/{name}" for name in within["resources"]]
    return [one for name in files for one in documents(name)]


async def install(api: KubeApi, body: Json, namespace: str, query: dict[str, str] | None = None) -> None:
    """What kustomize and kubectl do with a document: into the namespace, also where an account of it is named."""
    resource = KINDS[body["kind"]]
    made = json.loads(json.dumps(body))
    for subject in made.get("subjects", ()):
        subject["namespace"] = namespace
    where = namespace if resource.namespaced else ""
    path = resource.path(where, made["metadata"]["name"])
    await api.apply(path, made, {"fieldManager": "kubectl", "fieldValidation": "Strict"} | (query or {}))


async def test_the_api_server_takes_every_manifest(plane: ControlPlane) -> None:
    """Server-side, strictly, with nothing unknown; also where the namespace demands the standard "restricted"."""
    api = await connect(plane.kubeconfig)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "manifests", "labels": labels}
    await api.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        found = resources()
        for body in found:
            await install(api, body, "manifests", {"dryRun": "All"})
        assert {body["kind"] for body in found} == set(KINDS)
        (deployment,) = [body for body in found if body["kind"] == "Deployment"]
        template = deployment["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": template["spec"]}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "relume"}}
        await api.create(KINDS["ServiceAccount"].path("manifests"), account)
        await api.create(PODS.path("manifests"), pod, {"dryRun": "All"})  # the Deployment itself is only warned about
    finally:
        await api.delete(NAMESPACES.path("", "manifests"))
        await api.close()


def granted() -> set[Right]:
    """What the roles of the manifests allow."""
    rules = [rule for body in documents("rbac.yaml") if "rules" in body for rule in body["rules"]]
    return {
        (group, resource, verb)
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip


def used(plane: ControlPlane, account: str) -> tuple[set[Right], list[str]]:
    """What an account asked the API server for, by its audit log; and what it was refused."""
    rights, refused = set(), []
    for line in (plane.folder / "audit.log").read_text().splitlines():
        said = json.loads(line)
        about = said.get("objectRef", {})
        if said["user"]["username"] != account or "resource" not in about:
            continue
        part = f"/{about['subresource']}" if "subresource" in about else ""
        rights.add((about.get("apiGroup", ""), about["resource"] + part, said["verb"]))
        if said.get("responseStatus", {}).get("code") == 403:
            refused.append(said["requestURI"])
    return rights, refused


async def account(here: World, plane: ControlPlane) -> Path:
    """Install the roles; a kubeconfig of their account."""
    for body in documents("rbac.yaml"):
        await install(here.api, body, here.namespace)
    path = KINDS["ServiceAccount"].path(here.namespace, "relume", "token")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = (await here.api.create(path, asked))["status"]["token"]
    return plane.kubeconfig_of("relume", token)


async def test_each_verb_that_is_granted_is_used_and_the_other_way_round(plane: ControlPlane, tmp_path: Path) -> None:
    """The whole story, with an enrolled Deployment, under the account of the manifests: nothing is refused, and no
    right is left over."""
    claimed = FakeNode(f"claimed-{os.getpid()}")
    nodes = [FakeNode(f"gpu-{os.getpid()}", extended=GPU_NODE), claimed]
    async with world(plane, tmp_path, nodes) as here, published(here.api, claimed.name):
        kubeconfig = await account(here, plane)
        given = arguments(plane, here.namespace)
        here.relume.reach(tuple(str(kubeconfig) if word == str(plane.kubeconfig) else word for word in given))
        await here.relume.start()
        await here.apply(pod_model())
        chosen = f"pod: {{nodeSelector: {{kubernetes.io/hostname: {claimed.name}}}, image"
        await here.apply(pod_model("claimer").replace("pod: {image", chosen))
        await here.state("Zero")
        await here.known("claimer")
        assert (await here.chat("claimer")).status == 200
        await burst(here, "echo")
        await enrol(here)
        await burst(here, "mistral")
        await annotated(here, STATEFUL_SETS, "qwen")
        await here.known("qwen")
        await burst(here, "qwen")
        await through_admin_port(here)
        await asyncio.gather(here.state("Zero"), here.state("Zero", "mistral"))
        await here.state("Zero", "claimer")
        await withdraw(here.api, claimed.name)  # its card would be room
        await takes_turns(here, "echo")
        rights, refused = used(plane, f"system:serviceaccount:{here.namespace}:relume")
        assert refused == []
        assert await needs_create(here, kubeconfig)
        # asked within the patch, and not logged
        ours = {("relume.dev", kind, "create") for kind in ("models", "gpupools", "trainingjobs")}
        within = {("", "pods", "create"), (GROUP, "resourceclaims", "create"), *ours}
        assert granted() == rights | within


async def test_rights_that_are_taken_away_are_told_and_come_back(plane: ControlPlane, tmp_path: Path) -> None:
    """Without the right to make pods, starts fail with the API server's words, and go on once it is given back."""
    async with world(plane, tmp_path) as here:
        kubeconfig = await account(here, plane)
        given = arguments(plane, here.namespace)
        here.relume.reach(tuple(str(kubeconfig) if word == str(plane.kubeconfig) else word for word in given))
        await here.relume.start()
        await here.apply(pod_model())
        await here.state("Zero")
        assert await needs_create(here, kubeconfig)
        asking = asyncio.create_task(here.chat())

        async def told() -> bool:  # by the status: Events cannot be made now either
            return "PodRefused" in str((await here.model()).get("status", {}))

        try:
            await here.until("it is told", told)
        finally:
            (role,) = [body for body in documents("rbac.yaml") if body["kind"] == "Role"]
            await install(here.api, role, here.namespace)
        assert (await asking).status in (200, 503)  # 503 after three failures, with Retry-After
        assert (await here.chat()).status == 200


async def needs_create(here: World, kubeconfig: Path) -> bool:
    """Whether applying a pod that is not there yet is refused to who may only patch."""
    (role,) = [body for body in documents("rbac.yaml") if body["kind"] == "Role"]
    for rule in role["rules"]:
        rule["verbs"] = [verb for verb in rule["verbs"] if verb != "create"]
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    await install(here.api, role, here.namespace)
    restricted = await connect(kubeconfig)
    spec = {"containers": [{"name": "a", "image": "a"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}

    async def refused() -> bool:  # the authorizer learns of the change by a watch of its own
        try:
            await restricted.apply(PODS.path(here.namespace, "a"), pod, {"dryRun": "All"})
        except ApiError as error:
            return error.status == 403
        return False

    try:
        return bool(await here.until("it is refused", refused, 10.0))
    finally:
        await restricted.close()
