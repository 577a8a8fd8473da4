"""From one declaration to the next: uid, revision, generation, deletion, aliases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.spec.check import check_as
from deploy.spec.declare import REVISED_BY, alias_problems, declare, delete, document_of, model_of, override
from deploy.spec.model import Model
from deploy.spec.problem import SpecRefused
from events.types.models import ModelDeclared, Override
from tests.support.skew import LATER, with_later, without
from tests.support.specs import full, put, smallest


def defaults(spec: Any, said: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The places in what replicas are made of that a document does not name."""
    found = []
    for name, one in spec.items():
        if not at and name not in REVISED_BY:
            continue
        if name not in said:
            found.append((*at, name))
        if isinstance(one, dict):
            found += defaults(one, said.get(name, {}), (*at, name))
    return found


def first(name: str = "echo") -> ModelDeclared:
    return declare(None, smallest(name), "uid-1")


def test_the_first_declaration() -> None:
    """It has the new uid, revision 1, and the whole spec with its defaults as YAML says them."""
    declared = first()
    assert (declared.uid, declared.revision, declared.generation, declared.deleted) == ("uid-1", 1, 1, False)
    assert declared.spec["slots"] == 4
    assert declared.spec["scaling"] == {
        "minReplicas": 0, "maxReplicas": 1, "keepAlive": "5m", "stableWindow": "1m", "panicWindow": "6s",
        "policy": "relume", "policyOptions": {}, "mode": "auto", "schedules": [], "signals": [],
    }  # fmt: skip


def test_the_same_again_is_the_same_object() -> None:
    """Nothing changed, also when defaults are written out or durations are written otherwise."""
    declared = first()
    assert declare(declared, smallest(), "uid-2") is declared
    assert declare(declared, put(smallest(), "spec.scaling.keepAlive", "300s"), "uid-2") is declared
    options = {"startTime": "0.5s"}
    named = declare(declared, put(smallest(), "spec.engine.options", options), "uid-2")
    assert declare(named, put(smallest(), "spec.engine.options", {"startTime": "500ms"}), "uid-3") is named


@pytest.mark.parametrize(
    ("path", "value", "revised"),
    [
        ("spec.engine.options", {"startTime": "9s"}, True),
        ("spec.weights", {"uri": "/models/other"}, True),
        ("spec.resources.memory", "2Gi", True),
        ("spec.slots", 5, True),
        ("spec.priority", 7, False),
        ("spec.scaling.maxReplicas", 9, False),
        ("spec.coldStart.sla", "9s", False),
        ("spec.timeouts.total", "9m", False),
        ("spec.slo.availability", 99, False),
        ("spec.aliases", ["other"], False),
        ("metadata.labels", {"a": "b"}, False),
        ("metadata.annotations", {"a": "b"}, False),
    ],
)
def test_a_change_counts_the_generation_and_maybe_the_revision(path: str, value: object, revised: bool) -> None:
    """What replicas are made of counts the revision up; everything counts the generation up; the uid stays."""
    declared = declare(first(), put(smallest(), path, value), "uid-2")
    assert (declared.uid, declared.generation, declared.revision) == ("uid-1", 2, 2 if revised else 1)


def test_fields_that_are_new_in_this_release_replace_no_replica() -> None:
    """What an earlier release wrote lacks them. Declared again by the same document it has them, as their defaults, and
    is the same revision; another value than the default is another one."""
    document = put(put(smallest(), "spec.pod", {"image": "a"}), "spec.weights", {"uri": "/models/a"})
    declared = declare(None, document, "uid-1")
    missing = defaults(declared.spec, document["spec"])
    assert {("slots",), ("resources", "gpus"), ("pod", "port")} <= set(missing)
    for place in missing:
        earlier = replace(declared, spec=without(declared.spec, [place]))
        again = declare(earlier, document, "uid-2")
        assert (again.spec, again.revision, again.generation) == (declared.spec, 1, 2), place
    earlier = replace(declared, spec=without(declared.spec, [("slots",)]))
    assert declare(earlier, put(document, "spec.slots", 5), "uid-2").revision == 2


def test_what_a_later_release_declared_is_declared_anew() -> None:
    """It is made of fields that are not known here, so its replicas are replaced; what stands beside it stays."""
    declared = first()
    later = replace(declared, spec=with_later(declared.spec, [("resources",)]), further={LATER: 1})
    again = declare(later, smallest(), "uid-2")
    assert (again.spec, again.revision, again.further) == (declared.spec, 2, {LATER: 1})


def test_a_wrong_document_is_refused() -> None:
    """The problems of the fields come out of declare too."""
    with pytest.raises(SpecRefused, match=r"spec\.slots"):
        declare(None, put(smallest(), "spec.slots", 0), "uid-1")


def test_deleting_and_declaring_anew() -> None:
    """A deleted name that is declared again has a new uid and goes on with the next revision."""
    gone = delete(declare(first(), put(smallest(), "spec.slots", 5), "uid-2"))
    assert (gone.deleted, gone.generation, gone.uid) == (True, 3, "uid-1")
    assert delete(gone) is gone
    again = declare(gone, smallest(), "uid-9")
    assert (again.uid, again.revision, again.generation, again.deleted) == ("uid-9", 3, 1, False)


def test_an_override_is_kept_by_apply_and_ends_with_deletion() -> None:
    """A person's number outlives changes of the spec; a deleted model cannot be scaled."""
    scaled = override(first(), Override(replicas=2, until=5.0))
    assert scaled.generation == 2
    assert override(scaled, Override(replicas=2, until=5.0)) is scaled
    changed = declare(scaled, put(smallest(), "spec.priority", 1), "uid-2")
    assert changed.override == Override(replicas=2, until=5.0)
    assert override(changed, None).override is None
    gone = delete(changed)
    assert gone.override is None
    with pytest.raises(ValueError, match="deleted"):
        override(gone, Override(replicas=1, until=5.0))


def test_another_name_cannot_follow() -> None:
    """The newest declaration must be of the same name."""
    with pytest.raises(ValueError, match="cannot follow"):
        declare(first("a"), smallest("b"), "uid-2")


def test_aliases_belong_to_one_model() -> None:
    """An alias may not be another model's name or alias, and a name not another's alias; deleted models hold none."""
    other = declare(None, put(smallest("other"), "spec.aliases", ["shared", "echo"]), "uid-1")
    model = check_as(Model, put(smallest(), "spec.aliases", ["shared", "other", "free"]))
    found = [(problem.path, problem.rule) for problem in alias_problems(model, [other])]
    assert found == [
        ("spec.aliases[1]", "other already means model other"),
        ("spec.aliases[0]", "shared already means model other"),
        ("metadata.name", "echo is an alias of model other"),
    ]
    assert alias_problems(model, [delete(other)]) == []


@pytest.mark.parametrize("document", [smallest(), full()])
def test_a_declaration_reads_back_as_its_document(document: dict[str, object]) -> None:
    """What `get -o yaml` prints can be applied and changes nothing."""
    declared = declare(None, document, "uid-1")
    assert declare(declared, document_of(declared), "uid-2") is declared
    assert model_of(declared).resolve() == check_as(Model, document).resolve()
