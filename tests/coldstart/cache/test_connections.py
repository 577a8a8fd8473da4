"""How many connections a fetch reads over: as many as bring more, and no more than the machine can take in."""

from __future__ import annotations

from itertools import count as count_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.connections import Connections, Hunger, Spent, takes_in
from coldstart.core.cache.policy import FetchPolicy
from events.units import Instant, Seconds

POLICY = FetchPolicy()
GIB = 1 << 30


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3), st.floats(0, 1)), max_size=200))
def test_connections_stay_in_their_bounds(events: list[tuple[bool, float, float]]) -> None:
    """Between one and the most, whatever happens."""
    connections, now = Connections(POLICY), 0.0
    for good, later, hunger in events:
        now += later
        if not good:
            connections.refused(Instant(now), connections.trial)
        elif connections.came(later * 1e8, int(later * 10)):
            connections.judge(later * 1e9 if later < 2 else None, hunger, Instant(now))
        assert 1 <= connections.allowed <= POLICY.connections_most


def rounds(
    connections: Connections, link: float, each: float, count: int, capacity: float | None = None
) -> list[int]:  # fmt: skip
    """Connections after each of so many rounds, on a link of so many bytes a second, each connection capped."""
    seen = []
    for _ in range(count):
        turns = count_from(0)
        while not connections.came(min(each, link / connections.allowed), next(turns) % connections.allowed):
            pass
        connections.judge(capacity, 1.0, Instant(0.0))
        seen.append(connections.allowed)
    return seen


def test_capped_connections_grow_up_to_the_most() -> None:
    """Each of more brings as much as each before; and there it stays."""
    assert rounds(Connections(POLICY), 1e12, 80e6, 4) == [8, 16, 16, 16]


def test_sixteen_capped_connections_are_there_after_twelve_chunks() -> None:
    """Two that show the cap, two that were on their way, eight that show that more of them bring more."""
    connections, chunks = Connections(POLICY), 0
    while connections.allowed < 16:
        chunks += 1
        if connections.came(80e6, chunks % connections.allowed):
            connections.judge(None, 1.0, Instant(0.0))
    assert chunks == 12


def test_a_full_link_takes_no_more() -> None:
    """More bring nothing more: they are given back, and tried again only much later."""
    seen = rounds(Connections(POLICY), 1e9, 1e9, 40)
    assert seen[:4] == [8, 2, 2, 2]
    assert seen.count(8) <= 3


@given(st.lists(st.floats(0.81, 1.19), min_size=60, max_size=60))
def test_noise_of_a_fifth_is_no_gain(noise: list[float]) -> None:
    """On a full link: however the chunks' speeds fall, more are tried, and never kept."""
    connections, seen = Connections(POLICY), set()
    for turn, factor in enumerate(noise):
        if connections.came(1e9 / connections.allowed * factor, turn % connections.allowed):
            connections.judge(None, 1.0, Instant(0.0))
        seen.add(connections.allowed)
    assert seen == {2, 8}


def test_what_fits_the_link_is_found() -> None:
    """Four capped connections fill it: eight are tried, and half of them given back."""
    assert rounds(Connections(POLICY), 320e6, 80e6, 3) == [8, 4, 4]


@pytest.mark.parametrize(("capacity", "found"), [(1e9, [8, 16]), (320e6, [6, 6]), (160e6, [3, 3]), (80e6, [2, 2])])
def test_no_more_than_the_machine_takes_in(capacity: float, found: list[int]) -> None:
    """Capped connections, and half as much again as the machine can take in: it is never the network that is waited
    for, nor do connections beyond that cost the processor more."""
    assert rounds(Connections(POLICY), 1e12, 80e6, 2, capacity) == found


def test_a_digest_that_has_enough_to_do_needs_no_more() -> None:
    """Whatever each connection brings."""
    connections = Connections(POLICY)
    for turn in range(50):
        if connections.came(80e6, turn % connections.allowed):
            connections.judge(None, 0.05, Instant(0.0))
    assert connections.allowed == POLICY.connections_first


def test_what_was_refused_is_not_tried_again_soon() -> None:
    """A server that allows two refuses all that are more: then there are as many as before, at once and only once."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 1) == [8]
    for later in (10.0, 10.1, 10.9):
        connections.refused(Instant(later), 0)
    assert connections.allowed == 2
    assert rounds(connections, 1e12, 80e6, 16) == [2] * 16


@pytest.mark.parametrize("served", [1, 2, 3])
def test_who_brings_nothing_counts(served: int) -> None:
    """A server that lets so many in and leaves the others waiting: each that is in brings as much as before, and yet
    eight are not of more use than two, let alone sixteen."""
    connections, seen = Connections(POLICY), []
    assert rounds(connections, 1e12, 80e6, 1) == [8]
    for turn in range(1000):
        if connections.came(80e6, turn % min(served, connections.allowed)):
            connections.judge(None, 1.0, Instant(0.0))
            seen.append(connections.allowed)
    assert seen[0] == 2
    assert set(seen) == {2, 8} if served > 1 else {2}


def test_one_that_is_late_is_waited_for() -> None:
    """A new connection begins slowly; that those before brought two chunks meanwhile is no reason against it."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 1) == [8]
    turns = [0, 1, *[0, 1] * 3, *range(2, 8)]
    assert [connections.came(80e6, by) for by in turns] == [False] * 13 + [True]
    connections.judge(None, 1.0, Instant(0.0))
    assert connections.allowed == 16


