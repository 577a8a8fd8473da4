"""What is wrong with an installation, and what to do about it: each check a name, a state, a finding, a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from deploy.kubernetes import hami
from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.devices import DRIVER, SLICES, devices_in
from deploy.kubernetes.nodes import GPU, mig_profile
from deploy.kubernetes.packaging import DAEMON_SETS, NAMESPACES, Right, called, definition_objects, path_of, rights
from deploy.kubernetes.packaging_apply import established, same_definition
from deploy.kubernetes.quantities import read_quantity
from deploy.kubernetes.quotas import applies, limits_of, unnamed
from deploy.kubernetes.resources import DEPLOYMENTS, NODES, RESOURCE_QUOTAS, VERSION, Json

LEAST_MINOR: Final = 30
"""Kubernetes 1.30: a preStop hook can sleep by itself since then, and rules in CEL are stable (its release notes)."""
COMPONENTS: Final = ("up", "gateway", "autoscaler", "cluster")
AT_ONCE: Final = 8
"""Questions to the API server at a time (client-go's own burst is 10)."""
_ASKING: Final = "/apis/authorization.k8s.io/v1"
_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

INSTALLING: Final = (
    Right("apiextensions.k8s.io", "customresourcedefinitions", "patch", ""),
    Right("apiextensions.k8s.io", "customresourcedefinitions", "create", ""),
    Right("rbac.authorization.k8s.io", "clusterroles", "patch", ""),
    Right("rbac.authorization.k8s.io", "clusterrolebindings", "patch", ""),
)
"""What `relume install` needs of the whole cluster."""


class State(StrEnum):
    """What became of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    state: State
    told: str
    remedy: str = ""


class Doctor:
    """Looks at one namespace; changes nothing. `name`: what the installation is called (Helm's release)."""

    def __init__(self, api: KubeApi, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def look(self) -> list[Check]:
        """All that the API server can tell. Raises ApiUnavailable."""
        checks = [await self._version(), *await self._definitions()]
        found = await self._deployments()
        checks += found.checks
        for component in found.components:
            checks.append(await self._rights(component))
        if not found.components:
            checks.append(await self._may_install())
        return [*checks, await self._gpus(), *await self._quotas()]

    async def _version(self) -> Check:
        said = await self._api.get("/version")
        told = f"Kubernetes {said['gitVersion']}"
        minor = "".join(letter for letter in str(said["minor"]) if letter.isdigit())
        if (int(said["major"]), int(minor)) < (1, LEAST_MINOR):
            return Check("API server", State.FAILED, told, f"upgrade it to 1.{LEAST_MINOR} or newer")
        return Check("API server", State.OK, told)

    async def _definitions(self) -> list[Check]:
        return [await self._definition(ours) for ours in definition_objects("")]

    async def _definition(self, ours: Json) -> Check:
        name = ours["metadata"]["name"]
        install = "relume install --only-crds"
        try:
            there = await self._api.get(path_of(ours, ""))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return Check(name, State.FAILED, "the definition is missing", install)
            return _refused(name, error)
        served = [one["name"] for one in there["spec"]["versions"] if one["served"]]
        if VERSION not in served:
            told = f"it serves {', '.join(served)} and not {VERSION}"
            return Check(name, State.FAILED, told, f"{install}, or the relume that belongs to it")
        if not established(there):
            return Check(name, State.FAILED, "it is not established", f"kubectl describe crd {name}")
        if not same_definition(there, ours):
            return Check(name, State.WARNING, f"{VERSION} differs from what this relume brings", install)
        return Check(name, State.OK, f"{VERSION} is served")

    async def _deployments(self) -> _Found:
        try:
            await self._api.get(NAMESPACES.path("", self._namespace))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                remedy = "relume install --create-namespace"
                return _Found((), [Check("namespace", State.FAILED, f"there is no {self._namespace}", remedy)])
        components, checks = [], []
        for component in COMPONENTS:
            name = called(component, self._name)
            try:
                there = await self._api.get(DEPLOYMENTS.path(self._namespace, name))
            except ApiError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    continue
                # Relume's own account may list Deployments only, and need not get them.
                return _Found((await self._own_component() or "up",), [_refused("processes", error, State.SKIPPED)])
            components.append(component)
            checks.append(self._running(name, there))
        checks += await self._agents()
        if not components:
            told = f"there is none called {self._name} in {self._namespace}"
            checks.append(Check("processes", State.FAILED, told, "relume install, or --name RELEASE"))
        return _Found(tuple(components), checks)

    async def _agents(self) -> list[Check]:
        """The agents of nodes, where there are any."""
        name = called("agent", self._name)
        try:
            there = await self._api.get(DAEMON_SETS.path(self._namespace, name))
        except ApiError as error:
            return [] if error.status == HTTPStatus.NOT_FOUND else [_refused(name, error, State.SKIPPED)]
        status = there.get("status", {})
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        told = f"{ready} of {wanted} ready"
        if ready < wanted:
            remedy = f"kubectl -n {self._namespace} describe daemonset,pod -l app.kubernetes.io/component=agent"
            return [Check(name, State.FAILED, told, remedy)]
        return [Check(name, State.OK, told)]

    def _running(self, name: str, there: Json) -> Check:
        wanted, available = there["spec"]["replicas"], there.get("status", {}).get("availableReplicas", 0)
        told = f"{available} of {wanted} available"
        if available < wanted:
            remedy = f"kubectl -n {self._namespace} describe deployment,pod -l app.kubernetes.io/instance={self._name}"
            return Check(name, State.FAILED, told, remedy)
        return Check(name, State.OK, told)

    async def _own_component(self) -> str:
        """Which component's account asks; empty for others."""
        user = await self._user()
        return next((one for one in COMPONENTS if user == self._account(one)), "")

    def _account(self, component: str) -> str:
        return f"system:serviceaccount:{self._namespace}:{called(component, self._name)}"

    async def _user(self) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        said = await self._api.create(_WHO, body)
        return str(said["status"]["userInfo"]["username"])

    async def _rights(self, component: str) -> Check:
        """Each verb of a component: asked for ourselves when we are its account, else for it."""
        wanted = rights(component, self._namespace)
        name = f"rights of {called(component, self._name)}"
        if not wanted:
            return Check(name, State.OK, "it needs none: it speaks with the event log alone")
        user = "" if await self._user() == self._account(component) else self._account(component)
        try:
            missing = await self._missing(wanted, user)
        except ApiError as error:
            return _refused(name, error, State.SKIPPED)
        if missing:
            told = f"it may not {'; '.join(map(str, missing))}"
            return Check(name, State.FAILED, told, "relume install, or the chart with rbac.create=true")
        return Check(name, State.OK, f"all {len(wanted)} verbs that it uses")

    async def _may_install(self) -> Check:
        missing = await self._missing(INSTALLING, "")
        if missing:
            told = f"you may not {'; '.join(map(str, missing))}"
            return Check("your rights", State.FAILED, told, "ask an administrator to run relume install")
        return Check("your rights", State.OK, "you may install")

    async def _missing(self, wanted: Sequence[Right], user: str) -> list[Right]:
        async def asked(right: Right) -> bool:
            async with self._turns:
                return await self._allowed(right, user)

        allowed = await asyncio.gather(*map(asked, wanted))
        return [right for right, yes in zip(wanted, allowed, strict=True) if not yes]

    async def _allowed(self, right: Right, user: str) -> bool:
        resource, _, part = right.resource.partition("/")
        attributes = {"group": right.group, "resource": resource, "verb": right.verb, "subresource": part,
                      "namespace": right.namespace}  # fmt: skip
        spec: dict[str, Any] = {"resourceAttributes": attributes}
        kind = "SelfSubjectAccessReview"
        if user:
            kind = "SubjectAccessReview"
            spec |= {"user": user, "groups": ["system:serviceaccounts", f"system:serviceaccounts:{self._namespace}",
                                              "system:authenticated"]}  # fmt: skip
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        said = await self._api.create(f"{_ASKING}/{kind.lower()}s", body)
        return bool(said["status"]["allowed"])

    async def _quotas(self) -> list[Check]:
        """What quotas of the namespace leave; none is no finding."""
        try:
            quotas = (await self._api.get(RESOURCE_QUOTAS.path(self._namespace)))["items"]
        except ApiError as error:
            return [_refused("quotas", error, State.SKIPPED)]
        return [quota_check(quota, self._namespace) for quota in quotas]

    async def _claimable(self) -> dict[str, int]:
        """GPUs that a driver publishes one by one, where that is served."""
        try:
            found = (await self._api.get(SLICES.path()))["items"]
        except ApiError:
            return {}
        count = sum(len(devices_in(one)) for one in found)
        return {f"by {DRIVER}": count} if count else {}

    async def _gpus(self) -> Check:
        try:
            nodes = (await self._api.get(NODES.path()))["items"]
        except ApiError as error:
            return _refused("GPUs", error, State.SKIPPED)
        sums = await self._claimable()
        for node in nodes:
            shared = hami.cards_in(node["metadata"].get("annotations", {}))
            if shared is not None:
                sums["shared by HAMi"] = sums.get("shared by HAMi", 0) + len(shared)
                continue
            for resource, amount in node.get("status", {}).get("allocatable", {}).items():
                if resource == GPU or mig_profile(resource):
                    sums[resource] = sums.get(resource, 0) + int(read_quantity(amount))
        told = ", ".join(f"{count} {resource}" for resource, count in sorted(sums.items()) if count)
        if not told:
            remedy = "install the GPU operator, the device plugin or a driver for ResourceClaims, if models need GPUs"
            return Check("GPUs", State.WARNING, f"no node of {len(nodes)} offers any", remedy)
        return Check("GPUs", State.OK, f"{told} on {counted(len(nodes))}")


def quota_check(quota: Json, namespace: str) -> Check:
    """Whether a quota leaves anything, and whether relume knows it before it asks."""
    name = f"quota {quota['metadata']['name']}"
    look = f"kubectl -n {namespace} describe {name}"
    if missing := unnamed(quota):
        told = f"it counts {', '.join(missing)}, which pods of models do not name: they are refused"
        return Check(name, State.WARNING, told, "add a LimitRange with a default for it, or take it out of the quota")
    if not applies(quota):
        told = "it has scopes that relume does not judge: what it refuses is a failed start"
        return Check(name, State.WARNING, told, look)
    limits = limits_of([quota], [], [])
    spent = [one.resource for one in limits if not one.most]
    if spent:
        told = f"nothing is left of {', '.join(spent)}"
        return Check(name, State.WARNING, told, f"{look}; raise it, or end something")
    left = ", ".join(f"{one.most:g} {one.resource}" for one in limits)
    return Check(name, State.OK, f"{left or 'nothing that models take'} left")


@dataclass(frozen=True, slots=True)
class _Found:
    components: Sequence[str]
    checks: list[Check]


def _refused(name: str, error: ApiError, state: State = State.FAILED) -> Check:
    return Check(name, state, str(error), "ask as someone who may, or run relume doctor in relume's own pod")


def as_json(check: Check) -> Mapping[str, str]:
    """For programs."""
    return {"name": check.name, "state": check.state.value, "told": check.told, "remedy": check.remedy}


def counted(nodes: int) -> str:
    """``1 node``, ``3 nodes``."""
    return "1 node" if nodes == 1 else f"{nodes} nodes"
