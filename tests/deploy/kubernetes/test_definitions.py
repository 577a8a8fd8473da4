"""The CustomResourceDefinitions on a real API server: the same documents as on one machine, refused for the same."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deploy.kubernetes.api import ApiError, KubeApi, connect
from deploy.kubernetes.declaring import document
from deploy.kubernetes.gpu_pools import document as pool_document
from deploy.kubernetes.resources import GPU_POOLS, MODELS, Json, Resource
from deploy.spec.check import check, check_as
from deploy.spec.declare import written_spec
from deploy.spec.declare_pool import written_pool
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.problem import SpecRefused
from tests.support.bad_specs import ROWS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import NAMESPACES
from tests.support.specs import (
    Document,
    full,
    full_pool,
    full_training,
    put,
    smallest,
    smallest_pool,
    smallest_training,
)

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

TRAININGS = Resource("relume.dev", "v1alpha1", "trainingjobs", "TrainingJob")
STRICT = {"fieldValidation": "Strict"}
DRY = STRICT | {"dryRun": "All"}
_numbers = itertools.count(1)

POD = {"image": "vllm/vllm-openai:v0.21.0", "port": 9000, "nodeSelector": {"pool": "gpu"},
       "mounts": [{"path": "/dev/shm", "memory": "2Gi"}, {"path": "/weights", "claim": "llama", "readOnly": True}],
       "tolerations": [{"key": "spot", "operator": "Exists"}]}  # fmt: skip


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[KubeApi]:
    """The API server, as its administrator."""
    made = await connect(plane.kubeconfig)
    yield made
    await made.close()


@pytest.fixture
async def space(api: KubeApi) -> AsyncIterator[str]:
    """A namespace of the test's own."""
    name = f"definitions-{os.getpid()}-{next(_numbers)}"
    await api.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await api.delete(NAMESPACES.path("", name))


async def refusal(api: KubeApi, space: str, body: Document, resource: Resource = MODELS) -> str:
    """Why the API server refuses a document, as kubectl would ask; empty when it does not."""
    try:
        await api.create(resource.path(space), body, DRY)
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return error.message
    return ""


QUERY = {"query": "sum(up)", "target": 2}
SCALINGS: dict[str, dict[str, Any]] = {
    "a policy of one's own": {"policy": "my_policies.batch:decide"},
    "another policy": {"policy": "kpa", "policyOptions": {"targetUtilisation": 0.5}},
    "a query without a name": {"signals": [{"prometheus": QUERY}]},
    "a query with a name": {"signals": [{"name": "queue", "prometheus": {**QUERY, "series": "sum"}}]},
    "a lag without a name": {"signals": [{"kafkaLag": {"group": "g"}}]},
    "what engines tell": {"signals": [{"engine": {"metric": "kvCacheUse", "target": 0.8}}]},
    "a number that is told": {"signals": [{"name": "queue", "target": 3, "activation": 1}]},
    "a price": {"coldStartCost": "10m", "mode": "recommend"},
    "a schedule": {"schedules": [{"cron": "0 8 * * MON-FRI", "minReplicas": 1, "duration": "1d"}]},
}


@pytest.mark.parametrize(
    "body",
    [
        smallest(), full(), put(smallest(), "spec.pod", POD),
        *(put(smallest(), "spec.scaling", scaling) for scaling in SCALINGS.values()),
    ],
    ids=["smallest", "full", "with a pod", *SCALINGS],
)  # fmt: skip
async def test_a_document_is_the_same_declaration_in_both_places(api: KubeApi, space: str, body: Document) -> None:
    """What the API server stores of a document, with the defaults it filled in, declares what the file declares."""
    assert await refusal(api, space, body) == ""
    stored = await api.create(MODELS.path(space), body, STRICT)
    assert stored["spec"]["slots"] == body["spec"].get("slots", 4)
    assert written_spec(check_as(Model, document(stored))) == written_spec(check_as(Model, body))


@pytest.mark.parametrize("body", [smallest_training(), full_training()], ids=["smallest", "full"])
async def test_training_jobs_are_taken(api: KubeApi, space: str, body: Document) -> None:
    """Documents of training jobs are stored as they are written."""
    assert await refusal(api, space, body, TRAININGS) == ""


@pytest.mark.parametrize("body", [smallest_pool(), full_pool()], ids=["smallest", "full"])
async def test_a_pool_is_the_same_declaration_in_both_places(api: KubeApi, space: str, body: Document) -> None:
    """As with models, also when it has no spec at all."""
    stored = await api.create(GPU_POOLS.path(space), body, STRICT)
    assert written_pool(check_as(GpuPool, pool_document(stored))) == written_pool(check_as(GpuPool, body))


async def test_a_rule_of_pools_is_told(api: KubeApi, space: str) -> None:
    """The one between two fields, and a bound."""
    body = put(smallest_pool(), "spec.settling", {"first": "1h", "longest": "5m"})
    assert "first is longer than longest" in await refusal(api, space, body, GPU_POOLS)
    assert "wholeCards" in await refusal(api, space, put(smallest_pool(), "spec.reserve.wholeCards", 1.5), GPU_POOLS)


ONLY_HERE = {"no-such-field"}
"""spec.replicas: no field of a file, and a person's number on Kubernetes."""


async def test_what_is_refused_on_one_machine_is_refused_here(api: KubeApi, space: str) -> None:
    """Each bad value is refused by the API server at once or, where it cannot know, by the adapter's check of what it
    stores; and the API server knows most of them."""
    late = []
    for name, (path, value, *_) in ROWS.items():
        body = put(full(), path, value)
        if path.startswith(("apiVersion", "kind", "metadata")) or name in ONLY_HERE:
            continue
        if await refusal(api, space, body):
            continue
        with pytest.raises(SpecRefused):
            check(body)
        late.append(name)
    assert len(late) <= len(ROWS) / 4, late


