"""What a kubelet of the tests gives a container: folders that stand for its volumes, its account, and what its
environment takes from Secrets and ConfigMaps."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.resources import Json, Resource

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SHARED: Final = ("/tmp",)
LASTS: Final = 3600


class Missing(Exception):
    """Something that a container needs is not there; a kubelet waits for it, and says so."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class Mounts:
    """What kubelets of the tests can mount. Use `of`."""

    claims: dict[str, Path] = field(default_factory=dict)
    """The folders that stand for volume claims, on every node."""
    kubeconfig: Callable[[str, str], Path] | None = None
    """A file of an account's name and token; None: pods that mount Secrets do not start, as if there were none."""

    def waits(self, pod: Json) -> bool:
        """Whether something that the pod mounts is missing."""
        return self.kubeconfig is None and any(_secrets(one) for one in pod["spec"].get("volumes", []))

    async def of(self, pod: Json, folder: Path, api: KubeApi) -> PodMounts:
        """What one pod is given: its own folders are made, its Secrets read. Raises Missing."""
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
            for source in _secrets(volume):
                await _write(source, places[name], namespace, api)
        container = pod["spec"]["containers"][0]
        mounts = {
            one["mountPath"]: places[one["name"]] / one.get("subPath", "")
            for one in container.get("volumeMounts", [])
            if one["name"] in places and one["mountPath"] not in SHARED
        }
        return PodMounts(mounts, await self._account(pod, api), await _values(container, namespace, api))

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
    """Paths in a container, as they are here. `environment`: what it has beside what its manifest says. `values`: what
    ``envFrom`` gives it, which its manifest's own values go before."""

    places: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    def mapped(self, text: str) -> str:
        """A word of the command line, or a value."""
        if not self.places:
            return text
        longest_first = sorted(self.places, key=len, reverse=True)
        paths = "|".join(map(re.escape, longest_first))
        return re.sub(rf"(?<![\w./-])(?:{paths})(?![\w.-])", lambda found: str(self.places[found[0]]), text)


def _secrets(volume: Json) -> list[Json]:
    """The Secrets of a volume, as it names them."""
    parts = volume.get("projected", {}).get("sources", [])
    whole = [volume["secret"]] if "secret" in volume else []
    return [*(part["secret"] for part in parts if "secret" in part), *whole]


async def _write(source: Json, place: Path, namespace: str, api: KubeApi) -> None:
    """A Secret's keys as files: those that are named, or all."""
    found = await _data(SECRETS, source.get("name") or source["secretName"], source, namespace, api)
    items: list[dict[str, Any]] = source.get("items") or [{"key": key, "path": key} for key in found]
    for item in items:
        if item["key"] not in found and not source.get("optional"):
            raise Missing("ContainerCreating", f"references non-existent secret key: {item['key']}")
        if item["key"] in found:
            file = place / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(found[item["key"]])


async def _values(container: Json, namespace: str, api: KubeApi) -> dict[str, str]:
    """What ``envFrom`` gives; of two with one name the later."""
    made: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for word, resource in (("secretRef", SECRETS), ("configMapRef", CONFIG_MAPS)):
            if word in source:
                try:
                    found = await _data(resource, source[word]["name"], source[word], namespace, api)
                except Missing as missing:
                    raise Missing("CreateContainerConfigError", str(missing)) from None
                made |= {source.get("prefix", "") + key: value.decode() for key, value in found.items()}
    return made


async def _data(resource: Resource, name: str, source: Json, namespace: str, api: KubeApi) -> dict[str, bytes]:
    """What an object holds, by key; nothing of one that is missing and may be."""
    try:
        found = await api.get(resource.path(namespace, name))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        if source.get("optional"):
            return {}
        raise Missing("ContainerCreating", f'{resource.kind.lower()} "{name}" not found') from None
    data = found.get("data", {})
    return {key: base64.b64decode(value) if resource is SECRETS else value.encode() for key, value in data.items()}
