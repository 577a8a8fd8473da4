"""The node agent of the manifests on the tests' cluster: a real DaemonSet, whose container is a local process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.kubernetes.packaging import KINDS, WEIGHTS, Wanted, objects, path_of
from tests.support.kube_world import World, parsed

OTHERS = ("RELUME_DATA_DIR", "RELUME_ADMIN_TOKEN_FILE", "RELUME_ADMIN_HOST")
"""What a process says otherwise than a container: where its folders are, and that its address is its own."""
PEERS = "RELUME_CACHE_PEER_TOKEN_FILE"


def model(url: str, name: str = "echo", **scaling: object) -> str:
    """A Model with remote weights and an adapter, whose engine does not start without them."""
    words = "python -P -m runtime.engines.simulated_server --host {host} --port {port} --model {model}"
    server = f'test -s {{weights}} && test -s "${{1#*=}}" && exec {words} --max-num-seqs {{slots}}'
    numbers = {
        "minReplicas": 0,
        "maxReplicas": 2,
        "keepAlive": "2s",
        "stableWindow": "4s",
        "panicWindow": "1s",
    } | scaling
    document = {
        "apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": name},
        "spec": {
            "engine": {"type": "command", "options": {"command": ["sh", "-c", server, "sh", "{adapters}"]}},
            "weights": {"uri": url, "adapters": [{"name": "de", "uri": url}]}, "slots": 4, "scaling": numbers,
            "resources": {"gpus": 1, "cpu": 0.1, "memory": "64Mi"}, "pod": {"image": "relume.test/relume:1"},
        },
    }  # fmt: skip
    return json.dumps(document)


async def install_agent(here: World, node: Path, kafka: str = "", more: Mapping[str, str] | None = None) -> Path:
    """Agents as `relume install --agent` makes them, with their folder at `node`, and `more` in their environment; the
    cache's folder."""
    root = str(Path(__file__).parents[2])
    for body in objects(Wanted(here.namespace, "relume.test/relume:1", kafka, agents=True)):
        made: dict[str, Any] = json.loads(json.dumps(body))
        if made["metadata"].get("labels", {}).get("app.kubernetes.io/component") != "agent":
            continue
        if made["kind"] == "DaemonSet":
            pod = made["spec"]["template"]["spec"]
            container = pod["containers"][0]
            container["command"] = ["python", "-m", "deploy.cli.main", "agent"]
            kept = [one for one in container["env"] if one["name"] not in OTHERS]
            token = node.with_name("peer-secret")
            token.write_text("0123456789abcdef", encoding="utf-8")
            kept = [one for one in kept if one["name"] != PEERS] + (
                [{"name": PEERS, "value": str(token)}] if kafka else []
            )
            own = {
                "RELUME_DATA_DIR": str(node),
                "RELUME_ADMIN_HOST": "$(POD_IP)",
                "PYTHONPATH": os.pathsep.join((root, *filter(None, [os.environ.get("PYTHONPATH")]))),
            }
            own |= more or {}
            container["env"] = kept + [{"name": name, "value": value} for name, value in own.items()]
            pod["volumes"] = [one for one in pod["volumes"] if one["name"] != "secrets"]
            container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "secrets"]
        await here.api.apply(
            path_of(made, here.namespace), made, {"fieldManager": "tests", "fieldValidation": "Strict"}
        )
    here.kubelet.mounts.claims[WEIGHTS] = node / "weights"
    return node / "weights"


async def uninstall_agent(here: World) -> None:
    """The volume is the whole cluster's, so it does not go with the namespace."""
    await here.api.delete(KINDS["DaemonSet"].path(here.namespace, "relume-agent"))
    await here.api.delete(KINDS["PersistentVolume"].path("", f"{WEIGHTS}-{here.namespace}"))


__all__ = ["install_agent", "model", "parsed", "uninstall_agent"]
