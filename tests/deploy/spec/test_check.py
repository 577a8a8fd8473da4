"""Bad declarations: each is refused with the path, the value, the rule and the remedy."""

from __future__ import annotations

import pytest

from deploy.spec.check import check, check_as
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, SpecRefused
from tests.support.bad_specs import BAD
from tests.support.specs import Document, full, put, smallest


def problems(document: object) -> list[SpecProblem]:
    with pytest.raises(SpecRefused) as refused:
        check(document)
    return list(refused.value.problems)


@pytest.mark.parametrize(("path", "value", "at", "rule", "remedy"), BAD)
def test_a_bad_value_is_refused_with_path_value_rule_and_remedy(
    path: str, value: object, at: str, rule: str | None, remedy: str | None
) -> None:
    """One wrong value gives one problem, at its place, in words that say what to write."""
    (problem,) = problems(put(full(), path, value))
    assert problem.path == at
    assert problem.rule == (problem.rule if rule is None else rule)
    assert problem.remedy == (problem.remedy if remedy is None else remedy)
    assert problem.rule
    assert problem.remedy
    if at == path and not isinstance(value, list):
        assert problem.value == value
        assert repr(value) in str(problem)


@pytest.mark.parametrize(
    "path", ["apiVersion", "kind", "metadata", "metadata.name", "spec", "spec.engine", "spec.engine.type"]
)
def test_what_is_needed_and_missing_is_named(path: str) -> None:
    """A missing field is named, and the remedy says to add it."""
    document = full()
    *parents, last = path.split(".")
    here = document
    for part in parents:
        here = here[part]
    del here[last]
    (problem,) = problems(document)
    assert problem.path == path
    assert "missing" in problem.rule


def test_llamacpp_needs_weights() -> None:
    """The engine that loads a file says how to name one."""
    (problem,) = problems(put(smallest(), "spec.engine.type", "llamacpp"))
    assert (problem.path, problem.remedy) == ("spec.weights", "add weights: {uri: /path/to/model.gguf}")


def test_adapters_sleep_at_level_1() -> None:
    """A vLLM that drops its weights drops its adapters, and nobody would notice."""
    options = {"command": ["vllm", "--enable-sleep-mode", "{port}", "{adapters}"], "sleep": "vllm"}
    document = put(smallest(), "spec.engine", {"type": "command", "options": options})
    weights = {"uri": "/w", "adapters": [{"name": "sql", "uri": "/sql"}]}
    document = put(put(document, "spec.weights", weights), "spec.coldStart", {"sleep": {"level": 2}})
    (problem,) = problems(document)
    assert (problem.path, problem.remedy) == ("spec.coldStart.sleep.level", "write level: 1")


def test_all_problems_are_told_at_once() -> None:
    """Wrong fields, unknown fields, wrong options and broken rules between fields come together."""
    document = put(put(put(full(), "spec.scaling.target", 99), "spec.slot", 3), "spec.engine.options.threads", "two")
    document = put(put(document, "metadata.name", "A"), "spec.timeouts.firstByte", "70m")
    found = {problem.path for problem in problems(document)}
    assert found == {
        "spec.scaling.target", "spec.slot", "spec.engine.options.threads", "metadata.name", "spec.timeouts.firstByte",
    }  # fmt: skip


@pytest.mark.parametrize("document", [None, 3, "text", [], [smallest()]])
def test_a_document_that_is_no_mapping_is_refused(document: object) -> None:
    """Anything else than a mapping says how to begin."""
    (problem,) = problems(document)
    assert problem.remedy == "begin with apiVersion: relume.dev/v1alpha1"


def test_long_values_are_cut_in_messages() -> None:
    """A message stays readable whatever the value."""
    (problem,) = problems(put(full(), "metadata.name", "x" * 10_000))
    assert len(str(problem)) < 300


def test_a_right_document_is_accepted() -> None:
    """The full example and the smallest one are models."""
    assert check_as(Model, full()).spec.slots == 8
    smallest_model: Document = smallest()
    assert check_as(Model, smallest_model).resolve().scaling.target == 4


def test_a_profile_that_a_card_reports_is_right_though_no_table_has_it() -> None:
    """A newer card decides; what was declared once is read again whatever cards are there; and what could be no
    profile at all never is one."""
    newer = put(full(), "spec.resources", {"migProfile": "1g.99gb"})
    assert check(newer, {"1g.99gb"}).metadata.name == "full"
    assert check_as(Model, newer).spec.resources.mig_profile == "1g.99gb"
    assert [one.path for one in problems(newer)] == ["spec.resources.migProfile"]
    with pytest.raises(SpecRefused, match="no known card has such a MIG profile"):
        check(put(full(), "spec.resources", {"migProfile": "small"}), {"small"})
