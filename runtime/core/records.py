"""`Record`: the base of values that are made for every request, in modules that are compiled."""

from __future__ import annotations

from typing import ClassVar


class Record:
    """Compared, hashed and shown by the attributes that `FIELDS` names; nobody sets them after `__init__`.

    As quick as `runtime.core.hot.record`, and quicker when its module is compiled: its constructor is written out,
    while that of a dataclass stays interpreted.
    """

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def values(self) -> tuple[object, ...]:
        """All fields, in order."""
        return tuple([getattr(self, name) for name in self.FIELDS])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.FIELDS is other.FIELDS and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(self.values())

    def __repr__(self) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.FIELDS])
        return f"{type(self).__name__}({shown})"
