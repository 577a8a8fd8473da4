"""The CustomResourceDefinitions, made of the pydantic specs: the same documents as on one machine.

``python -m deploy.kubernetes.crd --write`` writes the files of `crds/`, ``--check`` fails when they are out of date.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from deploy.kubernetes import rules
from deploy.kubernetes.resources import GROUP, VERSION
from deploy.kubernetes.rules import Rule
from deploy.kubernetes.structural import Schema, fill_defaults, structural
from deploy.spec.schema import model_schema, pool_schema, training_schema
from events.types.replicas import MAX_REPLICAS

FOLDER: Final = Path(__file__).parent / "crds"
_HEAD: Final = "# Made by `python -m deploy.kubernetes.crd --write` from the types in the code; do not edit.\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object, as its definition tells it."""

    kind: str
    plural: str
    short: Sequence[str]
    schema: Mapping[str, Any]
    rules: Mapping[str, Sequence[Rule]]
    status: Schema
    columns: Sequence[tuple[str, str, str]]
    """Name, type, path."""
    scaled: bool = False

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.plural}.{GROUP}.yaml"


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _number(description: str) -> Schema:
    return {"type": "integer", "description": description}


_TYPE: Final = "What is told: Accepted, Granted, Ready, Starts."
_TRAINING_TYPE: Final = "What is told: Accepted, Granted, Running, Yielding, Saved, Disturbed."


def _conditions(types: str) -> Schema:
    one: Schema = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": _text(types),
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": _text("A word for programs."),
            "message": _text("A sentence for people."),
            "observedGeneration": _number("The generation of the object that this was said of."),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    }
    return {"type": "array", "items": one, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


_STATUS: Final[Schema] = {
    "type": "object",
    "description": "What relume makes of it. Written by relume.",
    "properties": {
        "state": _text("Zero, Starting, Ready, Draining or Failed."),
        "reason": _text("Why, in a word."),
        "message": _text("Why, in a sentence."),
        "replicas": _number("Replicas that exist."),
        "readyReplicas": _number("Replicas that serve."),
        "wanted": _number("Replicas that the autoscaler, or a person, wants."),
        "granted": _number("Replicas that there is room for."),
        "revision": _number("Counts up when what a replica is made of changes."),
        "observedGeneration": _number("The newest generation of the object that relume has taken in."),
        "selector": _text("Labels of the replicas' pods."),
        "conditions": _conditions(_TYPE),
    },
}  # fmt: skip
_TRAINING_STATUS: Final[Schema] = {
    "type": "object",
    "description": "What relume makes of it. Written by relume.",
    "properties": {
        "state": _text("Pending, Starting, Running, Saving, Parked, Paused, Finished, Failed or Cancelled."),
        "reason": _text("Why, in a word."),
        "message": _text("Why, in a sentence."),
        "run": _number("Counts up with each start of the whole gang."),
        "members": _number("Pods of the gang."),
        "readyMembers": _number("Pods whose containers run."),
        "granted": _number("Members that may run now."),
        "step": _number("Completed steps, the newest that was told."),
        "resumedStep": _number("The step from which this run went on."),
        "checkpointStep": _number("The newest committed checkpoint holds all of so many steps."),
        "checkpoint": _text("Where that is, as its trainer says it."),
        "checkpointVerified": {"type": "boolean", "description": "Whether it was told with its manifest."},
        "preemptions": _number("How often it has yielded."),
        "failures": _number("Runs that failed in a row."),
        "ending": _text("How the newest run ended."),
        "observedGeneration": _number("The newest generation of the object that relume has taken in."),
        "selector": _text("Labels of the members' pods."),
        "conditions": _conditions(_TRAINING_TYPE),
        # of the first definition of this kind; definitions only gain fields
        "replicas": _number("Not written."), "readyReplicas": _number("Not written."),
        "wanted": _number("Not written."), "revision": _number("Not written."),
    },
}  # fmt: skip
_POOL_STATUS: Final[Schema] = {
    "type": "object",
    "description": "What relume makes of it. Written by relume.",
    "properties": {
        "state": _text("InForce, NotLed or Refused."),
        "reason": _text("Why, in a word."),
        "message": _text("Why, in a sentence."),
        "revision": _number("Counts up when the settings change."),
        "observedGeneration": _number("The newest generation of the object that relume has taken in."),
        "conditions": _conditions("What is told: Accepted, InForce."),
    },
}  # fmt: skip
_AGE: Final = ("Age", "date", ".metadata.creationTimestamp")


def kinds() -> Sequence[Kind]:
    """All that there are."""
    return (
        Kind(
            "Model", "models", ("rmodel",), model_schema(), rules.MODEL, _STATUS,
            (("State", "string", ".status.state"), ("Replicas", "integer", ".status.replicas"),
             ("Ready", "integer", ".status.readyReplicas"), ("Wanted", "integer", ".status.wanted"),
             ("Reason", "string", ".status.reason"), _AGE), scaled=True,
        ),
        Kind(
            "TrainingJob", "trainingjobs", ("rtrain",), training_schema(), rules.TRAINING, _TRAINING_STATUS,
            (("State", "string", ".status.state"), ("Run", "integer", ".status.run"),
             ("Ready", "integer", ".status.readyMembers"), ("Step", "integer", ".status.step"),
             ("Saved", "integer", ".status.checkpointStep"), ("Reason", "string", ".status.reason"), _AGE),
        ),
        Kind(
            "GpuPool", "gpupools", ("rpool",), pool_schema(), rules.POOL, _POOL_STATUS,
            (("State", "string", ".status.state"), ("Reserve", "number", ".spec.reserve.wholeCards"),
             ("Budget", "integer", ".spec.reclaim.budgetPerHour"), ("Reason", "string", ".status.reason"), _AGE),
        ),
    )  # fmt: skip


def definition(kind: Kind) -> Schema:
    """The CustomResourceDefinition of a kind."""
    version: Schema = {
        "name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": _schema(kind)},
        "subresources": {"status": {}}, "additionalPrinterColumns": [
            {"name": name, "type": type_, "jsonPath": path} for name, type_, path in kind.columns
        ],
    }  # fmt: skip
    if kind.scaled:
        version["subresources"]["scale"] = {
            # a field that is always there, as the API server demands: the floor below which relume does not go
            "specReplicasPath": ".spec.scaling.minReplicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower(), "listKind": f"{kind.kind}List",
                "shortNames": list(kind.short), "categories": ["relume"],
            },
            "versions": [version],
        },
    }  # fmt: skip


