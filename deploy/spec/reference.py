"""The references of the declarations in Markdown, made of their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MODEL_PAGE = "The declaration of a model"
TRAINING_PAGE = "The declaration of a training job"
POOL_PAGE = "The declaration of a pool of GPUs"

_HEAD = """# {title}

Made by `python -m deploy.spec.schema --write` from the types in the code; do not edit.

Durations are written `500ms`, `90s`, `5m`, `1h30m`; quantities of bytes `512Mi`, `16Gi`, `2G`. Unknown fields are
refused. `relume validate -f FILE` checks a file, `relume schema` prints the JSON Schemas for editors. Examples are in
`docs/examples/`.
"""

Schema = Mapping[str, Any]

_WORDS = {
    "integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "object": "mapping",
}  # fmt: skip


def reference(schema: Schema, title: str) -> str:
    """The whole page: the fields of the document, then each engine's options where it has an engine."""
    parts = [_HEAD.format(title=title), "\n## Fields\n\n", _table(_rows(schema, schema, ""))]
    for choice in schema["$defs"].get("EngineSpec", {}).get("allOf", ()):
        engine = choice["if"]["properties"]["type"]["const"]
        options = _resolved(schema, choice["then"]["properties"]["options"])
        parts += [f"\n## Options of engine `{engine}`\n\n", _table(_rows(schema, options, ""))]
    return "".join(parts)


def _table(rows: Iterator[tuple[str, str, str, str]]) -> str:
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _rows(schema: Schema, part: Schema, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    required = part.get("required", ())
    for name, field in part["properties"].items():
        inner = _resolved(schema, field)
        path = f"{prefix}{name}"
        meaning = " ".join(str(field.get("description") or inner.get("description", "")).split())
        if "properties" in inner and path != "spec.engine.options":
            yield f"`{path}`", "fields", _default(name in required, {}), meaning
            yield from _rows(schema, inner, f"{path}.")
        else:
            yield f"`{path}`", _type(schema, field), _default(name in required, field), meaning
            items = _resolved(schema, inner.get("items", {}))
            if "properties" in items:
                yield from _rows(schema, items, f"{path}[].")


def _default(required: bool, field: Schema) -> str:
    if required:
        return "needed"
    if field.get("default") in (None, "", [], {}):
        return ""
    value = field["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _resolved(schema: Schema, part: Schema) -> Schema:
    """The definition that a part refers to, also as one of two with null."""
    reference_text = part.get("$ref")
    if reference_text is None:
        choices = [choice for choice in part.get("anyOf", ()) if "$ref" in choice]
        if len(choices) != 1:
            return part
        reference_text = choices[0]["$ref"]
    found: Schema = schema["$defs"][str(reference_text).rsplit("/", 1)[-1]]
    return found


def _type(schema: Schema, part: Schema) -> str:
    part = _resolved(schema, part)
    if "enum" in part:
        return " or ".join(f"`{value}`" for value in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    if "anyOf" in part:
        kinds = (_type(schema, choice) for choice in part["anyOf"] if choice.get("type") != "null")
        return _named(part) or " or ".join(dict.fromkeys(kinds))
    if part.get("type") == "array":
        items = part.get("items", {})
        return f"list of {'fields' if 'properties' in _resolved(schema, items) else _type(schema, items)}"
    return _named(part) or _WORDS.get(str(part.get("type")), "anything")


def _named(part: Schema) -> str:
    """Durations and quantities are known by their examples."""
    examples = part.get("examples", ())
    for choice in part.get("anyOf", ()):
        examples = examples or choice.get("examples", ())
    if "90s" in examples:
        return "duration"
    return "quantity" if "16Gi" in examples else ""