async def refused_with(api: KubeApi, space: str, changes: dict[str, Any], base: Document | None = None) -> str:
    """Why the document with these changes is refused."""
    body = smallest() if base is None else base
    for path, value in changes.items():
        body = put(body, path, value)
    return await refusal(api, space, body)


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "bounds": ({"spec.scaling": {"minReplicas": 3, "maxReplicas": 2}}, "minReplicas is above maxReplicas"),
    "target": ({"spec.scaling.target": 9, "spec.slots": 4}, "target is above slots"),
    "policy": ({"spec.scaling.policy": "best"}, "there is no policy of this name; write relume"),
    "windows": ({"spec.scaling": {"panicWindow": "2m", "stableWindow": "1m"}}, "panicWindow is longer"),
    "idle life": ({"spec.scaling": {"keepAlive": "7m", "coldStartCost": "5m"}}, "leave one out"),
    "schedule": (
        {"spec.scaling.schedules": [{"cron": "0 8 * * *", "duration": "1h", "minReplicas": 9}]},
        "a schedule wants more",
    ),
    "gpus": ({"spec.resources": {"gpus": 1, "gpuFraction": 0.5}}, "given together; keep one"),
    "weights": ({"spec.engine.type": "llamacpp"}, "add weights"),
    "budgets": ({"spec.timeouts": {"firstByte": "20m", "total": "10m"}}, "firstByte is longer than timeouts.total"),
    "promises": ({"spec.slo.latency": {"p50": "9s", "p95": "3s"}}, "p50 is longer than p95"),
    "own name": ({"spec.aliases": ["a", "echo"]}, "an alias is the model's own name"),
    "twice": ({"spec.aliases": ["a", "a"]}, "Duplicate value"),
    "signal": ({"spec.scaling.signals": [{"target": 3}]}, "a signal needs a name"),
    "mount": ({"spec.pod": {"image": "a", "mounts": [{"path": "/x"}]}}, "a mount has one source"),
    "both": ({"spec.pod": {"image": "a"}, "spec.scaleTargetRef": {"name": "llama"}}, "keep one"),
    "name": ({"metadata.name": "a.b"}, "metadata.name is not a DNS label"),
    "unknown": ({"spec.scaling.maxReplica": 3}, 'unknown field "spec.scaling.maxReplica"'),
    "form": ({"spec.scaling.keepAlive": "soon"}, "spec.scaling.keepAlive"),
}


@pytest.mark.parametrize(("changes", "told"), RULES.values(), ids=RULES)
async def test_rules_between_fields_are_told(
    api: KubeApi, space: str, changes: dict[str, Any], told: str
) -> None:  # fmt: skip
    """A document that breaks a rule is refused when it is written, with the rule and the remedy."""
    assert told in await refused_with(api, space, changes)


async def test_a_budget_that_nobody_wrote_breaks_no_rule(api: KubeApi, space: str) -> None:
    """A short total alone is allowed, as in a file: the default of firstByte is longer, and no person's words."""
    assert await refused_with(api, space, {"spec.timeouts": {"total": "30s"}}) == ""
    assert (
        await refused_with(api, space, {"spec.timeouts": {"firstByte": "1d", "total": "2d"}}) == ""
    )  # CEL has no days


TRAINING_RULES: dict[str, tuple[dict[str, Any], str]] = {
    "members": ({"spec.elasticity": {"minMembers": 3}, "spec.members": 2}, "minMembers is above members"),
    "timeouts": ({"spec.checkpoint": {"ackTimeout": "3m", "saveTimeout": "1m"}}, "ackTimeout is longer"),
    "channel": ({"spec.checkpoint": {"signal": "SIGUSR2", "channels": ["file"]}}, "no channel sends it"),
}


@pytest.mark.parametrize(("changes", "told"), TRAINING_RULES.values(), ids=TRAINING_RULES)
async def test_rules_of_training_jobs_are_told(
    api: KubeApi, space: str, changes: dict[str, Any], told: str
) -> None:  # fmt: skip
    """The same for training jobs."""
    body = smallest_training()
    for path, value in changes.items():
        body = put(body, path, value)
    assert told in await refusal(api, space, body, TRAININGS)


async def test_a_model_has_a_scale(api: KubeApi, space: str) -> None:
    """`kubectl scale` writes the floor below which relume does not go; a floor above the bound is refused."""
    await api.create(MODELS.path(space), put(smallest(), "spec.scaling.maxReplicas", 3), STRICT)
    scale: Json = await api.get(MODELS.path(space, "echo", "scale"))
    assert scale["spec"].get("replicas", 0) == 0
    await api.merge(MODELS.path(space, "echo", "scale"), {"spec": {"replicas": 3}})
    assert (await api.get(MODELS.path(space, "echo")))["spec"]["scaling"]["minReplicas"] == 3
    with pytest.raises(ApiError, match="minReplicas is above maxReplicas"):
        await api.merge(MODELS.path(space, "echo", "scale"), {"spec": {"replicas": 4}})


async def test_people_find_it_by_short_names(api: KubeApi) -> None:
    """kubectl knows the short names, the category, and what to show in a table."""
    (models,) = [one for one in (await api.get("/apis/relume.dev/v1alpha1"))["resources"] if one["name"] == "models"]
    assert (models["shortNames"], models["categories"], models["singularName"]) == (["rmodel"], ["relume"], "model")
