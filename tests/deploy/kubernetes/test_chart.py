"""The chart by real Helm, the manifests by real kustomize, and what they make on a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from deploy.kubernetes import packaging_render
from deploy.kubernetes.api import connect
from deploy.kubernetes.crd import definitions
from deploy.kubernetes.packaging import FOLDER, KINDS, NAMESPACES, PARTS
from deploy.kubernetes.packaging_render import CHART, OLDEST, HelmMissing, rendered
from deploy.kubernetes.resources import PODS
from tests.support.helm import RUN_WITHIN, helm, prepare
from tests.support.kube_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.needs("helm"), pytest.mark.xdist_group("helm")]

EVERYTHING: Final = """
image: {repository: registry.example/relume, tag: "2", pullPolicy: Always}
imagePullSecrets: [{name: pull}]
fullnameOverride: warm
kafka:
  servers: [b1:9093, b2:9093]
  replication: 3
  security: sasl_ssl
  saslMechanism: SCRAM-SHA-512
  username: relume
  passwordSecret: {name: kafka, key: password}
  caSecret: {name: kafka, key: ca.crt}
  certSecret: kafka-client
  clustersSecret: {name: kafka, key: clusters.yaml}
prometheus: {url: "https://prometheus:9090", serversSecret: {name: prometheus, key: servers.yaml}}
listenHost: "::"
drainBoundSeconds: 120
gateway:
  replicas: 3
  env: [{name: RELUME_MAX_BODY_BYTES, value: 64Mi}]
  nodeSelector: {pool: cpu}
  tolerations: [{key: spot, operator: Exists}]
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {app.kubernetes.io/component: gateway}}
  priorityClassName: system-cluster-critical
  podLabels: {team: inference}
  podAnnotations: {example.com/note: "yes"}
  extraVolumes: [{name: more, emptyDir: {}}]
  extraVolumeMounts: [{name: more, mountPath: /more}]
autoscaler: {replicas: 1}
service: {type: LoadBalancer, port: 8080, annotations: {example.com/note: "yes"}}
serviceAccount: {annotations: {example.com/role: relume}}
rbac: {enrolled: [{group: apps, resource: deployments}, {group: apps, resource: statefulsets}]}
networkPolicy:
  clients: [{namespaceSelector: {matchLabels: {team: inference}}}]
  monitoring: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
"""


def template(folder: Path, values: str, *more: str) -> list[dict[str, Any]]:
    """What Helm makes of a file of values."""
    path = folder / "values.yaml"
    path.write_text(values, encoding="utf-8")
    command = ["template", "rel", str(CHART), "-n", "models", "--kube-version", OLDEST, "-f", str(path), *more]
    done = helm(*command)
    assert done.returncode == 0, done.stderr
    return [one for one in YAML(typ="safe", pure=True).load_all(done.stdout) if one]


@pytest.mark.parametrize("values", ["{}", EVERYTHING], ids=["defaults", "everything"])
def test_lint(tmp_path: Path, values: str) -> None:
    """Strictly, with the schema of the values."""
    (tmp_path / "values.yaml").write_text(values, encoding="utf-8")
    done = helm("lint", "--strict", "--kube-version", OLDEST, "-f", str(tmp_path / "values.yaml"), str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifests_are_what_helm_renders() -> None:
    """All of both variants, byte for byte."""
    for path, text in packaging_render.render(str(prepare("helm"))).items():
        assert path.read_text(encoding="utf-8") == text, path


@pytest.mark.parametrize(
    ("value", "told"),
    [("gatway.replicas=2", "gatway"), ("drainBoundSeconds=-1", "drainBoundSeconds"), ("kafka.servers={b1}", "servers")],
)
def test_wrong_values_are_refused(value: str, told: str) -> None:
    """By the schema, with the field's name."""
    with pytest.raises(HelmMissing, match=told):
        rendered(str(prepare("helm")), [value])


