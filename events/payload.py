"""The data of an event as JSON: encoding, strict decoding, and the path from an older version to the newest.

A changed shape is a new version. Its module keeps the class of the old version (so that old data can be checked) and
adds a function to `UPCASTERS` that turns old data into the next version's; decoding always ends at the newest version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from events.further import FURTHER, keeps, known_only, merged, unknown
from events.kinds import KINDS, Kind
from events.types.all import BY_NAME, NEWEST

Json = dict[str, Any]
"""A JSON object as `orjson.loads` gives it."""

UPCASTERS: Final[dict[tuple[str, int], Callable[[Json], Json]]] = {}
"""By (name, version): what makes data of the next version from data of this one."""

_TYPE: Final = re.compile(r"(relume(?:\.[a-z][a-z0-9_]*)+)\.v([1-9][0-9]{0,5})")
_SHOWN: Final = 80  # characters of a refused value that a reason repeats


class Unencodable(ValueError):
    """The caller's fault: this event cannot be written (unknown type, not JSON, NaN, too large)."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event of ours that this release does not know: counted and skipped, no error (two releases side by side)."""

    reason: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that nobody could use; `reason` names the path, the rule and the value."""

    reason: str
    type: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """A name of ours with the version that the data is in."""

    name: str
    version: int


_ADAPTERS: Final[dict[type[Any], TypeAdapter[Any]]] = {}  # one for each event type


def adapter(cls: type[Any]) -> TypeAdapter[Any]:
    """pydantic's reader and writer of one event type, made at first use."""
    found = _ADAPTERS.get(cls)
    if found is None:
        found = _ADAPTERS[cls] = TypeAdapter(cls)
    return found


def kind_of(data: object) -> Kind:
    """The registered kind of `data`; Unencodable when there is none."""
    kind = KINDS.get(type(data))
    if kind is None:
        raise Unencodable(f"{type(data).__qualname__} is not an event type; declare it with @event in events/types")
    return kind


def encode_data(data: object) -> bytes:
    """Canonical JSON of `data`, camelCase; Unencodable says what cannot be written."""
    kind = kind_of(data)
    try:
        raw = _dump(kind, data)
        if b"NaN" in raw or b"Infinity" in raw:
            orjson.loads(raw)  # refuses the numbers; lets strings that say so pass
    except SERIALIZERS_RAISE as error:
        raise refused(kind.full_name, error) from error
    return raw


def _dump(kind: Kind, data: Any) -> bytes:
    if not keeps(kind.type):
        return adapter(kind.type).dump_json(data, by_alias=True, warnings="error")
    raw = adapter(kind.type).dump_json(data, by_alias=True, warnings="error", exclude={FURTHER})
    if not data.further:
        return raw
    return orjson.dumps(merged(orjson.loads(raw), data.further))


SERIALIZERS_RAISE: Final = (ValueError, TypeError, AttributeError, OverflowError, OSError)
"""What serializers raise; OSError for instants of no calendar."""


def refused(what: str, error: Exception) -> Unencodable:
    """The error of a serializer as Unencodable."""
    return Unencodable(f"{what} cannot be written as JSON: {error}")


def find_shape(full_name: str) -> Shape | Ignored | Rejected:
    """Which of our names and versions the CloudEvents `type` means."""
    match = _TYPE.fullmatch(full_name)
    if match is None:
        return Rejected(
            f"type: {shown(full_name)} is not an event type of relume; one looks like relume.request.window.v1",
            full_name,
        )
    name, version = match[1], int(match[2])
    newest = NEWEST.get(name)
    if newest is None:
        return Ignored(f"type: {full_name} is not known to this release", full_name)
    if version > newest:
        return Ignored(f"type: {full_name} is newer than this release, which knows v{newest}", full_name)
    return Shape(name, version)


def decode_data(shape: Shape, data: object) -> object | Rejected:
    """The frozen value of the newest version, or why not. Types are strict: ``"3"`` is no number."""
    version = shape.version
    while version < NEWEST[shape.name]:
        step = UPCASTERS.get((shape.name, version))
        if step is None:
            return Rejected(f"type: {shape.name}.v{version} is too old: nothing turns it into v{version + 1}")
        old = BY_NAME.get((shape.name, version))
        checked = data if old is None else _validate(old, data)
        if isinstance(checked, Rejected):
            return checked
        if not isinstance(data, dict):
            return Rejected(f"data: must be an object, got {shown(data)}")
        try:
            data = step(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            return Rejected(f"data: {shape.name}.v{version} could not be turned into v{version + 1}: {error!r}")
        version += 1
    return _validate(BY_NAME[shape.name, version], data)


def _validate(kind: Kind, data: object) -> object | Rejected:
    if not isinstance(data, dict):
        return Rejected(f"data: must be an object, got {shown(data)}")
    kept = keeps(kind.type)
    try:
        # In strict mode only JSON input may give tuples and enums, so the data goes through JSON once more.
        raw = orjson.dumps(known_only(data) if kept else data)
        found: Any = adapter(kind.type).validate_json(raw, strict=True)
    except ValidationError as error:
        return Rejected(why(error, "data"))
    except TypeError as error:  # nested deeper than orjson writes
        return Rejected(f"data: {error}")
    more = unknown(kind.type, data) if kept else {}
    event: object = replace(found, further=more) if more else found
    return event


def why(error: ValidationError, *prefix: str) -> str:
    """The first fault that pydantic found, as ``path: rule, got value``, and how many more there are."""
    faults = error.errors(include_url=False, include_context=False)
    first = faults[0]
    path = ".".join([*prefix, *(str(part) for part in first["loc"])]) or "event"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{path}: {first['msg']}, got {shown(first['input'])}{more}"


def shown(value: object) -> str:
    """`value` for a reason: its repr, cut."""
    try:
        text = repr(value)
    except RecursionError:  # JSON may nest deeper than Python writes
        text = f"a {type(value).__name__} that is nested too deeply to show"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
