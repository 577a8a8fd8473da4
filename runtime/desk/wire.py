"""How gateways' talk looks on a connection: a JSON array a line, its kind first.

Two releases run side by side: kinds that are not known are skipped, and so is what a newer minor version adds at the
end of an array. What does not look as it must is an error of the sender, and ends the connection.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from pydantic import TypeAdapter, ValidationError

from runtime.core.frames import (
    Ask,
    FromAuthority,
    GiveBack,
    Granted,
    Leave,
    Part,
    Ping,
    Present,
    Refused,
    Row,
    ToAuthority,
    Vow,
    Waits,
)
from runtime.core.members import Member, View

MAJOR = 1
MINOR = 0

LONGEST = 1 << 20
"""Bytes of a line. The longest that is sent is a `Present` of `A_LINE` entries, of about 300 bytes each."""

A_LINE = 1000
"""Leases, tickets and models of a `Present` that go into one line."""

MOST_PARTS = 400_000
"""Entries of one `Present`, over all its lines."""

_Members = tuple[tuple[str, str], ...]
_Row = tuple[str, tuple[str, str], str, str, float, float | None]
_Ask = tuple[str, str, str, float, float, int, bool, int]
_Part = tuple[str, tuple[_Row, ...], tuple[_Ask, ...], tuple[_Row, ...] | None]
_Vows = tuple[tuple[tuple[str, str], float], ...]

_ASK = TypeAdapter(_Ask)
_GIVE_BACK = TypeAdapter(tuple[str, str, float | None, bool])
_LEAVE = TypeAdapter(tuple[str, str])
_VOW = TypeAdapter(tuple[float, float])
_PRESENT = TypeAdapter(tuple[int, _Members, _Members, tuple[float, float], _Vows, tuple[_Part, ...], bool])
_PING = TypeAdapter(tuple[float])
_GRANTED = TypeAdapter(tuple[int, float, str, str, str, str, str, int, str, int, str])
_WAITS = TypeAdapter(tuple[int, str, int])
_REFUSED = TypeAdapter(tuple[int, str, str, str, float | None])


class Garbled(ValueError):
    """A line that no gateway sends."""


def line(kind: str, *values: object) -> bytes:
    """One line."""
    return orjson.dumps((kind, *values)) + b"\n"


def parse(text: bytes) -> tuple[str, list[object]]:
    """The kind of a line, and its values. Raises Garbled."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Garbled(f"a line is not JSON: {error}") from None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise Garbled("a line is not an array that begins with its kind")
    return found[0], found[1:]


def to_authority(frame: ToAuthority) -> Iterator[bytes]:
    """The lines of what a follower says."""
    match frame:
        case Ask():
            yield line("ask", *_ask(frame))
        case GiveBack():
            yield line("give_back", frame.model, frame.name, frame.left, frame.unreachable)
        case Vow():
            yield line("vow", frame.ping, frame.at)
        case Leave():
            yield line("leave", frame.model, frame.request)
        case Present():
            yield from _present(frame)


def from_authority(frame: FromAuthority) -> bytes:
    """The line of what an authority says."""
    match frame:
        case Granted():
            it = frame
            return line(
                "granted", it.turn, it.as_of, it.request, it.model, it.name, it.replica, it.life, it.revision, it.host,
                it.port, it.cancels,
            )  # fmt: skip
        case Waits():
            return line("waits", frame.turn, frame.request, frame.ahead)
        case Refused():
            return line("refused", frame.turn, frame.request, frame.code, frame.message, frame.retry_after)
        case Ping():
            return line("ping", frame.at)


def read_from_authority(kind: str, values: list[object]) -> FromAuthority | None:
    """What an authority said; None for a kind that is not known. Raises Garbled."""
    try:
        match kind:
            case "granted":
                return Granted(*_GRANTED.validate_python(values[:11]))
            case "waits":
                return Waits(*_WAITS.validate_python(values[:3]))
            case "refused":
                return Refused(*_REFUSED.validate_python(values[:5]))
            case "ping":
                return Ping(*_PING.validate_python(values[:1]))
    except ValidationError as error:
        raise Garbled(f"{kind}: {error}") from None
    return None


