"""An installation on the API server: applied by one field manager, told object by object, taken away again."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.packaging import (
    CLAIMS,
    KINDS,
    MANAGED,
    MONITORS,
    NAME,
    NAMESPACES,
    SECRETS,
    VERSION_NOTE,
    VOLUMES,
    Wanted,
    definition_objects,
    objects,
    path_of,
    secret_names,
)
from deploy.kubernetes.resources import Json, Resource
from events.units import Seconds

ESTABLISHED_WITHIN: Final = Seconds(30.0)
"""For a definition to be served: the API server takes one or two seconds."""
_OTHERS: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")


class NotInstalled(Exception):
    """It cannot be done; `remedy` says what to do first."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one object: created, changed, unchanged, kept, deleted, absent."""

    kind: str
    name: str
    outcome: str
    why: str = ""


class Installer:
    """`dry`: the API server checks everything and changes nothing."""

    def __init__(self, api: KubeApi, version: str, *, dry: bool) -> None:
        self._api = api
        self._version = version
        self._query = {"dryRun": "All"} if dry else {}
        self._dry = dry

    async def definitions(self) -> list[Outcome]:
        """Apply the definitions of our kinds; returns when the API server serves them. Raises NotInstalled, ApiError,
        ApiUnavailable."""
        found = definition_objects(self._version)
        for body in found:
            self._not_newer(body, await self._get(path_of(body, "")))
        told = [await self._apply(body, "") for body in found]
        if not self._dry:
            async with asyncio.timeout(ESTABLISHED_WITHIN):
                for body in found:
                    await self._established(path_of(body, ""))
        return told

    async def everything(self, wanted: Wanted, *, create_namespace: bool) -> list[Outcome]:
        """Apply all but the definitions. Secrets that are there are kept. Raises as `definitions`."""
        told = await self._namespace(wanted.namespace, create=create_namespace)
        for name, key in secret_names(wanted).items():
            told.append(await self._secret(wanted.namespace, name, key))
        fitted = replace(wanted, monitored=await self._knows(MONITORS))
        return told + [await self._apply(body, wanted.namespace) for body in objects(fitted)]

    async def _knows(self, resource: Resource) -> bool:
        """Whether the API server serves a kind."""
        served = await self._get(f"/apis/{resource.group}/{resource.version}")
        return served is not None and any(one["name"] == resource.plural for one in served["resources"])

    async def remove(self, wanted: Sequence[Wanted], *, data: bool, crds: bool) -> list[Outcome]:
        """Delete what `relume install` made, the last applied first. What others installed is kept, and told."""
        bodies = {path_of(body, one.namespace): body for one in wanted for body in objects(one)}
        for one in wanted:
            bodies |= {SECRETS.path(one.namespace, name): _named("Secret", name) for name in secret_names(one)}
        order = list(KINDS)
        told = []
        for path, body in sorted(bodies.items(), key=lambda pair: -order.index(pair[1]["kind"])):
            keeps = body["kind"] in (CLAIMS.kind, VOLUMES.kind) and not data
            keep = "data: the event log, or weights; --data deletes it" if keeps else ""
            told.append(await self._delete(path, body, keep))
        for body in definition_objects(self._version):
            keep = "" if crds else "with all objects of its kind; --crds deletes them"
            told.append(await self._delete(path_of(body, ""), body, keep))
        return [one for one in told if one.outcome != "absent"]

    async def _get(self, path: str) -> Json | None:
        try:
            return await self._api.get(path)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def _apply(self, body: Json, namespace: str) -> Outcome:
        path = path_of(body, namespace)
        before = await self._get(path)
        after = await self._api.apply(path, body, {"fieldValidation": "Strict", **self._query})
        word = "created" if before is None else "unchanged" if _content(before) == _content(after) else "changed"
        return Outcome(body["kind"], body["metadata"]["name"], word)

    async def _namespace(self, name: str, *, create: bool) -> list[Outcome]:
        try:
            there = await self._get(NAMESPACES.path("", name))
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return []  # who may not see namespaces may still work in one: the next call tells
        if there is not None:
            return []
        if not create or self._dry:
            raise NotInstalled(
                f"there is no namespace {name}", "--create-namespace, or kubectl create namespace " + name
            )
        await self._api.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return [Outcome("Namespace", name, "created")]

    async def _secret(self, namespace: str, name: str, key: str) -> Outcome:
        word = base64.b64encode(secrets.token_hex(32).encode()).decode()
        metadata = {"name": name, "labels": {MANAGED: NAME}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {key: word}}
        try:
            await self._api.create(SECRETS.path(namespace), body, self._query)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return Outcome("Secret", name, "kept")
        return Outcome("Secret", name, "created")

    async def _delete(self, path: str, body: Json, keep: str) -> Outcome:
        kind, name = body["kind"], body["metadata"]["name"]
        there = await self._get(path)
        if there is None:
            return Outcome(kind, name, "absent")
        metadata = there["metadata"]
        ours = metadata.get("labels", {}).get(MANAGED) == NAME or VERSION_NOTE in metadata.get("annotations", {})
        if not ours:
            return Outcome(kind, name, "kept", "relume install did not make it")
        if keep:
            return Outcome(kind, name, "kept", keep)
        if not self._dry:
            await self._api.delete(path, uid=metadata["uid"])
        return Outcome(kind, name, "deleted")

    async def _established(self, path: str) -> None:
        while not established(await self._api.get(path)):  # noqa: ASYNC110 - the API server does it; a deadline stands above
            await asyncio.sleep(0.1)

    def _not_newer(self, body: Json, there: Json | None) -> None:
        """A definition of a newer relume stays: taking fields back would drop them from objects."""
        if there is None:
            return
        noted = there["metadata"].get("annotations", {}).get(VERSION_NOTE, "")
        lost = {one["name"] for one in there["spec"]["versions"]} - {one["name"] for one in body["spec"]["versions"]}
        if lost or _number(noted) > _number(self._version):
            by = f"relume {noted}" if noted else f"a relume that serves {', '.join(sorted(lost))}"
            raise NotInstalled(
                f"the definition {body['metadata']['name']} is of {by}, which is newer than this one ({self._version})",
                "upgrade this relume, or leave definitions alone with --without-crds",
            )


def established(definition: Json) -> bool:
    """Whether the API server serves a definition."""
    conditions = definition.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def same_definition(there: Json, ours: Json) -> bool:
    """Whether a definition on the API server says what ours says, whatever the server added."""
    return all(_within(ours["spec"][field], there["spec"].get(field)) for field in ("versions", "names", "scope"))


def _within(ours: object, there: object) -> bool:
    """Whether all of `ours` stands in `there`; lists are the same throughout."""
    if isinstance(ours, Mapping) and isinstance(there, Mapping):
        return all(_within(value, there.get(key)) for key, value in ours.items())
    if isinstance(ours, list) and isinstance(there, list):
        return len(ours) == len(there) and all(_within(*pair) for pair in zip(ours, there, strict=True))
    return ours == there


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _named(kind: str, name: str) -> Json:
    return {"kind": kind, "metadata": {"name": name}}


def _content(body: Json) -> Mapping[str, Any]:
    metadata = {key: value for key, value in body["metadata"].items() if key not in _OTHERS}
    return {**body, "metadata": metadata, "status": None}
