"""Models whose fields are described by the strings below them, in JSON Schema and nowhere before.

pydantic can take them while it makes a class (`use_attribute_docstrings`), by reading and parsing its source: for the
models of relume that was an eighth of the CPU of each process's start, and most processes never show a schema.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described:
    """Before `BaseModel` among the bases of models whose fields are described in their source."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        assert issubclass(cls, BaseModel)
        made = handler(schema)
        properties = handler.resolve_ref_schema(made).get("properties", {})
        for name, said in descriptions(cls).items():
            field = cls.model_fields[name]
            for key in {name, field.alias, field.serialization_alias}:
                if key in properties:
                    properties[key].setdefault("description", said)
        return made


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """What the source says of each field: the string below it, of the class or the nearest base that has one."""
    said: dict[str, str] = {}
    for base in reversed(model.__mro__):
        said |= _in_module(base.__module__).get(base.__qualname__, {})
    return {name: said[name] for name in model.model_fields if name in said}


@cache
def _in_module(name: str) -> dict[str, dict[str, str]]:
    """By class: strings below annotated names. Empty where there is no source."""
    module = sys.modules.get(name)
    try:
        tree = ast.parse(inspect.getsource(module)) if module is not None else ast.Module([], [])
    except (OSError, TypeError):
        return {}
    return {qualified: _below(node) for qualified, node in _classes(tree, "")}


def _classes(node: ast.AST, inside: str) -> list[tuple[str, ast.ClassDef]]:
    found: list[tuple[str, ast.ClassDef]] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found += [(inside + child.name, child), *_classes(child, f"{inside}{child.name}.")]
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found += _classes(child, f"{inside}{child.name}.<locals>.")
        else:
            found += _classes(child, inside)
    return found


def _below(node: ast.ClassDef) -> dict[str, str]:
    said: dict[str, str] = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            said[field.target.id] = inspect.cleandoc(below.value.value)
    return said
