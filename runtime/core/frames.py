"""What gateways say to each other: whoever follows an authority, and the authority.

Times travel as seconds since or until, never as instants: the gateways' clocks need not agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.core.members import Member, View


@dataclass(frozen=True, slots=True)
class Ask:
    """A ticket: a request that waits for a slot. `held` and `left`: seconds since its arrival, until its deadline."""

    request: str
    model: str
    caller: str
    held: float
    left: float
    body_bytes: int
    stream: bool
    attempt: int


@dataclass(frozen=True, slots=True)
class Row:
    """A lease. `left` None: it is live; else its request has ended and the engine may be at it for so many seconds.

    `name` is its name among all gateways, `life` tells which life of its replica, `age` counts from the grant.
    """

    name: str
    holder: Member
    replica: str
    life: str
    age: float
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """What a gateway presents of one model: its leases, its tickets, and, if it was the authority until now and has
    missed nothing, all leases that it knows of (`sold`)."""

    model: str
    leases: tuple[Row, ...] = ()
    tickets: tuple[Ask, ...] = ()
    sold: tuple[Row, ...] | None = None


@dataclass(frozen=True, slots=True)
class Vow:
    """I still follow you. `ping` is the authority's time that it sent, `at` is mine."""

    ping: float
    at: float


@dataclass(frozen=True, slots=True)
class Present:
    """From now on I follow you for the models that are yours in my view, with these leases and tickets and no others.

    `turn` counts a gateway's presentations: grants that answer an earlier one are void. `vows` tells the seconds since
    I last vowed to each authority. It is a `Vow` too.
    """

    turn: int
    view: View
    parts: tuple[Part, ...]
    vow: Vow
    vows: tuple[tuple[Member, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """A ticket's request waits no more."""

    model: str
    request: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A lease has ended. `left` as in `Row`; `unreachable`: its replica could not be reached."""

    model: str
    name: str
    left: float | None
    unreachable: bool


ToAuthority = Ask | Leave | GiveBack | Present | Vow


@dataclass(frozen=True, slots=True)
class Ping:
    """Do you still follow me? `at` is the authority's time."""

    at: float


@dataclass(frozen=True, slots=True)
class Granted:
    """A slot for a ticket. `as_of` is the gateway's own time in the last vow that the authority had read."""

    turn: int
    as_of: float
    request: str
    model: str
    name: str
    replica: str
    life: str
    revision: int
    host: str
    port: int
    cancels: str


@dataclass(frozen=True, slots=True)
class Waits:
    """No slot is free: a ticket stands in the queue with so many ahead of it."""

    turn: int
    request: str
    ahead: int


@dataclass(frozen=True, slots=True)
class Refused:
    """There will be no slot for a ticket: as in `runtime.ports.Refusal`."""

    turn: int
    request: str
    code: str
    message: str
    retry_after: float | None


FromAuthority = Granted | Waits | Refused | Ping
