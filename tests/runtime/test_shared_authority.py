"""The slot authority of several gateways, by itself."""

from __future__ import annotations

from events.units import Instant
from runtime.core.frames import Ask, Granted, Part, Present, Refused, Row, Vow, Waits
from runtime.core.members import Member, View
from runtime.core.rendezvous import Authorities
from runtime.core.said import Said, Tell
from runtime.core.shared_authority import SharedAuthority
from runtime.core.slots import instance_of, life_of
from runtime.ports import RefusalCode
from tests.support.slots import MODEL, declared, observed, replica

ME, OTHER = Member("gateway-0", "boot-0"), Member("gateway-1", "boot-1")
NOW = Instant(1_000.0)


def ask(request: str) -> Ask:
    """A request of a model that is not sold yet."""
    return Ask(request, MODEL, "ada", held=0.0, left=60.0, body_bytes=100, stream=False, attempt=0)


def test_a_ticket_beyond_the_bound_is_refused_and_told() -> None:
    """Before a model is sold its tickets are kept up to a bound; whoever comes then hears so at once, and one who
    leaves makes room."""
    out: list[Said] = []
    authority = SharedAuthority(ME, lambda member: member == ME, out, most_tickets=2)
    for request in ("r0", "r1", "r2"):
        authority.ask(OTHER, ask(request), NOW)
    authority.leave(OTHER, MODEL, "r0")
    authority.ask(OTHER, ask("r3"), NOW)
    told = [said.frame for said in out if isinstance(said, Tell)]
    assert [type(frame) for frame in told] == [Waits, Waits, Refused, Waits]
    (refused,) = [frame for frame in told if isinstance(frame, Refused)]
    assert (refused.request, refused.code) == ("r2", RefusalCode.QUEUE_FULL.value)


def test_a_ticket_that_comes_before_the_declaration_gets_a_slot_after_it() -> None:
    """The authority before has read more of the log than this one, which starts; nothing else changes in between. And
    a model that is deleted, and declared again while its replicas are there, is sold again."""
    out: list[Said] = []
    authority = SharedAuthority(ME, lambda member: member == ME, out, most_tickets=9)
    view = View((ME,), (OTHER,))
    authority.change_view(Authorities(view), (), NOW)
    parts = (Part(MODEL, tickets=(ask("r0"),), sold=()),)
    authority.present(OTHER, Present(1, view, parts, Vow(ping=NOW, at=0.0)), NOW)
    authority.observe(observed(replica(busy_path="/slots")), NOW)
    authority.declare(declared(), NOW)
    assert [said.frame.request for said in out if isinstance(said, Tell) and isinstance(said.frame, Granted)] == ["r0"]
    authority.delete(MODEL)
    assert authority.polls() == ()
    authority.ask(OTHER, ask("r1"), NOW)
    authority.declare(declared(), NOW)
    assert [poll.model for poll in authority.polls()] == [MODEL], "nobody says how many slots are taken: it is asked"


def test_a_slot_of_a_dead_gateway_is_looked_at_when_the_declaration_says_so() -> None:
    """It died before the declaration was read here, and its engine does not count: after `timeouts.total` its slot is
    sold again, and not after the ten minutes that stand in for it.

    Found by a random walk, in which a request waited in vain.
    """
    out: list[Said] = []
    dead: set[Member] = set()
    authority = SharedAuthority(ME, lambda member: member == ME or member in dead, out, most_tickets=9)
    authority.change_view(Authorities(View((ME,), (OTHER,))), (), NOW)
    authority.observe(observed(status := replica(slots=1)), NOW)
    rows = (Row("other-0", OTHER, status.replica, life_of(instance_of(status)), age=2.0),)
    told = Present(1, View((ME,), (OTHER,)), (Part(MODEL, rows, sold=()),), Vow(ping=NOW, at=0.0))
    authority.present(OTHER, told, NOW)
    dead.add(OTHER)
    authority.change_view(Authorities(View((ME,))), (), NOW)
    authority.declare(declared(total=3.0), NOW)
    authority.ask(ME, ask("r0"), NOW)
    assert authority.due() == NOW + 1.0
    authority.advance(Instant(NOW + 1.0))
    assert [said.frame.request for said in out if isinstance(said, Tell) and isinstance(said.frame, Granted)] == ["r0"]
