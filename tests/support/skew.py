"""Events as another release writes them: of an earlier one, without fields that are new; of a later one, with more.

``python -m tests.support.skew`` writes a record of each event type that has none yet to `FIRST`. What stands there is
never changed: it is what the first version of each type looked like.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import orjson

from events.codec import encode_structured
from events.examples import EXAMPLES, example_envelope
from events.kinds import KINDS, camel

FIRST: Final = Path(__file__).parents[1] / "events" / "first"
LATER: Final = "laterThanThis"
"""A field, and a word, that no release has."""
Parts = tuple[str | int, ...]
Visit = Callable[[Parts, Any, Any], None]
"""Takes a place in the data, its type, and what stands there."""


def visit(hint: Any, value: Any, seen: Visit, at: Parts = ()) -> None:
    """Show `seen` every place of `value`, JSON of the type `hint`, from the outside inwards."""
    hint = _plain(hint)
    if value is None or hint is None:
        return
    origin, arguments = get_origin(hint), get_args(hint)
    seen(at, hint, value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint, include_extras=True)
        for field in dataclasses.fields(hint):
            if (name := camel(field.name)) in value:
                visit(hints[field.name], value[name], seen, (*at, name))
    elif origin is tuple:
        for index, one in enumerate(value):
            visit(arguments[0] if arguments[-1] is Ellipsis else arguments[index], one, seen, (*at, index))
    elif origin is dict:
        for key, one in value.items():
            visit(arguments[1], one, seen, (*at, key))


def _plain(hint: Any) -> Any:
    """A type without its rules, and of ``X | None`` X; None for other unions, which have no places of their own."""
    while True:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            hint = arguments[0]
        elif origin in (Union, types.UnionType):
            inner = [one for one in arguments if one is not types.NoneType]
            hint = inner[0] if len(inner) == 1 else None
        else:
            return hint


def optional(hint: Any, value: Any) -> list[Parts]:
    """The places of all fields that have a default, outer ones first."""
    found: list[Parts] = []

    def look(at: Parts, kind: Any, here: Any) -> None:
        if dataclasses.is_dataclass(kind):
            found.extend((*at, camel(one.name)) for one in dataclasses.fields(kind) if _has_default(one))
            found[:] = [place for place in found if place[:-1] != at or place[-1] in here]

    visit(hint, value, look)
    return found


def words(hint: Any, value: Any) -> list[Parts]:
    """The places of all words of a list (enums)."""
    found: list[Parts] = []
    visit(hint, value, lambda at, kind, _: found.append(at) if _is_enum(kind) else None)
    return found


def objects(hint: Any, value: Any) -> list[Parts]:
    """The places of all objects that have fields."""
    found: list[Parts] = []
    visit(hint, value, lambda at, kind, _: found.append(at) if dataclasses.is_dataclass(kind) else None)
    return found


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def part(value: Any, at: Parts) -> Any:
    """What stands at a place; None where there is nothing any more."""
    for step in at:
        if not isinstance(value, Mapping | list) or (isinstance(value, Mapping) and step not in value):
            return None
        value = value[step]
    return value


def without(value: Any, places: list[Parts]) -> Any:
    """A copy without these fields."""
    made = orjson.loads(orjson.dumps(value))
    for *parents, last in places:
        holder = part(made, tuple(parents))
        if holder is not None:
            holder.pop(last, None)
    return made


def with_later(value: Any, places: list[Parts], word: Any = LATER) -> Any:
    """A copy with a further field in each of these objects."""
    made = orjson.loads(orjson.dumps(value))
    for at in places:
        part(made, at)[LATER] = word
    return made


def with_word(value: Any, at: Parts) -> Any:
    """A copy with a word at a place that is in no list."""
    made = orjson.loads(orjson.dumps(value))
    part(made, at[:-1])[at[-1]] = LATER
    return made


def first_of(kind: type[Any]) -> Path:
    """The file with the first record of a type."""
    return FIRST / f"{KINDS[kind].full_name}.json"


def main() -> None:
    """Write those that are missing."""
    FIRST.mkdir(exist_ok=True)
    for data in EXAMPLES:
        path = first_of(type(data))
        if not path.exists():
            raw = orjson.loads(encode_structured(example_envelope(data)))
            path.write_bytes(orjson.dumps(raw, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    main()
