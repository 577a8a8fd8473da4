"""A JSON value that a JSON Schema allows, for tool arguments and structured answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_DEPTH = 16  # a schema may refer to itself; deeper parts become null

_STRINGS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}


def value_for(schema: object, root: Mapping[str, object] | None = None, depth: int = 0) -> object:
    """The value: every declared property, the least array, the first alternative. Keywords that it does not know
    (pattern, if, dependentSchemas, …) are ignored."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return None
    root = schema if root is None else root
    given = _given(schema)
    if given is not _NOTHING:
        return given
    other = _other_schema(schema, root)
    return _typed(schema, root, depth) if other is _NOTHING else value_for(other, root, depth + 1)


_NOTHING = object()


def _given(schema: Mapping[str, object]) -> object:
    """A value that the schema itself writes down."""
    if "const" in schema:
        return schema["const"]
    if schema.get("default") is not None:
        return schema["default"]
    for key in ("examples", "enum"):
        listed = schema.get(key)
        if isinstance(listed, list) and listed:
            return listed[0]
    return _NOTHING


def _other_schema(schema: Mapping[str, object], root: Mapping[str, object]) -> object:
    """The schema that this one stands for: a reference, its first alternative, or all its parts together."""
    if "$ref" in schema:
        return _resolve(schema["$ref"], root)
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list) and choices:
            return choices[0]
    parts = schema.get("allOf")
    return _merged(schema, parts, root) if isinstance(parts, list) and parts else _NOTHING


def _resolve(reference: object, root: Mapping[str, object]) -> object:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: object = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _merged(schema: Mapping[str, object], parts: list[object], root: Mapping[str, object]) -> dict[str, object]:
    merged: dict[str, object] = {key: value for key, value in schema.items() if key != "allOf"}
    properties: dict[str, object] = {}
    for part in [merged, *parts]:
        known = _resolve(part["$ref"], root) if isinstance(part, Mapping) and "$ref" in part else part
        if isinstance(known, Mapping):
            own = known.get("properties")
            properties |= dict(own) if isinstance(own, Mapping) else {}
            merged = {**known, **merged}
    if properties:
        merged["properties"] = properties
    return merged


def _typed(schema: Mapping[str, object], root: Mapping[str, object], depth: int) -> object:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or (kind is None and "properties" in schema):
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        return {str(name): value_for(part, root, depth + 1) for name, part in known.items()}
    if kind == "array":
        least = schema.get("minItems")
        count = min(least, 64) if isinstance(least, int) else 1
        return [value_for(schema.get("items"), root, depth + 1) for _ in range(count)]
    if kind == "string":
        return _string(schema)
    if kind in ("integer", "number"):
        return _number(schema, whole=kind == "integer")
    return True if kind == "boolean" else None


def _string(schema: Mapping[str, object]) -> str:
    text = _STRINGS.get(str(schema.get("format")), "text")
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int):
        text = text.ljust(min(least, 4096), "x")
    return text[:most] if isinstance(most, int) else text


def _number(schema: Mapping[str, object], *, whole: bool) -> float | int:
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    value: float = 1
    if isinstance(least, (int, float)) and value < least:
        value = least
    if isinstance(above, (int, float)) and value <= above:
        value = above + 1
    if isinstance(most, (int, float)) and value > most:
        value = most
    if isinstance(below, (int, float)) and value >= below:
        value = below - 1
    return round(value) if whole else value
