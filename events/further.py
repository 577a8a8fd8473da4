"""What a later release says more in a state that this one writes again, so that it is not lost on the way.

A declaration is written again by whichever admin port changes it, also by one of an earlier release while parts are
rolled. Of an event type with a field `further`, decoding keeps there what it does not know, as it stood; encoding puts
it back. The field itself is never on the wire.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from events.kinds import camel

FURTHER: Final = "further"


def keeps(cls: type[Any]) -> bool:
    """Whether an event type keeps what it does not know."""
    return FURTHER in cls.__dataclass_fields__


def unknown(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What `data`, JSON of `cls`, says that `cls` has no field for, in its parts too."""
    known = _fields(cls)
    found = {name: said for name, said in data.items() if name not in known}
    for name, part in known.items():
        said = data.get(name)
        if part is not None and isinstance(said, Mapping) and (more := unknown(part, said)):
            found[name] = more
    return found


def known_only(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` without a field that is ours alone, should somebody write one."""
    return {name: said for name, said in data.items() if name != FURTHER}


def merged(data: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with what was kept; what stands in `data` goes before, and a part that has gone takes its own along."""
    both = {
        name: merged(said, more[name]) if isinstance(said, dict) and isinstance(more.get(name), dict) else said
        for name, said in data.items()
    }
    return {**more, **both}


_FIELDS: Final[dict[type[Any], Mapping[str, type[Any] | None]]] = {}


def _fields(cls: type[Any]) -> Mapping[str, type[Any] | None]:
    """The names that stand for fields on the wire, each with the class of the part that stands there, if one does."""
    if cls not in _FIELDS:
        _FIELDS[cls] = _look(cls)
    return _FIELDS[cls]


def _look(cls: type[Any]) -> Mapping[str, type[Any] | None]:
    hints = get_type_hints(cls, include_extras=True)
    named = [(one.name, _part(hints[one.name])) for one in fields(cls) if one.name != FURTHER]
    return {written: part for name, part in named for written in (name, camel(name))}


def _part(hint: Any) -> type[Any] | None:
    """The class of events' parts that a type is, or is beside None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        found = [part for one in get_args(hint) if (part := _part(one)) is not None]
        return found[0] if len(found) == 1 else None
    return hint if isinstance(hint, type) and is_dataclass(hint) else None
