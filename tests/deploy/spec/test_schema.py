"""The generated JSON Schema and reference: fresh, right, and agreeing with what is accepted."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from deploy.spec.schema import REFERENCE_FOLDER, main, model_schema, pool_schema, stale, training_schema
from tests.support.bad_specs import BEYOND_SCHEMA, ROWS
from tests.support.specs import full, leaves, put, smallest

EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = model_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_files_are_fresh() -> None:
    """docs/reference is what the code says; run python -m deploy.spec.schema --write."""
    assert stale() == []
    assert main(["--check"]) == 0


def test_a_stale_file_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--check says which file is out of date; --write mends it."""
    monkeypatch.setattr("deploy.spec.schema.REFERENCE_FOLDER", tmp_path / "reference")
    assert main(["--check"]) == 1
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "reference" / "model.md").write_text("old")
    assert main(["--check"]) == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    """Editors see no fault in the examples, whose kind says which schema is meant."""
    document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    of_jobs = jsonschema.Draft202012Validator(training_schema())
    of_pools = jsonschema.Draft202012Validator(pool_schema())
    {"Model": validator, "TrainingJob": of_jobs, "GpuPool": of_pools}[document["kind"]].validate(document)


def test_full_and_smallest_are_valid(validator: jsonschema.Draft202012Validator) -> None:
    """So do the documents that say everything and nothing."""
    validator.validate(full())
    validator.validate(smallest())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_what_is_refused_is_marked_in_editors(name: str, validator: jsonschema.Draft202012Validator) -> None:
    """Every bad value that JSON Schema can describe is invalid by it; the others are listed as beyond it."""
    path, value, *_ = ROWS[name]
    assert validator.is_valid(put(full(), path, value)) == (name in BEYOND_SCHEMA)


@pytest.mark.parametrize("engine", ["llamacpp", "simulated", "command"])
def test_options_follow_the_engine(engine: str, validator: jsonschema.Draft202012Validator) -> None:
    """Each engine's options are known below its type, and no others."""
    document = put(smallest(), "spec.engine", {"type": engine, "options": {"noSuchOption": 1}})
    errors = " ".join(error.message for error in validator.iter_errors(document))
    assert "noSuchOption" in errors


def test_command_needs_its_options(validator: jsonschema.Draft202012Validator) -> None:
    """The command engine without a command is invalid."""
    assert not validator.is_valid(put(smallest(), "spec.engine", {"type": "command"}))


def test_every_field_is_in_the_reference() -> None:
    """The reference has a row for each field of the full document, and every field has a meaning."""
    lines = (REFERENCE_FOLDER / "model.md").read_text(encoding="utf-8").splitlines()
    for leaf in leaves(full()):
        name = leaf.removeprefix("spec.engine.options.")
        name = name if not name.startswith("metadata.labels") else "metadata.labels"
        name = name if not name.startswith("metadata.annotations") else "metadata.annotations"
        name = name if not name.startswith("spec.weights.headers") else "spec.weights.headers"
        name = name if not name.startswith("spec.scaling.policyOptions") else "spec.scaling.policyOptions"
        assert any(line.startswith(f"| `{name}` |") for line in lines), name
    rows = [line for line in lines if line.startswith("| `")]
    assert not [row for row in rows if row.endswith("|  |")]


def test_defaults_are_written_as_in_yaml() -> None:
    """Durations and quantities in defaults are text with units."""
    definitions = model_schema()["$defs"]
    assert definitions["ScalingSpec"]["properties"]["keepAlive"]["default"] == "5m"
    assert definitions["HoldSpec"]["properties"]["maxBytes"]["default"] == "64Mi"
    assert "default" not in definitions["ScalingSpec"]["properties"]["target"]
