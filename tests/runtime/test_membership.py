"""Who lives: beats in the log's own time, words over connections, refusals, and a log that cannot be read."""

from __future__ import annotations

from events.types.gateways import GatewayBeat
from events.units import Instant
from runtime.core.members import Member, View
from runtime.core.membership import Membership

ME, A, B = Member("me", "1"), Member("a", "1"), Member("b", "1")
SKEW = 7_000.0
"""Our clock is so far ahead of the log's: nothing may depend on it."""


class World:
    """Beats each second of those named, read at once."""

    def __init__(self) -> None:
        self.membership = Membership(ME)
        self.now = 100.0

    def beat(self, member: Member, *, leaving: bool = False, address: str = "h:1", at: float | None = None) -> None:
        beat = GatewayBeat(gateway=member.gateway, boot=member.boot, peer_address=address, leaving=leaving)
        appended = Instant(self.now if at is None else at)
        self.membership.beat(beat, appended, Instant(self.now + SKEW))

    def seconds(self, count: int, *members: Member) -> None:
        for _ in range(count):
            self.now += 1.0
            for member in members:
                self.beat(member)

    @property
    def view(self) -> View | None:
        return self.membership.view(Instant(self.now + SKEW))

    def lives(self) -> set[str]:
        view = self.view
        assert view is not None
        return {member.gateway for member in view.members}


def world() -> World:
    made = World()
    made.seconds(3, ME, A, B)
    assert made.lives() == {"me", "a", "b"}
    return made


def test_nobody_is_known_before_our_own_beat_was_read_back() -> None:
    """Until then others may be missing."""
    made = World()
    made.beat(A)
    assert made.view is None
    assert made.membership.addresses(Instant(made.now)) == {}
    made.beat(ME)
    assert made.lives() == {"me", "a"}


def test_who_is_silent_for_five_seconds_is_dead() -> None:
    """Counted from its last beat."""
    made = world()
    made.seconds(4, ME, A)
    assert made.lives() == {"me", "a", "b"}
    made.seconds(2, ME, A)
    assert made.lives() == {"me", "a"}
    made.seconds(1, ME, A, B)
    assert made.lives() == {"me", "a", "b"}


def test_a_word_over_a_connection_is_a_sign_of_life() -> None:
    """Its beats may be late while it serves."""
    made = world()
    for _ in range(10):
        made.seconds(1, ME)
        made.membership.heard(A, Instant(made.now + SKEW))
    assert made.lives() == {"me", "a"}


def test_who_cannot_read_its_own_beats_takes_nobody_for_dead() -> None:
    """And when the log is back, the others get their five seconds anew: their beats are read a moment later."""
    made = world()
    made.seconds(60)
    assert made.lives() == {"me", "a", "b"}
    made.beat(ME)
    assert made.lives() == {"me", "a", "b"}
    made.seconds(6, ME, B)
    assert made.lives() == {"me", "b"}


def test_a_refusal_is_death_at_once() -> None:
    """Also while the log is away; and a beat that was on its way does not wake the dead, one of a new life does."""
    made = world()
    made.membership.refused(A)
    assert made.lives() == {"me", "b"}
    assert made.membership.surely_dead(A)
    made.beat(A, at=made.now + 0.5)
    assert made.lives() == {"me", "b"}
    made.seconds(1, ME, B)
    made.beat(Member("a", "2"))
    assert made.lives() == {"me", "a", "b"}
    assert made.membership.surely_dead(A)
    assert not made.membership.surely_dead(Member("a", "2"))


def test_leaving_gateways_live_and_take_nothing() -> None:
    """So do we, once we leave."""
    made = world()
    made.beat(B, leaving=True)
    assert made.view == View((A, ME), (B,))
    made.membership.leave()
    assert made.view == View((A,), (B, ME))


def test_gateways_without_a_peer_address_are_none() -> None:
    """They sell by themselves; the desk complains."""
    made = world()
    made.beat(B, address="")
    assert made.lives() == {"me", "a"}


def test_two_processes_of_one_name() -> None:
    """The older one sees the newer beat and is nobody from then on; what our own earlier life said is no matter."""
    made = World()
    made.beat(Member("me", "0"))
    made.beat(ME)
    made.beat(Member("me", "0"))
    assert not made.membership.superseded
    made.seconds(1, ME)
    made.now += 0.5
    made.beat(Member("me", "2"))
    assert made.membership.superseded
    assert made.view is None


def test_gateways_of_long_ago_are_not_called() -> None:
    """Their newest beats stand in the log for ever."""
    made = World()
    made.beat(A, at=made.now - 7200.0)
    made.beat(B, at=made.now - 60.0)
    made.beat(ME)
    assert set(made.membership.addresses(Instant(made.now + SKEW))) == {B}
    made.seconds(6, ME)
    assert made.lives() == {"me"}
