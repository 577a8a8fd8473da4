"""JSON Schemas as Kubernetes takes them: structural. Pure.

A structural schema has no references, no alternatives but of integer and text, numeric bounds that are exclusive by a
flag, and no `additionalProperties` beside `properties` (the API server prunes unknown fields, or refuses them when the
client asks for strict validation, as kubectl does).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

_KEPT: Final = (
    "type", "description", "default", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems",
    "maxProperties", "minimum", "maximum", "required",
)  # fmt: skip
_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def structural(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Schema:
    """`part` of `schema`, whose definitions it may refer to."""
    found = _resolved(schema, part)
    made: Schema = {word: found[word] for word in _KEPT if word in found}
    for word, bound in _BOUNDS.items():
        if word in found:
            made[bound], made[word] = found[word], True
    if "const" in found:
        made |= {"type": "string", "enum": [found["const"]]}
    if _is_quantity(found):
        made |= {"x-kubernetes-int-or-string": True, "pattern": found["anyOf"][0]["pattern"]}
    if "items" in found:
        made["items"] = structural(schema, found["items"])
    if "properties" in found:
        made["properties"] = {name: structural(schema, inner) for name, inner in found["properties"].items()}
    elif found.get("type") == "object":
        made |= _mapping(schema, found)
    if "type" not in made and not _is_quantity(found):  # of several forms: the adapter's validators tell them apart
        made["x-kubernetes-preserve-unknown-fields"] = True
    return made


def fill_defaults(part: Schema) -> None:
    """Write each object's default as what its fields' defaults make of it: the API server checks rules on a default
    before it fills in those of the fields."""
    for inner in part.get("properties", {}).values():
        fill_defaults(inner)
    if "items" in part:
        fill_defaults(part["items"])
    if "default" in part and "properties" in part:
        fields = part["properties"].items()
        part["default"] = {name: inner["default"] for name, inner in fields if "default" in inner}


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Schema:
    """What a part refers to, with its own words before those of the definition; of ``X or null``, X."""
    choices = [choice for choice in part.get("anyOf", ()) if choice.get("type") != "null"]
    inner: Mapping[str, Any] = choices[0] if len(choices) == 1 else part
    own = {word: value for word, value in part.items() if word not in ("$ref", "anyOf")}
    if "$ref" in inner:
        definition = schema["$defs"][str(inner["$ref"]).rsplit("/", 1)[-1]]
        return {**definition, **own}
    return {**inner, **own}


def _is_quantity(found: Mapping[str, Any]) -> bool:
    return [choice.get("type") for choice in found.get("anyOf", ())] == ["string", "integer"]


def _mapping(schema: Mapping[str, Any], found: Mapping[str, Any]) -> Schema:
    """Free keys: with values of one form, or anything at all."""
    by_form = list(found.get("patternProperties", {}).values())
    values = by_form[0] if by_form else found.get("additionalProperties")
    if isinstance(values, Mapping):
        return {"additionalProperties": structural(schema, values)}
    return {"x-kubernetes-preserve-unknown-fields": True}