def test_everything_that_can_be_asked_is_there(tmp_path: Path) -> None:
    """Secrets by reference only; each field where it belongs; definitions that Helm keeps."""
    made = {f"{one['kind']}/{one['metadata']['name']}": one for one in template(tmp_path, EVERYTHING)}
    gateway = made["Deployment/warm-gateway"]["spec"]
    pod = gateway["template"]["spec"]
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert (gateway["replicas"], pod["terminationGracePeriodSeconds"]) == (3, 140)
    assert env["RELUME_PEER_ADDRESS"] == "[$(POD_IP)]:8082"
    assert (env["RELUME_KAFKA_REPLICATION"], env["RELUME_MAX_BODY_BYTES"]) == ("3", "64Mi")
    assert gateway["template"]["metadata"]["labels"]["team"] == "inference"
    assert "PodDisruptionBudget/warm-gateway" in made
    assert "PodDisruptionBudget/warm-autoscaler" not in made  # of one pod it would only be in the way
    paths = {item["path"] for volume in pod["volumes"] if volume["name"] == "secrets"
             for source in volume["projected"]["sources"] for item in source["secret"]["items"]}  # fmt: skip
    assert paths == {"admin-token", "peer-secret", "kafka-password", "kafka-ca.crt", "kafka-tls.crt", "kafka-tls.key"}
    monitor = made["ServiceMonitor/warm"]["spec"]["endpoints"][0]
    assert monitor["authorization"]["credentials"] == {"name": "warm-admin", "key": "token"}
    resources = [name for rule in made["Role/warm-cluster"]["rules"] for name in rule["resources"]]
    assert "statefulsets/scale" in resources
    for definition in definitions():
        ours = made[f"CustomResourceDefinition/{definition['metadata']['name']}"]
        assert ours["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert ours["spec"] == json.loads(json.dumps(definition["spec"]))
    secrets = [one for name, one in made.items() if name.startswith("Secret/")]
    assert [len(one["data"]) for one in secrets] == [1, 1]
    again = {one["metadata"]["name"]: one for one in template(tmp_path, EVERYTHING) if one["kind"] == "Secret"}
    assert all(again[one["metadata"]["name"]]["data"] != one["data"] for one in secrets)  # random each time


@pytest.mark.parametrize(("values", "asks"), [
    ("{enabled: true}", False), ("{enabled: true, runtimeClassName: nvidia}", True),
    ("{enabled: true, runtimeClassName: nvidia, runAsUser: 65532}", False),
    ("{enabled: true, runtimeClassName: nvidia, kubeletPath: ''}", False), ("{runtimeClassName: nvidia}", False),
])  # fmt: skip
def test_agents_ask_the_kubelet_where_they_see_gpus_as_root(tmp_path: Path, values: str, asks: bool) -> None:
    """By a claim, read-only all the way, so that the pod needs no hostPath; all others have nothing of it."""
    made = template(tmp_path, f"agent: {values}")
    volumes = {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "PersistentVolume"}
    assert ("rel-relume-kubelet-models" in volumes) is asks
    pods = [one["spec"]["template"]["spec"] for one in made if one["kind"] in ("DaemonSet", "Deployment")]
    mounted = [
        (mount, volume) for pod in pods for volume in pod["volumes"] for container in pod["containers"]
        for mount in container["volumeMounts"] if mount["name"] == volume["name"] == "kubelet"
    ]  # fmt: skip
    assert not any("hostPath" in volume for pod in pods for volume in pod["volumes"])
    assert "RELUME_POD_RESOURCES" in json.dumps(pods) if asks else "RELUME_POD_RESOURCES" not in json.dumps(pods)
    assert len(mounted) == asks
    if asks:
        ((mount, volume),) = mounted
        assert (mount["readOnly"], volume["persistentVolumeClaim"]["readOnly"]) == (True, True)
        spec = volumes["rel-relume-kubelet-models"]
        assert (spec["hostPath"]["path"], spec["accessModes"]) == ("/var/lib/kubelet/pod-resources", ["ReadOnlyMany"])


@pytest.mark.parametrize("folder", [FOLDER, PARTS], ids=["one process", "parts"])
def test_kustomize_builds_the_manifests(folder: Path) -> None:
    """All of them, in the namespace that the kustomization names, also where an account is named."""
    command = [str(prepare("kustomize")), "build", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    made = [one for one in YAML(typ="safe", pure=True).load_all(done.stdout) if one]
    assert {one["metadata"].get("namespace", "models") for one in made} == {"models"}
    assert {subject["namespace"] for one in made for subject in one.get("subjects", ())} == {"models"}
    assert sum(one["kind"] == "CustomResourceDefinition" for one in made) == len(definitions())


@pytest.mark.kubernetes
@pytest.mark.needs("kubernetes")
async def test_the_api_server_takes_what_helm_renders(plane: ControlPlane, tmp_path: Path) -> None:
    """Strictly, all values given, where the namespace demands the standard "restricted"; pods too."""
    made = [one for one in template(tmp_path, EVERYTHING) if one["kind"] != "ServiceMonitor"]  # not a kind of its own
    made += template(tmp_path, "{}", "--set", "crds.install=false")
    api = await connect(plane.kubeconfig)
    metadata = {"name": "models", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    await api.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    query = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "helm"}
    try:
        for body in made:
            resource = KINDS[body["kind"]]
            path = resource.path("models" if resource.namespaced else "", body["metadata"]["name"])
            await api.apply(path, body, query)
            if body["kind"] == "Deployment":
                spec = {**body["spec"]["template"]["spec"], "serviceAccountName": "default"}
                spec.pop("priorityClassName", None)  # the plane has only the system's, which are not for everyone
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try"}, "spec": spec}
                await _taken(api, pod)
    finally:
        await api.delete(NAMESPACES.path("", "models"))
        await api.close()


async def _taken(api: Any, pod: dict[str, Any]) -> None:
    account = KINDS["ServiceAccount"].path("models", "default")
    await api.apply(account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    await api.create(PODS.path("models"), pod, {"dryRun": "All", "fieldValidation": "Strict"})