def _schema(kind: Kind) -> Schema:
    whole = kind.schema
    made = structural(whole, whole)
    properties: dict[str, Schema] = made["properties"]
    spec = properties["spec"]
    if kind.scaled:
        spec["properties"]["replicas"] = {
            "type": "integer", "minimum": 0, "maximum": MAX_REPLICAS,
            "description": "A person's number of replicas, which stands before relume's own as long as it is here. On "
            "Kubernetes alone.",
        }  # fmt: skip
    for path in rules.UNFILLED | rules.SETS:
        part = _part(properties, path)
        if part is None:
            continue
        if path in rules.UNFILLED:
            part.pop("default", None)
        else:
            part["x-kubernetes-list-type"] = "set"
    fill_defaults(spec)
    for path, some in kind.rules.items():
        target = made if not path else _part(properties, path)
        assert target is not None, f"there is no field {path} to write rules for"
        target["x-kubernetes-validations"] = [{"rule": one.expression, "message": one.message} for one in some]
    text: Schema = {"type": "string"}
    made["properties"] = {"apiVersion": dict(text), "kind": dict(text), "metadata": {"type": "object"}}
    made["properties"] |= {"spec": spec, "status": kind.status}
    made["required"] = ["spec"]
    return made


def _part(properties: Mapping[str, Schema], path: str) -> Schema | None:
    """The schema at ``spec.scaling.signals[]``; None when there is none."""
    first, *rest = path.replace("[]", ".[]").split(".")
    part = properties.get(first)
    for name in rest:
        if part is None:
            return None
        part = part["items"] if name == "[]" else part.get("properties", {}).get(name)
    return part


def rendered() -> Mapping[str, str]:
    """The files' names and what should stand in them."""
    return {kind.file: _HEAD + _yaml(definition(kind)) for kind in kinds()}


def definitions() -> Sequence[Schema]:
    """All definitions, as they are applied."""
    return [definition(kind) for kind in kinds()]


def _yaml(value: Schema) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # it is said to be None, and is a flag
    yaml.width = 120
    yaml.representer.ignore_aliases = lambda _: True  # the API server's YAML has anchors, people's eyes do not
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """``--write`` or ``--check``; exit status 1 when --check finds a stale file."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes.crd", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="write deploy/kubernetes/crds/")
    choice.add_argument("--check", action="store_true", help="fail when deploy/kubernetes/crds/ is out of date")
    made = rendered()
    if parser.parse_args(arguments).write:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    late = [name for name, text in made.items() if _read(FOLDER / name) != text]
    for name in late:
        sys.stderr.write(f"deploy/kubernetes/crds/{name} is out of date; run python -m deploy.kubernetes.crd --write\n")
    return 1 if late else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
