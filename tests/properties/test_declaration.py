"""No dead knob: whatever field of a declaration changes, something resolved changes with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from deploy.spec.check import check_as
from deploy.spec.declare import declare as declared_by
from deploy.spec.declare import document_of, model_of
from deploy.spec.model import Model
from deploy.spec.problem import SpecRefused
from tests.support.specs import full, leaves, put

OTHER: dict[str, object] = {
    "metadata.name": "other", "metadata.labels.team": "ads", "metadata.annotations.relume.dev/note": "changed",
    "spec.engine.options.contextPerSlot": 8192, "spec.engine.options.threads": 3,
    "spec.weights.uri": "/models/other.gguf", "spec.weights.digest": f"sha256:{'2' * 64}",
    "spec.weights.include": ["*"], "spec.weights.exclude": ["older/"], "spec.weights.credentials": "none",
    "spec.weights.headers.X-Team": "env:TEAM", "spec.weights.endpoint": "https://store", "spec.weights.region": "there",
    "spec.weights.cache": False, "spec.weights.adapters": [{"name": "sql", "uri": "hf://org/sql-lora"}],
    "spec.resources.gpus": 2, "spec.resources.cpu": 3,
    "spec.resources.memory": "8Gi", "spec.priority": 3, "spec.slots": 7, "spec.batching.rule": "aimd-gpu",
    "spec.batching.window": "40ms", "spec.batching.maxSize": 17, "spec.batching.latency": "3s",
    "spec.scaling.minReplicas": 2,
    "spec.scaling.maxReplicas": 6, "spec.scaling.target": 5, "spec.scaling.keepAlive": "8m",
    "spec.scaling.stableWindow": "91s", "spec.scaling.panicWindow": "8s",
    "spec.scaling.policyOptions.panicThreshold": 3.0, "spec.scaling.mode": "auto",
    "spec.scaling.schedules": [{"cron": "0 9 * * *", "minReplicas": 3, "duration": "1h"}],
    "spec.scaling.signals": [{"name": "queue", "target": 4}], "spec.coldStart.sla": "5s",
    "spec.coldStart.hold.maxRequests": 501, "spec.coldStart.hold.maxBytes": "33Mi",
    "spec.coldStart.hold.maxWait": "4m", "spec.coldStart.heartbeat": "7s", "spec.timeouts.firstByte": "51s",
    "spec.timeouts.idle": "71s", "spec.timeouts.total": "9m", "spec.slo.timeToFirstToken.p50": "1500ms",
    "spec.slo.timeToFirstToken.p95": "2500ms", "spec.slo.timeToFirstToken.p99": "3500ms",
    "spec.slo.latency.p50": "11s", "spec.slo.latency.p95": "21s", "spec.slo.latency.p99": "31s",
    "spec.slo.availability": 99.5, "spec.aliases": ["org/full"],
}  # fmt: skip
"""Another right value for each leaf of the full document."""

ONLY_ONE = {"apiVersion", "kind", "spec.scaling.policy", "spec.engine.type"}
"""Leaves with one right value, or whose change changes which other fields there are (tested by themselves)."""


def _put(path: str, value: object) -> dict[str, object]:
    if path.startswith("metadata.annotations."):
        return put(full(), "metadata.annotations", {path.removeprefix("metadata.annotations."): value})
    return put(full(), path, value)


def test_the_table_names_every_leaf() -> None:
    """A new field needs a line here, and so a meaning."""
    assert set(leaves(full())) == set(OTHER) | ONLY_ONE


def test_the_full_document_says_everything() -> None:
    """The full document has every field that there is, except those that exclude each other."""
    model = check_as(Model, full())
    left_out = {
        f"{type(part).__name__}.{name}"
        for part in _parts(model)
        for name in type(part).model_fields
        if name not in part.model_fields_set
    }
    kubernetes = {"ModelSpec.pod", "ModelSpec.scale_target_ref"}  # in no policy: deploy/kubernetes reads them
    assert left_out - kubernetes == {
        "ResourcesSpec.gpu_fraction", "ResourcesSpec.gpu_memory", "ResourcesSpec.mig_profile",
        "ScalingSpec.cold_start_cost",
        "ColdStartSpec.sleep",  # llama.cpp with a GPU cannot
    }  # fmt: skip


def _parts(model: object) -> list[object]:
    inner = [value for value in vars(model).values() if isinstance(value, BaseModel)]
    return [model, *(part for value in inner for part in _parts(value))]


@pytest.mark.parametrize("path", sorted(OTHER))
def test_no_knob_is_dead(path: str) -> None:
    """Another value of this field resolves to another policy."""
    assert check_as(Model, _put(path, OTHER[path])).resolve() != check_as(Model, full()).resolve()


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.resources", {"gpuFraction": 0.5}), ("spec.resources", {"gpuMemory": "20Gi"}),
     ("spec.resources", {"migProfile": "1g.10gb"}), ("spec.engine", {"type": "simulated"})],
)  # fmt: skip
def test_what_excludes_other_fields_is_not_dead_either(path: str, value: object) -> None:
    """A part of a GPU, bytes of one, a MIG profile and another engine resolve to something else."""
    assert check_as(Model, put(full(), path, value)).resolve() != check_as(Model, full()).resolve()


@given(st.lists(st.sampled_from(sorted(OTHER)), min_size=1, max_size=6, unique=True))
def test_any_change_is_declared_and_reads_back(paths: list[str]) -> None:
    """Any mixture of changes that is accepted is a new generation, and reads back as the same policy."""
    document = full()
    for path in paths:
        if path.startswith("metadata.annotations."):
            document["metadata"]["annotations"] = {"relume.dev/note": OTHER[path]}
        elif path != "metadata.name":
            document = put(document, path, OTHER[path])
    model = _checked(document)
    if model is None:  # such as more replicas at least than at most
        return
    first = declared_by(None, full(), "uid-1")
    second = declared_by(first, model, "uid-2")
    assert second.generation == (1 if paths == ["metadata.name"] else 2)
    assert model_of(second).resolve() == model.resolve()
    assert check_as(Model, document_of(second)) == model


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                    max_leaves=8),
       st.sampled_from(sorted(leaves(full()))))  # fmt: skip
def test_no_value_anywhere_is_a_crash(value: object, path: str) -> None:
    """Whatever stands in a field, the answer is a model or problems in words."""
    document = put(full(), path, value) if not path.startswith("metadata.annotations.") else full()
    _checked(document)


def _checked(document: dict[str, object]) -> Model | None:
    """The model, or None when it was refused: in words."""
    try:
        return check_as(Model, document)
    except SpecRefused as error:
        refused = error
    assert refused.problems
    assert all(problem.rule and problem.remedy and str(problem) for problem in refused.problems)
    return None


def test_each_field_of_a_sleep_changes_something() -> None:
    """Level and keep-alive of a sleep resolve to policies of their own."""
    sleeps = [{}, {"level": 2}, {"keepAlive": "1h"}]
    resolved = []
    for sleep in sleeps:
        document = put(put(full(), "spec.engine", {"type": "simulated"}), "spec.coldStart.sleep", sleep)
        resolved.append(check_as(Model, document).resolve().cold_start)
    assert len({repr(one) for one in resolved}) == len(sleeps)
