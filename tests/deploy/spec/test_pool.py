"""The declaration of a pool of GPUs: each field means something, and what is wrong is told in words."""

from __future__ import annotations

import jsonschema
import pytest

from deploy.api.pools import settings_of
from deploy.spec.check import check, check_as
from deploy.spec.declare_pool import declare_pool, delete_pool
from deploy.spec.load import load_bytes
from deploy.spec.pool import GpuPool
from deploy.spec.problem import SpecRefused
from deploy.spec.schema import REFERENCE_FOLDER, pool_schema
from events.types.pools import PoolDeclared
from preemption.core.reclaim.pool_policy import DEFAULT
from preemption.declared_pool import read_pool
from tests.support.specs import full_pool, leaves, put, smallest, smallest_pool

OTHER: dict[str, object] = {
    "spec.reserve.sharedCards": 0.0, "spec.reserve.wholeCards": 1, "spec.reclaim.budgetPerHour": 0,
    "spec.reclaim.coolDown": "0s", "spec.settling.first": "7s", "spec.settling.growth": 1,
    "spec.settling.longest": "11m", "spec.estimates.save": "11s", "spec.estimates.restore": "41s",
    "spec.cardUnits.H100": 3.4, "spec.reclaim.thrash": "0s", "spec.reclaim.thrashWindow": "90m",
    "spec.reclaim.shrink": "0s", "spec.reclaim.waiting": 0, "spec.settling.patience": 0, "spec.aging.every": "6m",
    "spec.aging.most": 0, "spec.estimates.reclaim": "0s", "spec.estimates.drain": "0s",
    "spec.estimates.drainLongest": "3m", "spec.attempts.stall": "21s", "spec.attempts.exit": "3s",
    "spec.attempts.cancel": "51s", "spec.attempts.kill": "11s", "spec.attempts.empty": "51s",
    "spec.attempts.quarantine": "3m", "spec.attempts.lost": "51s", "spec.attempts.resume": "11m",
    "spec.nodeCalls.most": 5, "spec.nodeCalls.after": "0s", "spec.nodeCalls.deadline": "20m",
    "spec.nodeCalls.pause": "1m", "spec.coldStartCost": "20m",
}  # fmt: skip
"""Another right value for each leaf of the full document that means something to the pool."""

KEPT_ONLY = {
    "apiVersion", "kind", "metadata.name", "metadata.labels.team", "metadata.annotations.relume.dev/note",
}  # fmt: skip
"""Leaves that are kept with the declaration."""

WRONG: dict[str, tuple[str, object, str]] = {
    "share": ("spec.reserve.wholeCards", 1.5, "must be at most 1"),
    "budget": ("spec.reclaim.budgetPerHour", -1, "must be at least 0"),
    "no unit": ("spec.reclaim.coolDown", 60, "has no unit"),
    "growth": ("spec.settling.growth", 0.5, "must be at least 1"),
    "first": ("spec.settling.first", "1h", "first is longer than longest"),
    "nothing": ("spec.estimates.save", "0s", "must be more than 0"),
    "patience": ("spec.settling.patience", -1, "must be at least 0"),
    "units": ("spec.cardUnits", {"H100": 0}, "must be more than 0"),
    "product": ("spec.cardUnits", {" ": 1}, "a product's name is empty"),
    "field": ("spec.reclaim.budget", 3, "there is no field budget here"),
}
BEYOND_SCHEMA = {"first", "product", "nothing"}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = pool_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_tables_name_every_leaf() -> None:
    """A new field needs a line here, and so a meaning."""
    assert set(leaves(full_pool())) == set(OTHER) | KEPT_ONLY


@pytest.mark.parametrize("path", sorted(OTHER))
def test_no_knob_is_dead(path: str) -> None:
    """Another value of this field resolves to another policy."""
    other = check_as(GpuPool, put(full_pool(), path, OTHER[path])).resolve()
    assert other != check_as(GpuPool, full_pool()).resolve()


def test_every_knob_is_shown() -> None:
    """What a pool goes by is told in full: a number for each field."""
    assert len(settings_of(check_as(GpuPool, full_pool()).resolve())) == len(OTHER)


def test_without_a_word_the_defaults_hold() -> None:
    """The document's defaults are the policy's own."""
    assert check_as(GpuPool, smallest_pool()).resolve() == DEFAULT


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_is_wrong_is_told(name: str, validator: jsonschema.Draft202012Validator) -> None:
    """Path, rule, remedy; and in editors, as far as JSON Schema can say it."""
    path, value, rule = WRONG[name]
    document = put(full_pool(), path, value)
    with pytest.raises(SpecRefused) as refused:
        check(document)
    (problem,) = refused.value.problems
    assert rule in problem.rule
    assert problem.remedy
    assert problem.path.startswith(path)
    assert validator.is_valid(document) == (name in BEYOND_SCHEMA)
    assert validator.is_valid(full_pool())
    assert validator.is_valid(smallest_pool())


def test_a_near_miss_is_guessed() -> None:
    """The kind and fields are answered with what was meant."""
    with pytest.raises(SpecRefused, match="write kind: GpuPool"):
        check({**smallest_pool(), "kind": "gpupool"})
    with pytest.raises(SpecRefused, match="did you mean coolDown"):
        check(put(full_pool(), "spec.reclaim.cooldown", "1s"))


def test_kinds_stand_side_by_side() -> None:
    """A file may hold all kinds; a pool twice is refused."""
    text = "\n---\n".join(map(str, (smallest("x"), smallest_pool("x")))).encode()
    assert [one.kind for one in load_bytes(text, "f").documents] == ["Model", "GpuPool"]


def test_from_one_declaration_to_the_next() -> None:
    """The same again is the same; settings count the revision, labels do not; a deleted one goes back to the defaults,
    and comes back as another."""
    first = declare_pool(None, full_pool(), "u1")
    assert (first.pool, first.uid, first.revision, first.generation) == ("full", "u1", 1, 1)
    assert declare_pool(first, full_pool(), "u2") is first
    labelled = declare_pool(first, put(full_pool(), "metadata.labels", {}), "u2")
    assert (labelled.revision, labelled.generation, labelled.uid) == (1, 2, "u1")
    second = declare_pool(labelled, put(full_pool(), "spec.reclaim.coolDown", "1s"), "u2")
    assert (second.revision, second.generation) == (2, 3)
    assert read_pool(second).lending.reclaim.cool_down == 1.0
    gone = delete_pool(second)
    assert read_pool(gone) == DEFAULT
    again = declare_pool(gone, full_pool(), "u3")
    assert (again.uid, again.revision, again.generation) == ("u3", 3, 1)
    with pytest.raises(ValueError, match="cannot follow"):
        declare_pool(first, smallest_pool(), "u")


def test_of_another_release() -> None:
    """A field that is not known is named."""
    later = PoolDeclared(pool="default", uid="u", revision=1, generation=1, spec={"reclaim": {"mercy": True}})
    with pytest.raises(ValueError, match=r"pool default: spec\.reclaim\.mercy cannot be read"):
        read_pool(later)


def test_every_field_is_in_the_reference() -> None:
    """The reference has a row for each field, and every field has a meaning."""
    lines = (REFERENCE_FOLDER / "pool.md").read_text(encoding="utf-8").splitlines()
    for path in leaves(full_pool()):
        name = next((open_ for open_ in ("metadata.labels", "metadata.annotations", "spec.cardUnits")
                     if path.startswith(open_)), path)  # fmt: skip
        assert any(line.startswith(f"| `{name}` |") for line in lines), name
    assert not [line for line in lines if line.startswith("| `") and line.endswith("|  |")]
