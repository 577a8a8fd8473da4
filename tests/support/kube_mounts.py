"""What a kubelet of the tests mounts into a container: folders that stand for its volumes, and its account."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.resources import Json, Resource

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SHARED: Final = ("/tmp",)
LASTS: Final = 3600


@dataclass
class Mounts:
    """What kubelets of the tests can mount. Use `of`."""

    claims: dict[str, Path] = field(default_factory=dict)
    """The folders that stand for volume claims, on every node."""
    kubeconfig: Callable[[str, str], Path] | None = None
    """Makes a file of an account's name and token; None: pods with Secrets do not start, as if one were missing."""

    def waits(self, pod: Json) -> bool:
        """Whether something that the pod mounts is missing."""
        return self.kubeconfig is None and any(_secrets(one) for one in pod["spec"].get("volumes", []))

    async def of(self, pod: Json, folder: Path, api: KubeApi) -> PodMounts:
        """What one pod is given: its own folders are made, its Secrets read."""
        places: dict[str, Path] = {}
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes", []):
            name = volume["name"]
            if "persistentVolumeClaim" in volume:
                claim = self.claims.get(volume["persistentVolumeClaim"]["claimName"])
                places |= {} if claim is None else {name: claim}
            elif "emptyDir" in volume or _secrets(volume):
                places[name] = folder / f"volume-{name}"
                places[name].mkdir(parents=True, exist_ok=True)
            for secret, items in _secrets(volume):
                found = await api.get(SECRETS.path(namespace, secret))
                for item in items:
                    content = base64.b64decode(found["data"][item["key"]])
                    (places[name] / item["path"]).write_bytes(content)
        mounts = {
            one["mountPath"]: places[one["name"]] / one.get("subPath", "")
            for one in pod["spec"]["containers"][0].get("volumeMounts", [])
            if one["name"] in places and one["mountPath"] not in SHARED
        }
        return PodMounts(mounts, await self._account(pod, api))

    async def _account(self, pod: Json, api: KubeApi) -> dict[str, str]:
        """How a process that has no file system of its own finds its account's token."""
        account = pod["spec"].get("serviceAccountName", "default")
        if self.kubeconfig is None or account == "default" or not pod["spec"].get("automountServiceAccountToken", True):
            return {}
        namespace = pod["metadata"]["namespace"]
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": LASTS}}
        told = await api.create(ACCOUNTS.path(namespace, account, "token"), asked)
        path = self.kubeconfig(f"{namespace}-{account}-{pod['metadata']['uid'][:8]}", told["status"]["token"])
        return {"RELUME_KUBECONFIG": str(path)}


@dataclass(frozen=True)
class PodMounts:
    """Paths in a container, as they are here. `environment`: what it has beside what its manifest says."""

    places: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def mapped(self, text: str) -> str:
        """A word of the command line, or a value."""
        if not self.places:
            return text
        longest_first = sorted(self.places, key=len, reverse=True)
        paths = "|".join(map(re.escape, longest_first))
        return re.sub(rf"(?<![\w./-])(?:{paths})(?![\w.-])", lambda found: str(self.places[found[0]]), text)


def _secrets(volume: Json) -> list[tuple[str, list[dict[str, Any]]]]:
    """The Secrets of a volume, and what of them is mounted where."""
    parts = volume.get("projected", {}).get("sources", [])
    found = [part["secret"] for part in parts if "secret" in part]
    whole = [volume["secret"]] if "secret" in volume else []
    return [(one.get("name") or one["secretName"], one.get("items", [])) for one in (*found, *whole)]
