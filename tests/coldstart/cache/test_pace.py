"""Connections, back-off, the budget of retries, stalls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.pace import Connections, Patience, Pulse
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.units import Instant, Seconds

POLICY = FetchPolicy()


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=200))
def test_connections_stay_in_their_bounds(events: list[tuple[bool, float]]) -> None:
    """Between one and the most, whatever happens."""
    connections, now = Connections(POLICY), 0.0
    for good, later in events:
        now += later
        if good:
            connections.came(later * 1e8)
        else:
            connections.refused(Instant(now))
        assert 1 <= connections.allowed <= POLICY.connections_most


def rounds(connections: Connections, link: float, each: float, count: int) -> list[int]:
    """Connections after each of so many rounds, on a link of so many bytes a second, each connection capped."""
    seen = []
    for _ in range(count):
        for _ in range(2 * connections.allowed):
            connections.came(min(each, link / connections.allowed))
        seen.append(connections.allowed)
    return seen


def test_capped_connections_are_doubled_up_to_the_most() -> None:
    """Twice as many bring twice as much; and there it stays."""
    assert rounds(Connections(POLICY), 1e12, 80e6, 5) == [4, 8, 16, 16, 16]


def test_a_full_link_takes_no_more() -> None:
    """Twice as many bring nothing more: they are given back, and tried again only much later."""
    seen = rounds(Connections(POLICY), 1e9, 1e9, 40)
    assert seen[:4] == [4, 2, 2, 2]
    assert seen.count(4) <= 3


@given(st.lists(st.floats(0.81, 1.19), min_size=90, max_size=90))
def test_noise_of_a_fifth_is_no_gain(noise: list[float]) -> None:
    """On a full link: however the chunks' speeds fall, twice as many are tried, and never kept."""
    connections, seen = Connections(POLICY), set()
    for factor in noise:
        connections.came(1e9 / connections.allowed * factor)
        seen.add(connections.allowed)
    assert seen == {2, 4}


def test_what_fits_the_link_is_found() -> None:
    """Four capped connections fill it: eight are tried, and given back."""
    assert rounds(Connections(POLICY), 320e6, 80e6, 4) == [4, 8, 4, 4]


def test_half_at_once_at_trouble() -> None:
    """A burst of refusals within a second halves once."""
    connections = Connections(POLICY)
    rounds(connections, 1e12, 80e6, 3)
    for later in (10.0, 10.1, 10.9):
        connections.refused(Instant(later))
    assert connections.allowed == 8
    connections.refused(Instant(11.0))
    assert connections.allowed == 4
    assert rounds(connections, 1e12, 80e6, 4) == [4, 4, 4, 4]


def test_back_off_doubles_up_to_its_bound() -> None:
    """And begins anew after a chunk came."""
    patience = Patience(POLICY, chunks=0)
    waits = [patience.failed(None, 0.5) for _ in range(8)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    patience.came()
    assert patience.failed(None, 0.5) == 0.05


@given(st.floats(0, 60), st.floats(0, 1, exclude_max=True))
def test_retry_after_is_never_undercut(wanted: float, draw: float) -> None:
    """Whatever the jitter."""
    waited = Patience(POLICY, 1).failed(Seconds(wanted), draw)
    assert waited is not None
    assert waited >= wanted


def test_patience_ends() -> None:
    """By the budget, though chunks come between; at once where more patience is asked than there is."""
    patience = Patience(FetchPolicy(retries=2, retries_share=0.5), chunks=4)
    for _ in range(4):
        assert patience.failed(None, 0.0) is not None
        patience.came()
    assert patience.failed(None, 0.0) is None
    assert Patience(POLICY, 4).failed(Seconds(61.0), 0.0) is None


def test_a_trickle_is_a_stall() -> None:
    """Less than the floor in five seconds; what is slow but flows is not."""
    trickle = Pulse(POLICY, Instant(0.0))
    assert [trickle.stalled(1, Instant(at)) for at in (1.0, 4.9, 5.1)] == [False, False, True]
    flow = Pulse(POLICY, Instant(0.0))
    assert not any(flow.stalled(4096, Instant(4.0 * at)) for at in range(1, 20))


@pytest.mark.parametrize("wrong", [{"chunk_bytes": 0}, {"connections_first": 0}, {"connections_first": 99},
                                   {"retries": -1}, {"stall": 0.0}])  # fmt: skip
def test_nonsense_policies_are_refused(wrong: dict[str, int]) -> None:
    """When they are made."""
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        FetchPolicy(**wrong)


def test_nonsense_watermarks_are_refused() -> None:
    """Low above high would evict for ever."""
    with pytest.raises(ValueError, match="low"):
        RoomPolicy(high=0.5, low=0.6)
