"""The document of a training job: what is refused in which words, what it comes to, and its schema."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.spec.check import check, check_as
from deploy.spec.load import load_bytes
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, SpecRefused
from deploy.spec.schema import REFERENCE_FOLDER, training_schema
from deploy.spec.training import TrainingJob
from preemption.core.training import CheckpointPolicy
from tests.support.bad_training_specs import BAD_TRAINING, BEYOND_TRAINING_SCHEMA, TRAINING_ROWS
from tests.support.specs import full_training, leaves, put, smallest, smallest_training

OTHER: dict[str, object] = {
    "metadata.name": "other", "spec.command": ["train"], "spec.environment.LR": "1e-3", "spec.folder": "/elsewhere",
    "spec.resources.gpus": 2, "spec.resources.cpu": 2, "spec.resources.memory": "8Gi", "spec.members": 7,
    "spec.elasticity.minMembers": 3, "spec.priority": 9, "spec.preemption.protected": False,
    "spec.preemption.minRuntime": "9m", "spec.preemption.budgetPerHour": 3, "spec.maxFailures": 4,
    "spec.checkpoint.channels": ["http", "signal"], "spec.checkpoint.signal": "SIGHUP",
    "spec.checkpoint.ackTimeout": "6s", "spec.checkpoint.saveTimeout": "4m", "spec.checkpoint.grace": "2m",
}  # fmt: skip
"""Another right value for each leaf of the full document that its policy has."""

KEPT_ONLY = {"apiVersion", "kind", "metadata.labels.team", "metadata.annotations.relume.dev/note"}
"""Leaves with one right value, and those that are only kept with the declaration."""


def problems(document: object) -> list[SpecProblem]:
    with pytest.raises(SpecRefused) as refused:
        check(document)
    return list(refused.value.problems)


@pytest.mark.parametrize(("path", "value", "at", "rule", "remedy"), BAD_TRAINING)
def test_a_bad_value_is_refused_with_path_value_rule_and_remedy(
    path: str, value: object, at: str, rule: str | None, remedy: str | None
) -> None:
    """One wrong value gives one problem, at its place, in words that say what to write."""
    (problem,) = problems(put(full_training(), path, value))
    assert problem.path == at
    assert problem.rule == (problem.rule if rule is None else rule)
    assert problem.remedy == (problem.remedy if remedy is None else remedy)
    assert problem.rule
    assert problem.remedy
    if at == path and not isinstance(value, list):
        assert repr(value) in str(problem)


@pytest.mark.parametrize("name", sorted(TRAINING_ROWS))
def test_what_is_refused_is_marked_in_editors(name: str) -> None:
    """Every bad value that JSON Schema can describe is invalid by it; the others are listed as beyond it."""
    path, value, *_ = TRAINING_ROWS[name]
    validator = jsonschema.Draft202012Validator(training_schema())
    assert validator.is_valid(full_training())
    assert validator.is_valid(smallest_training())
    assert validator.is_valid(put(full_training(), path, value)) == (name in BEYOND_TRAINING_SCHEMA)


@pytest.mark.parametrize("path", ["metadata", "metadata.name", "spec", "spec.command"])
def test_what_is_needed_and_missing_is_named(path: str) -> None:
    """A missing field is named, also when rules between other fields are broken: both are told."""
    document = put(full_training(), "spec.checkpoint.ackTimeout", "1h") if path == "spec.command" else full_training()
    *parents, last = path.split(".")
    here = document
    for part in parents:
        here = here[part]
    del here[last]
    found = {problem.path for problem in problems(document)}
    assert found == {path} | ({"spec.checkpoint.ackTimeout"} if path == "spec.command" else set())


def test_the_tables_name_every_leaf() -> None:
    """A new field needs a line here, and so a meaning."""
    assert set(leaves(full_training())) == set(OTHER) | KEPT_ONLY


@pytest.mark.parametrize("path", sorted(OTHER))
def test_no_knob_is_dead(path: str) -> None:
    """Another value of this field resolves to another policy."""
    other = check_as(TrainingJob, put(full_training(), path, OTHER[path])).resolve()
    assert other != check_as(TrainingJob, full_training()).resolve()


def test_every_field_is_in_the_reference() -> None:
    """The reference has a row for each field, and every field has a meaning."""
    lines = (REFERENCE_FOLDER / "training.md").read_text(encoding="utf-8").splitlines()
    for leaf in leaves(full_training()):
        name = next((open_ for open_ in ("metadata.labels", "metadata.annotations", "spec.environment")
                     if leaf.startswith(open_)), leaf)  # fmt: skip
        assert any(line.startswith(f"| `{name}` |") for line in lines), name
    assert not [line for line in lines if line.startswith("| `") and line.endswith("|  |")]


def test_the_smallest_job() -> None:
    """A command is enough; everything else has the policy's own default."""
    policy = check_as(TrainingJob, smallest_training()).resolve()
    assert (policy.job, policy.members, policy.priority) == ("tune", 1, 0)
    assert policy.checkpoint == CheckpointPolicy()


def test_kinds_are_read_side_by_side() -> None:
    """A file may hold both, also of one name; one name twice within a kind is refused with the kind's word."""
    text = "\n---\n".join(map(str, (smallest("same"), smallest_training("same")))).encode()
    loaded = load_bytes(text, "both.yaml")
    assert not loaded.problems
    assert [document.kind for document in loaded.documents] == ["Model", "TrainingJob"]
    assert [model.metadata.name for model in loaded.models] == ["same"]


def test_a_kind_where_only_another_has_a_meaning() -> None:
    """It is refused as a wrong kind, not field by field."""
    with pytest.raises(SpecRefused, match="there must be a Model here; declare kind: Model"):
        check_as(Model, smallest_training())


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                    max_leaves=8),
       st.sampled_from(sorted(set(leaves(full_training())) - {"metadata.annotations.relume.dev/note"})))  # fmt: skip
def test_no_value_anywhere_is_a_crash(value: object, path: str) -> None:
    """Whatever stands in a field, the answer is a job or problems in words."""
    document = put(full_training(), path, value)
    found: tuple[SpecProblem, ...] = ()
    try:
        check(document)
    except SpecRefused as refused:
        found = refused.problems
    assert all(problem.rule and problem.remedy and str(problem) for problem in found)
