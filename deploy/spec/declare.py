"""From one declaration to the next: which uid, revision and generation. Pure; the caller appends the result.

A name keeps its uid while it lives. Its revision counts up when what a replica is made of changes, its generation on
any change. A name that is declared again after its deletion gets a new uid and goes on with the next revision:
old replicas may still drain, and no two replicas may ever share a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.kinds import Document
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem
from deploy.spec.revising import revises
from events.types.models import ModelDeclared, Override

REVISED_BY: Final = ("engine", "weights", "resources", "slots", "pod", "scaleTargetRef")
"""The parts of the spec that a replica is made of."""


def declare(previous: ModelDeclared | None, document: Document | Mapping[str, object], new_uid: str) -> ModelDeclared:
    """The declaration that `document` makes of `previous` (the newest one of this name, deleted ones too).

    Returns `previous` itself when nothing changes. Raises SpecRefused when the document is wrong.
    """
    model = document if isinstance(document, Model) else check_as(Model, document)
    spec, metadata = written_spec(model), model.metadata
    if previous is None or previous.deleted:
        return ModelDeclared(
            model=metadata.name, uid=new_uid, revision=1 if previous is None else previous.revision + 1, generation=1,
            spec=spec, labels=dict(metadata.labels), annotations=dict(metadata.annotations),
        )  # fmt: skip
    if previous.model != metadata.name:
        raise ValueError(f"{metadata.name} cannot follow {previous.model}; give the newest declaration of this name")
    declared = replace(
        previous, spec=spec, labels=dict(metadata.labels), annotations=dict(metadata.annotations),
        revision=previous.revision + revises(REVISED_BY, previous.spec, spec, lambda: written_spec(model_of(previous))),
    )  # fmt: skip
    return previous if declared == previous else replace(declared, generation=previous.generation + 1)


def delete(previous: ModelDeclared) -> ModelDeclared:
    """The declaration that ends this one; `previous` itself when it has ended already."""
    if previous.deleted:
        return previous
    return replace(previous, deleted=True, override=None, generation=previous.generation + 1)


def override(previous: ModelDeclared, wanted: Override | None) -> ModelDeclared:
    """Set a person's number of replicas before the wish, or take it away with None. Raises ValueError when deleted."""
    if previous.deleted:
        raise ValueError(f"model {previous.model} is deleted; apply it again before scaling it")
    if previous.override == wanted:
        return previous
    further = {name: said for name, said in previous.further.items() if name != "override"}  # that was of the old one
    return replace(previous, override=wanted, further=further, generation=previous.generation + 1)


def alias_problems(model: Model, others: Iterable[ModelDeclared]) -> list[SpecProblem]:
    """What `model` would take away from the models that are declared: their names, their aliases."""
    problems = []
    mine = {alias: index for index, alias in enumerate(model.spec.aliases)}
    for other in others:
        if other.deleted or other.model == model.metadata.name:
            continue
        for taken in (other.model, *aliases_of(other)):
            if taken in mine:
                rule = f"{taken} already means model {other.model}"
                problems.append(SpecProblem(f"spec.aliases[{mine[taken]}]", taken, rule, "choose another alias"))
            elif taken == model.metadata.name:
                rule = f"{taken} is an alias of model {other.model}"
                remedy = f"choose another name, or remove the alias from {other.model}"
                problems.append(SpecProblem("metadata.name", taken, rule, remedy))
    return problems


def aliases_of(declared: ModelDeclared) -> tuple[str, ...]:
    """The aliases in a declaration's spec."""
    aliases = declared.spec.get("aliases")
    return tuple(str(alias) for alias in aliases) if isinstance(aliases, list) else ()


def written_spec(model: Model) -> dict[str, JsonValue]:
    """The spec as YAML would say it, defaults filled in; fields without a value are left out."""
    spec: dict[str, JsonValue] = model.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    spec["engine"] = {"type": str(model.spec.engine.type), "options": model.spec.engine.options}
    return spec


def document_of(declared: ModelDeclared) -> dict[str, JsonValue]:
    """The document that would declare this model: what `relume get -o yaml` prints and `apply` takes."""
    metadata: dict[str, JsonValue] = {"name": declared.model}
    if declared.labels:
        metadata["labels"] = dict(declared.labels)
    if declared.annotations:
        metadata["annotations"] = dict(declared.annotations)
    return {"apiVersion": API_VERSION, "kind": "Model", "metadata": metadata, "spec": declared.spec}


def model_of(declared: ModelDeclared) -> Model:
    """A declaration's model, for its policies. Raises SpecRefused when a newer version of relume wrote it."""
    return check_as(Model, document_of(declared))
