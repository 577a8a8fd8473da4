"""Files of servers or clusters by name: certificates and secrets do not stand in declarations."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

T = TypeVar("T")


def read_named(path: Path, entries: TypeAdapter[dict[str, T]]) -> dict[str, T]:
    """The entries of a YAML file, by name; none of an empty one. ValueError says in a sentence what is wrong."""
    try:
        told = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError, RecursionError) as error:
        raise ValueError(f"it cannot be read ({error})") from error
    try:
        return entries.validate_python({} if told is None else told)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise ValueError(f"{place or 'the file'}: {first['msg'].removeprefix('Value error, ')}") from None