class FollowerReader:
    """Puts together what a follower says: a `Present` may take several lines."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._entries = 0

    def read(self, kind: str, values: list[object]) -> ToAuthority | None:
        """What it said; None for a kind that is not known, and before a `Present` is whole. Raises Garbled."""
        try:
            match kind:
                case "ask":
                    return Ask(*_ASK.validate_python(values[:8]))
                case "give_back":
                    return GiveBack(*_GIVE_BACK.validate_python(values[:4]))
                case "vow":
                    return Vow(*_VOW.validate_python(values[:2]))
                case "leave":
                    return Leave(*_LEAVE.validate_python(values[:2]))
                case "present":
                    return self._present(values)
        except ValidationError as error:
            raise Garbled(f"{kind}: {error}") from None
        return None

    def _present(self, values: list[object]) -> Present | None:
        turn, staying, leaving, vow, vows, parts, more = _PRESENT.validate_python(values[:7])
        for model, leases, tickets, sold in parts:
            self._entries += 1 + len(leases) + len(tickets) + len(sold or ())
            self._parts.append(Part(
                model, tuple(map(_row, leases)), tuple(Ask(*ticket) for ticket in tickets),
                None if sold is None else tuple(map(_row, sold)),
            ))  # fmt: skip
        if self._entries > MOST_PARTS:
            raise Garbled(f"a gateway presents more than {MOST_PARTS:,} leases and tickets")
        if more:
            return None
        whole, self._parts, self._entries = tuple(self._parts), [], 0
        return Present(turn, View(_members(staying), _members(leaving)), whole, Vow(*vow), _vows(vows))


def _present(told: Present) -> Iterator[bytes]:
    view = told.view
    head = (
        told.turn, [(it.gateway, it.boot) for it in view.staying], [(it.gateway, it.boot) for it in view.leaving],
        (told.vow.ping, told.vow.at), [((it.gateway, it.boot), age) for it, age in told.vows],
    )  # fmt: skip
    packed: list[list[object]] = [[]]
    room = A_LINE
    for piece in (piece for part in told.parts for piece in _pieces(part)):
        size = 1 + len(piece.leases) + len(piece.tickets) + len(piece.sold or ())
        if size > room and packed[-1]:
            packed.append([])
            room = A_LINE
        room -= size
        packed[-1].append(_part(piece))
    for index, parts in enumerate(packed):
        yield line("present", *head, parts, index < len(packed) - 1)


def _pieces(part: Part) -> Iterator[Part]:
    """A part in pieces that fit into a line each."""
    sold = part.sold
    if len(part.leases) + len(part.tickets) + len(sold or ()) < A_LINE:
        yield part
        return
    yield Part(part.model, sold=None if sold is None else sold[:A_LINE])
    for start in range(A_LINE, len(sold or ()), A_LINE):
        yield Part(part.model, sold=(sold or ())[start : start + A_LINE])
    for start in range(0, len(part.leases), A_LINE):
        yield Part(part.model, leases=part.leases[start : start + A_LINE])
    for start in range(0, len(part.tickets), A_LINE):
        yield Part(part.model, tickets=part.tickets[start : start + A_LINE])


def _part(part: Part) -> object:
    sold = None if part.sold is None else [_of_row(row) for row in part.sold]
    return (part.model, [_of_row(row) for row in part.leases], [_ask(ticket) for ticket in part.tickets], sold)


def _of_row(row: Row) -> object:
    return (row.name, (row.holder.gateway, row.holder.boot), row.replica, row.life, row.age, row.left)


def _row(values: _Row) -> Row:
    name, holder, replica, life, age, left = values
    return Row(name, Member(*holder), replica, life, age, left)


def _ask(it: Ask) -> tuple[object, ...]:
    return (it.request, it.model, it.caller, it.held, it.left, it.body_bytes, it.stream, it.attempt)


def _members(values: _Members) -> tuple[Member, ...]:
    return tuple(Member(*value) for value in values)


def _vows(values: _Vows) -> tuple[tuple[Member, float], ...]:
    return tuple((Member(*member), age) for member, age in values)
