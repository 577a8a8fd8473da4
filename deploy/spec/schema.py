"""The JSON Schemas of the declarations, for editors, and their reference for people: made of the pydantic models.

``python -m deploy.spec.schema --write`` writes the files of `FILES`, ``--check`` fails when they are out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, models_json_schema

from deploy.spec.check import model_in
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.reference import MODEL_PAGE, POOL_PAGE, TRAINING_PAGE, reference
from deploy.spec.training import TrainingJob
from runtime.adapters.registry import options_model
from runtime.spec import EngineSpec, EngineType

REFERENCE_FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
FILES: Final = ("model.schema.json", "model.md", "training.schema.json", "training.md", "pool.schema.json", "pool.md")

_NOISE = ("title", "minimum", "exclusiveMinimum", "maximum")


def model_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a Model document; options follow the engine's type."""
    schema = _schema(Model, "model", [options_model(engine) for engine in EngineType])
    schema["$defs"][EngineSpec.__name__]["allOf"] = [_options_of(engine_type) for engine_type in EngineType]
    return schema


def training_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a TrainingJob document."""
    return _schema(TrainingJob, "training", [])


def pool_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a GpuPool document."""
    return _schema(GpuPool, "pool", [])


def _schema(root: type[BaseModel], name: str, beside: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """The schema of a document, with definitions of what it holds and of the models `beside`."""
    roots = [root, *beside]
    _, whole = models_json_schema([(one, "validation") for one in roots], by_alias=True)
    definitions = whole["$defs"]
    for model in _models(roots):
        _describe(definitions[model.__name__], model)
    top = definitions.pop(root.__name__)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"https://relume.dev/{name}.schema.json"}
    return {**head, "title": root.__name__, **top, "$defs": dict(sorted(definitions.items()))}


def _options_of(engine: EngineType) -> dict[str, Any]:
    """If the engine is this one, its options are these; engines that need an option need `options`."""
    options = options_model(engine)
    then: dict[str, Any] = {"properties": {"options": {"$ref": DEFAULT_REF_TEMPLATE.format(model=options.__name__)}}}
    if any(field.is_required() for field in options.model_fields.values()):
        then["required"] = ["options"]
    return {"if": {"properties": {"type": {"const": str(engine)}}, "required": ["type"]}, "then": then}


def _models(roots: list[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Every pydantic model in these, each once."""
    waiting, seen = list(roots), set[type[BaseModel]]()
    while waiting:
        model = waiting.pop()
        if model in seen:
            continue
        seen.add(model)
        yield model
        inner = (model_in(field.annotation) for field in model.model_fields.values())
        waiting += [found for found in inner if found is not None]


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Write defaults as YAML would say them, and drop what says nothing."""
    schema.pop("title", None)
    for prop in schema["properties"].values():
        if "patternProperties" in prop:  # the keys have a form, and no others are allowed
            prop["additionalProperties"] = False
    for name, field in model.model_fields.items():
        prop = schema["properties"][str(field.alias or name)]
        prop.pop("title", None)
        if prop.get("type") == "string" or "anyOf" in prop:
            for word in _NOISE[1:]:
                prop.pop(word, None)
        prop.pop("default", None)
        default = written_default(field)
        if default is not None:
            prop["default"] = default


def written_default(field: FieldInfo) -> object:
    """A field's default as YAML would say it: ``5m``, ``64Mi``, mappings without what is not set; None for none."""
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        return default.model_dump(mode="json", by_alias=True, exclude_none=True)
    annotation: Any = field.annotation
    for extra in field.metadata:
        annotation = Annotated[annotation, extra]
    return TypeAdapter[Any](annotation).dump_python(default, mode="json")


def rendered() -> Mapping[str, str]:
    """The files' names and what should stand in them."""
    model, training, pool = model_schema(), training_schema(), pool_schema()
    return {
        "model.schema.json": json.dumps(model, indent=2, ensure_ascii=False) + "\n",
        "model.md": reference(model, MODEL_PAGE),
        "training.schema.json": json.dumps(training, indent=2, ensure_ascii=False) + "\n",
        "training.md": reference(training, TRAINING_PAGE),
        "pool.schema.json": json.dumps(pool, indent=2, ensure_ascii=False) + "\n",
        "pool.md": reference(pool, POOL_PAGE),
    }


def stale() -> list[str]:
    """The names of the files that differ from what they should be."""
    return [name for name, text in rendered().items() if _read(REFERENCE_FOLDER / name) != text]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(arguments: list[str] | None = None) -> int:
    """``--write`` or ``--check``; exit status 1 when --check finds a stale file."""
    parser = argparse.ArgumentParser(prog="python -m deploy.spec.schema", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="write docs/reference/")
    choice.add_argument("--check", action="store_true", help="fail when docs/reference/ is out of date")
    if parser.parse_args(arguments).write:
        REFERENCE_FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in rendered().items():
            (REFERENCE_FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    for name in (late := stale()):
        sys.stderr.write(f"docs/reference/{name} is out of date; run python -m deploy.spec.schema --write\n")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