def test_no_more_are_tried_while_patience_is_asked_for() -> None:
    """However many rounds pass; and then once more."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 1) == [8]
    connections.refused(Instant(0.0), 8, Seconds(60.0))
    connections.refused(Instant(0.1), 8, Seconds(1.0))
    assert set(rounds(connections, 1e12, 80e6, 100)) == {2}
    assert [connections.came(80e6, by) for by in (0, 1, 0, 1)][-1]
    connections.judge(None, 1.0, Instant(60.0))
    assert connections.allowed == 8


def test_what_a_trial_brought_on_is_no_failure() -> None:
    """Who was asked for more than there are now; and, within a second, as many as were tried: a server may still count
    those that it has just refused. After that a refusal is one."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 1) == [8]
    assert [connections.refused(Instant(0.01 * at), 8) for at in range(7)] == [True] * 7
    assert [connections.refused(Instant(0.1 + 0.01 * at), 0) for at in range(9)] == [True] * 8 + [False]
    again = Connections(POLICY)
    assert rounds(again, 1e12, 80e6, 1) == [8]
    assert again.refused(Instant(0.0), 8)
    assert not again.refused(Instant(1.5), 0)


def test_of_the_first_two_one_may_be_too_many() -> None:
    """A server that takes one connection: the first that is refused is no failure, the second is, unless all would end
    with it; of one that is alone each is."""
    first = Connections(POLICY)
    assert [first.refused(Instant(0.1 * at), 0, Seconds(30.0)) for at in range(3)] == [True, False, False]
    assert first.allowed == 1
    for connections in (Connections(POLICY), _after_a_round()):
        refused = [connections.refused(Instant(0.1 * at), 0, Seconds(120.0)) for at in range(5)]
        assert refused == [True, True, False, False, False]
        assert connections.allowed == 1
        assert not connections.refused(Instant(5.0), 0, Seconds(120.0))
    assert not _after_a_round().refused(Instant(0.0), 0, Seconds(30.0))


def _after_a_round() -> Connections:
    """Two connections that are known to be served."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 1, 80e6) == [2]
    return connections


def test_a_trial_soon_after_another_ends_as_that_one_did() -> None:
    """A source so fast that sixteen rounds take less than a second, and that refuses more each time."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 1) == [8]
    assert connections.refused(Instant(0.0), 8)
    assert rounds(connections, 1e12, 80e6, 17)[-1] == 8
    assert [connections.refused(Instant(0.5), 8) for _ in range(6)] == [True] * 6
    assert connections.allowed == 2


def test_half_at_once_at_trouble() -> None:
    """Where they have not just grown, a burst of refusals within a second halves once."""
    connections = Connections(POLICY)
    assert rounds(connections, 1e12, 80e6, 3)[-1] == 16
    for later in (10.0, 10.1, 10.9):
        connections.refused(Instant(later), 0)
    assert connections.allowed == 8
    connections.refused(Instant(11.0), 0)
    assert connections.allowed == 4


def test_what_a_machine_takes_in() -> None:
    """So many cores by what a byte took until now; the digest alone has one of them at most; unknown is not told."""
    spent = Spent().reading(1.0, GIB)
    assert takes_in(spent, None) is None
    assert takes_in(Spent(), 2.0) is None
    assert takes_in(spent, 1.0) == pytest.approx(GIB / 2)  # the digest is taken to need a second a GiB
    measured = spent.reading(0.5, 0).digesting(1.0, 2 * GIB)
    assert takes_in(measured, 1.0) == pytest.approx(GIB / 2)
    assert takes_in(measured, 64.0) == pytest.approx(2 * GIB)


def test_the_share_of_time_that_the_digest_waited() -> None:
    """Since it was last asked, whether it still waits or not."""
    hunger = Hunger(Instant(0.0))
    hunger.began(Instant(1.0))
    hunger.began(Instant(2.0))
    assert hunger.share(Instant(4.0)) == pytest.approx(0.75)
    hunger.ended(Instant(5.0))
    assert hunger.share(Instant(8.0)) == pytest.approx(0.25)
    hunger.ended(Instant(9.0))
    assert hunger.share(Instant(10.0)) == 0.0
    assert hunger.share(Instant(10.0)) == 0.0
